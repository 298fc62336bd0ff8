"""A manifest: everything that the result of one exam depends on, and what playing it again showed."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field, JsonValue

from loop.core.base import Base
from loop.core.gate import Interval
from loop.core.noun import Noun
from loop.core.plan import Spec


class Hardware(Noun):
    """The processor, what it computes natively (e.g. ``avx512_bf16``), its cores, and the GPUs by name.

    ``kernels`` is the instruction set of torch's own kernels, ``switches`` the environment
    variables that choose kernels, where they are set.
    """

    cpu: str
    features: tuple[str, ...] = ()
    cores: int
    gpus: tuple[str, ...] = ()
    kernels: str = ""
    switches: dict[str, str] = {}


class Surroundings(Noun):
    """Where an exam was played, beside its plan: code, packages, hardware, and the engine's options in full.

    ``code`` is SHA-256 over the installed package's files, ``packages`` versions by
    distribution, ``engine`` every option of the engine with its defaults.
    """

    version: str
    code: str
    python: str
    system: str
    packages: dict[str, str]
    hardware: Hardware
    engine: dict[str, JsonValue] = {}


class AdapterEntry(Noun):
    """An adapter revision by its label, its digest and the digest of its stored folder."""

    label: str
    adapter: str
    blob: str


class PairEntry(Noun):
    """A pair that sat the exam; ``role`` says whose adapters and whose harness it has."""

    role: str
    pair: str
    adapters: tuple[AdapterEntry, ...]
    harness: str


class ContractEntry(Noun):
    """The contract: version, digest of its content, of its folder, and of its sealed bank."""

    version: str
    contract: str
    folder: str
    holdout: str


class SamplingEntry(Noun):
    """How replies were drawn; ``seed`` is the plan's, ``task_seed`` drew the cases."""

    temperature: float | None
    samples: int
    seed: int
    task_seed: int


class Played(Noun):
    """One shard of the exam: its key, cases, and the digests of its episodes and of its scores by half."""

    key: str
    episodes: str
    count: int
    scores: dict[str, str]


class Figures(Noun):
    """What the exam found: digests of the exam and its scorecards, and the figures people quote."""

    exam: str
    scorecard: str
    parent_scorecard: str | None
    score: float | None
    score_interval: Interval | None
    gain: Interval | None
    coverage: float
    cases: int


class Floor(Noun):
    """The largest |difference of a case's score| in points when only the batch differed, over ``cases`` cases."""

    value: float = Field(ge=0)
    cases: int = Field(gt=0)


class Manifest(Noun):
    """Everything the exam of one generation depends on, by digest; no secret, path or user name.

    ``surroundings`` has one entry for each place that the exam was played or resumed in, and
    none when the exam is older than this record. ``floor`` is the noise floor measured so far.
    """

    schema_version: int = 1
    generation: str
    number: int
    parent: str
    plan: str
    attempt: str
    base: Base
    pairs: tuple[PairEntry, ...]
    contract: ContractEntry
    tasks: str
    counts: dict[str, int]
    judge: Spec
    engine: Spec
    environments: tuple[Spec, ...]
    sampling: SamplingEntry
    played: tuple[Played, ...]
    figures: Figures
    surroundings: tuple[Surroundings, ...] = ()
    floor: Floor | None = None


class Agreement(Noun):
    """Two scorings of the same cases: how many case scores moved, and by how many points.

    ``undecided`` counts cases that one scored and the other could not. ``p`` is the
    two-sided p-value of the mean difference being zero (sign flips by cluster), None where
    no case was scored twice.
    """

    cases: int
    moved: int
    undecided: int
    largest: float
    mean: float
    p: float | None


class ReplayVerdict(StrEnum):
    """What a replay says."""

    EQUAL = "EQUAL"
    WITHIN = "WITHIN THE NOISE FLOOR"
    DIFFERENT = "DIFFERENT"


class Replay(Noun):
    """An exam played again: the verdict, the figures behind it, and what differs here.

    ``changed`` of ``episodes`` have another digest, ``replies`` of them other tokens (the
    rest differ in log-probabilities or counts alone). ``scores`` are (then, now) by role.
    ``dependencies`` names each recorded dependency that is not the same here; None when the
    exam recorded none.
    """

    manifest: str
    generation: str
    verdict: ReplayVerdict
    episodes: int
    changed: int
    replies: int
    failed: int
    agreement: Agreement
    scores: dict[str, tuple[float | None, float | None]]
    floor: Floor | None
    dependencies: tuple[str, ...] | None
    reasons: tuple[str, ...] = ()
