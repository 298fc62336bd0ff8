"""What the store tells a person, as frozen nouns: status, history, and why a generation is what it is."""

from __future__ import annotations

from loop.core.budget import Budget
from loop.core.generation import Generation
from loop.core.noun import Noun
from loop.core.pair import Adapter


class LeaseView(Noun):
    """Who is writing a lineage; ``beat_seconds`` is the age of its last heartbeat."""

    holder: str
    host: str
    pid: int
    since: str
    beat_seconds: float


class StageView(Noun):
    """A stage of an attempt: how many steps are recorded, when the last was, what it has cost."""

    stage: str
    steps: int
    last: str
    budget: Budget


class AttemptView(Noun):
    """An attempt with its stages in the order they run; ``generation`` is what it registered."""

    attempt: str
    parent: str
    parent_number: int | None
    plan: str
    trial: int
    state: str
    generation: str | None
    started: str
    finished: str | None
    stages: tuple[StageView, ...] = ()


class PolicyView(Noun):
    """Where a policy record points."""

    owner: str
    name: str
    generation: str
    number: int
    at: str


class PolicyMoveView(Noun):
    """One move of a policy record."""

    owner: str
    name: str
    generation: str
    number: int
    previous: str | None
    why: str
    at: str


class StatusView(Noun):
    """A lineage at a glance: how many generations stand, who writes, what is open."""

    family: str
    promoted: int
    rejected: int
    policies: tuple[PolicyView, ...] = ()
    lease: LeaseView | None = None
    attempt: AttemptView | None = None


class AdapterView(Noun):
    """An adapter revision and the generations (promoted or not) that use it, by digest."""

    adapter: Adapter
    at: str
    numbers: tuple[int, ...] = ()
    generations: tuple[str, ...] = ()


class OpeningView(Noun):
    """An opening of the sealed bank; ``times`` counts resumes of the same attempt."""

    attempt: str
    generation: str
    why: str
    who: str
    at: str
    times: int


class SourceView(Noun):
    """Training rows of one case collected by one generation; ``mean_score`` is 0..100."""

    environment: str
    case: str
    generation: int
    rows: int
    episodes: int
    mean_score: float


class CriterionView(Noun):
    """How the training rows' episodes fared on a visible criterion, in episodes."""

    criterion: str
    axiom: str
    held: int
    breached: int
    undecided: int


class EpisodeView(Noun):
    """An episode behind training rows: where its body is (Parquet blob and row) and its score."""

    episode: str
    environment: str
    case: str
    level: int
    sample: int
    rows: int
    score: float
    shard: str
    position: int


class AdapterWhy(Noun):
    """What one specialist was trained on; ``trained`` is False when it was kept from the parent."""

    adapter: Adapter
    trained: bool
    training_set: str | None = None
    rows: int = 0
    tokens: int = 0
    episodes: int = 0
    licences: dict[str, int] = {}
    sources: tuple[SourceView, ...] = ()
    criteria: tuple[CriterionView, ...] = ()
    examples: tuple[EpisodeView, ...] = ()


class WhyView(Noun):
    """The chain score -> adapters -> training rows -> episodes -> verdicts of one generation."""

    generation: Generation
    parent_number: int | None = None
    attempt: AttemptView | None = None
    adapters: tuple[AdapterWhy, ...] = ()
    openings: tuple[OpeningView, ...] = ()


class NoiseFloor(Noun):
    """The largest |difference| of an A/A run in score points, by contract, engine and base digests."""

    contract: str
    engine: str
    base: str
    value: float
    cases: int
