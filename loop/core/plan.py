"""What an attempt depends on: sizes, seeds and the plug-ins by name and options."""

from __future__ import annotations

from pydantic import Field, JsonValue

from loop.core.noun import Noun
from loop.core.training_set import TrainingProfile


class Spec(Noun):
    """A plug-in by entry-point name, with its options."""

    use: str
    options: dict[str, JsonValue] = {}


class CollectPlan(Noun):
    """How much experience to collect: tasks per environment, samples a task, tasks a shard.

    ``rounds`` meets that many times the tasks at once: what as many generations would meet.
    ``routes`` are cases of the routing bank that the router is asked, ``route_samples`` times each.
    """

    tasks: dict[str, int]
    rounds: int = Field(default=1, gt=0)
    samples: int = Field(default=8, gt=0)
    shard_tasks: int = Field(default=20, gt=0)
    temperature: float = Field(default=0.9, ge=0)
    failure_share: float = Field(default=0.2, ge=0, le=1)
    routes: int = Field(default=0, ge=0)
    route_samples: int = Field(default=2, gt=0)


class CuratePlan(Noun):
    """What is kept: visible score at least ``min_score`` and passed, a cap per task, replay."""

    curator: Spec = Spec(use="best")
    min_score: float = 50.0
    per_task: int = 2
    max_rows: int = 192
    replay_ratio: float = Field(default=0.3, ge=0, lt=1)
    near_duplicate: float = 0.9
    holdout_similarity: float = 0.95


class ExplorePlan(Noun):
    """Where harnesses are tried: train tasks per environment for each trial, tasks a shard."""

    tasks: dict[str, int] = {}
    shard_tasks: int = Field(default=40, gt=0)


class ExaminePlan(Noun):
    """The exam: holdout tasks per environment (the same for parent and child), greedy.

    ``best_of_tokens``: the child answers each task many times, as often as these generated
    tokens allow, and the visible checks choose its answer (best of k). ``canaries`` are
    baits of each kind, ``interference`` the tasks of each environment that every
    specialist's adapter answers in turn, ``earlier`` the train tasks of each environment and
    earlier generation that are met once more, ``routes`` the sealed routing cases that both
    routers decide. After ``looks`` exams of a lineage the holdout is drawn again from fresh
    seeds, but for the ``anchor`` share of it, which stays.
    """

    tasks: dict[str, int]
    samples: int = 1
    temperature: float = 0.0
    shard_tasks: int = Field(default=40, gt=0)
    diversity_tasks: int = 8
    diversity_samples: int = 8
    seed: int = 20_261_201
    looks: int = Field(default=20, gt=0)
    anchor: float = Field(default=0.25, ge=0, le=1)
    best_of_tokens: int | None = Field(default=None, gt=0)
    canaries: int = Field(default=0, ge=0)
    interference: int = Field(default=0, ge=0)
    earlier: int = Field(default=0, ge=0)
    routes: int = Field(default=0, ge=0)


class Allowance(Noun):
    """What an arm of an experiment is to spend, so that arms compare; None: what its plan comes to.

    ``collect`` is generated tokens of collecting, ``explore`` generated tokens of collecting
    and of trials together, ``train`` trained tokens of all specialists.
    """

    collect: int | None = Field(default=None, gt=0)
    explore: int | None = Field(default=None, gt=0)
    train: int | None = Field(default=None, gt=0)


class GatePlan(Noun):
    """The gate: the confidence level, the margins in points, the bootstrap's draws.

    ``alpha`` is the chance of a single false promotion over a lineage's whole life, which
    its looks at the holdout share; ``flips`` are the draws of each look's test. ``effect`` is
    the gain that the exam must be able to see; a plan that cannot is refused.
    """

    alpha: float = Field(default=0.05, gt=0, lt=1)
    flips: int = Field(default=99_999, gt=0)
    level: float = 0.95
    margin: float = 2.0
    draws: int = 2000
    effect: float | None = Field(default=None, gt=0)


class Plan(Noun):
    """Everything that shapes generation N+1 beside its parent; its digest names the attempt.

    ``weights`` False takes no optimiser step; ``shuffle`` deals the visible scores out at
    random before anything is chosen by them (the sham control). ``routing`` is the digest of the
    routing bank where the plan draws from it. ``imported`` is the digest of an imported adapter
    that is put into the parent's pair, instead of anything being trained.
    """

    seed: int
    contract: str
    engine: Spec
    judge: Spec = Spec(use="rules")
    explorer: Spec = Spec(use="keep")
    trainer: Spec = Spec(use="lora")
    environments: tuple[Spec, ...]
    collect: CollectPlan
    curate: CuratePlan = CuratePlan()
    explore: ExplorePlan = ExplorePlan()
    profile: TrainingProfile
    examine: ExaminePlan
    gate: GatePlan = GatePlan()
    arm: str = "iterated"
    allowance: Allowance = Allowance()
    weights: bool = True
    shuffle: bool = False
    routing: str = ""
    imported: str = ""
