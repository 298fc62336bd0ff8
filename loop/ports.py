"""Every Protocol of the project: what the pipeline needs of the world, and nothing more."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

from loop.core.base import Base
from loop.core.budget import Budget
from loop.core.contract import Contract, Half
from loop.core.conversation import Reply, Say
from loop.core.episode import Completion, Episode, Outcome, Request, Split, Task
from loop.core.generation import Generation
from loop.core.noun import Noun
from loop.core.pair import Adapter, Harness, Message
from loop.core.plan import CuratePlan, Plan
from loop.core.score import CaseScore, Verdict
from loop.core.served import Attestation as Attestation
from loop.core.served import EngineReport as EngineReport
from loop.core.stage import Stage
from loop.core.training_set import Curve, Fingerprints, Row, TrainingJob, TrainingProfile, TrainingSet

NounT = TypeVar("NounT", bound=Noun)
Item = TypeVar("Item")
Result = TypeVar("Result")

Rollout = Generator[Say, Reply, Outcome]


class Embedder(Protocol):
    """Sentence embeddings: unit vectors, one a text."""

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Embed texts; the result has one vector of unit length per text, in order."""
        ...


class Blobs(Protocol):
    """Content-addressed storage: the address is the SHA-256 of the bytes (or of a tree's listing)."""

    def put(self, data: bytes) -> str:
        """Store bytes durably (temporary name, fsync, rename) and return their digest."""
        ...

    def get(self, digest: str) -> bytes:
        """Read bytes and check them; raises TornBlob when absent or changed."""
        ...

    def put_tree(self, folder: Path) -> str:
        """Store a folder of files durably and return its digest."""
        ...

    def get_tree(self, digest: str) -> Path:
        """A local, checked, read-only copy of a stored folder; raises TornBlob."""
        ...

    def has(self, digest: str) -> bool:
        """Whether the address is present (content is checked on get)."""
        ...


Follow = Callable[[int, Completion], Sequence[tuple[int, Request]]]
Hear = Callable[[int, str], bool]


class Engine(Protocol):
    """A model that answers requests; a frozen plug-in whose loaded weights live in its module.

    The base's weights are the blob tree ``base.weights_digest``; ``blobs`` is passed in so
    that the plug-in itself stays picklable. Loaded weights are kept by the engine's module
    and reused by later calls of the same process.
    """

    def generate(
        self,
        base: Base,
        blobs: Blobs,
        requests: Sequence[tuple[int, Request]],
        follow: Follow,
        hear: Hear | None = None,
    ) -> EngineReport:
        """Answer every request, continuously batched.

        Each request carries the caller's key. When one completes, ``follow(key,
        completion)`` is called once and may return further requests, which join the
        running batch. Returns when no request is left. A request that cannot be answered is
        among the report's failures instead, and the others go on. Raises AttestationFailed
        when an adapter does not load as what it claims to be.

        ``hear(key, text)`` is told, before a reply begins and while it grows, its text so far: a
        beginning of the completion's text, told again where it has not grown. Where it returns
        False the request is given up at once, and is a failure of boundary "cancelled". Calls for
        one key come in order, from any thread; constrained choices are not told.
        """
        ...

    def attest(self, base: Base, blobs: Blobs, adapter: Adapter) -> Attestation:
        """Load the adapter if need be and check it; raises AttestationFailed on any doubt."""
        ...

    def render(self, base: Base, blobs: Blobs, messages: Sequence[Message]) -> tuple[int, ...]:
        """The token ids of a conversation up to and with the generation prompt."""
        ...


class Environment(Protocol):
    """Where experience comes from: procedural tasks and rollouts over them; a frozen plug-in."""

    @property
    def name(self) -> str:
        """The environment's name, as tasks carry it."""
        ...

    @property
    def label(self) -> str:
        """The specialist whose training the episodes of this environment feed."""
        ...

    @property
    def levels(self) -> int:
        """Rungs of the ladder; 1 where there is none."""
        ...

    def tasks(self, contract: Contract, split: Split, count: int, seed: int, levels: Sequence[int]) -> tuple[Task, ...]:
        """``count`` distinct tasks, spread evenly over the split's cases and the levels."""
        ...

    def rollout(self, task: Task, harness: Harness, contract: Contract) -> Rollout:
        """Meet one task: yield what is said, be sent replies, return the outcome.

        Infrastructure faults raise; the collector turns them into a Failure.
        """
        ...

    def text(self, task: Task, contract: Contract) -> str:
        """What a person would call the task's content: for fingerprints and for reading."""
        ...


class Judge(Protocol):
    """Scores episodes under a contract; reads the record and the turns, nothing else."""

    def judge(self, contract: Contract, episode: Episode, half: Half) -> tuple[Verdict, ...]:
        """A verdict for each criterion of that half that applies to the episode's task."""
        ...

    def judge_many(self, contract: Contract, episodes: Sequence[Episode], half: Half) -> list[tuple[Verdict, ...]]:
        """``judge`` for each episode in order, with the dear work (embeddings) done in one batch."""
        ...

    @property
    def generation_calls(self) -> int | None:
        """The requests to language models that a whole generation may cost, over all its stages; None for no cap."""
        ...

    def within(self, calls: int) -> Judge:
        """This judge with at most so many requests for one ``judge_many``; what no longer fits is undecided."""
        ...


class Trials(Protocol):
    """Where an explorer tries harnesses: the parent's adapters on train tasks of their own."""

    def play(self, trials: Sequence[tuple[Harness, str]]) -> tuple[tuple[CaseScore, ...], ...]:
        """Visible scores of each harness on its label's trial tasks, in order; of fewer where the allowance ends."""
        ...


class Explorer(Protocol):
    """Searches the successor's harness; returns the parent's when nothing better is shown."""

    def explore(
        self, harness: Harness, sets: Mapping[str, TrainingSet], episodes: Sequence[Episode], trials: Trials, seed: int
    ) -> Harness:
        """The harness of generation N+1, from the parent's curated ``episodes`` and the training sets by label."""
        ...


class Curator(Protocol):
    """Chooses what to learn from scored experience."""

    def curate(
        self,
        label: str,
        candidates: Sequence[Row],
        replay: Sequence[Row],
        plan: CuratePlan,
        fingerprints: Fingerprints,
        embedder: Embedder,
        seed: int,
    ) -> TrainingSet:
        """The training set of one label; ``candidates`` passed the visible contract."""
        ...

    def fingerprint(self, texts: Sequence[str], embedder: Embedder) -> Fingerprints:
        """What the curate stage may know of the holdout's texts: hashes and embeddings."""
        ...


class Trained(Noun):
    """A finished training: the new revision, its curve, and what it cost."""

    adapter: Adapter
    curve: Curve
    steps_planned: int
    steps_done: int
    trained_tokens: int
    response_tokens: int
    rows_trained: tuple[str, ...]
    budget: Budget
    peak_bytes: int = 0
    tokens_per_second: float = 0.0

    undigested: ClassVar[frozenset[str]] = frozenset({"budget", "peak_bytes", "tokens_per_second"})


class Trainer(Protocol):
    """Trains one specialist; a frozen plug-in. The base's bytes are the same afterwards."""

    def fresh(
        self, base: Base, blobs: Blobs, label: str, role: str, job_seed: int, profile: TrainingProfile
    ) -> Adapter:
        """A fresh adapter (equal to the base in effect), stored as a PEFT folder."""
        ...

    def train(
        self, job: TrainingJob, parent: Adapter, base: Base, blobs: Blobs, scratch: Path, training_set: TrainingSet
    ) -> Trained:
        """Train from ``parent`` on the training set, resuming from ``scratch``.

        Raises when fewer steps were done than planned, or when the base's digest moved.
        """
        ...


class Executor(Protocol):
    """Runs jobs: here, or on a cluster. Functions are module-level and picklable."""

    def map(
        self, call: Callable[[Item], Result], items: Sequence[Item], in_flight: int | None = None
    ) -> Iterator[Result]:
        """Results in order; a job whose worker died runs again; its own error is raised as is."""
        ...

    def call(self, call: Callable[[Item], Result], item: Item, gpus: float = 0) -> Result:
        """One job with its resources."""
        ...

    def host(self, command: Sequence[str], environment: Mapping[str, str]) -> AbstractContextManager[str]:
        """Keep a server up while the context is open; yields its URL."""
        ...

    @property
    def workers(self) -> int:
        """How many jobs run at once."""
        ...

    def close(self) -> None:
        """Release what was started; safe to call twice."""
        ...


class Progress(Protocol):
    """Where a run shows what it does: a live table on a terminal, log lines elsewhere."""

    def stage(self, name: str, detail: str) -> None:
        """A stage begins."""
        ...

    def advance(self, done: int, total: int, detail: str) -> None:
        """Part of the stage is finished."""
        ...

    def finished(self, name: str, detail: str, seconds: float, reused: bool) -> None:
        """A stage ended; ``reused`` when its recorded result was taken."""
        ...


class Tracker(Protocol):
    """A view of the lineage for people (MLflow); it can be rebuilt from the store."""

    def publish(
        self,
        generation: Generation,
        parent: Generation | None,
        trained: Sequence[Trained],
        scores: Mapping[str, Any],
    ) -> str:
        """Write one generation's run with nested specialist runs; returns the run's id. Idempotent."""
        ...

    def attach(self, generation: Generation, path: Path) -> None:
        """Keep a file (the report with its plots) with a published generation's run; replaces one of that name."""
        ...


class Attempt(Protocol):
    """One try at growing a generation: parent digest + plan digest + trial; it can be resumed."""

    @property
    def digest(self) -> str:
        """The attempt's identity."""
        ...

    @property
    def trial(self) -> int:
        """0 for the first try of a plan; ``--fresh`` makes the next."""
        ...

    def find(self, stage: Stage, kind: type[NounT], key: str = "") -> NounT | None:
        """The recorded result of a step, read back and checked, or None."""
        ...

    def record(self, stage: Stage, result: Noun, budget: Budget, key: str = "", job: str = "") -> None:
        """Record a step's result: blob durably first, then the row (and the index rows of an
        EpisodeShard, ScoreShard or TrainingSet) in one transaction. Recording the same step
        twice with equal content does nothing; with other content it raises StoreConflict.
        ``job`` is the digest of all the result depends on, for ``elsewhere``."""
        ...

    def elsewhere(self, job: str, kind: type[NounT]) -> tuple[NounT, Budget] | None:
        """What another attempt recorded for an equal job, with what it cost there, or None."""
        ...

    def once(self, stage: Stage, kind: type[NounT], call: Callable[[], NounT], key: str = "") -> NounT:
        """The recorded result, or the result of ``call`` recorded now with its wall time."""
        ...

    def budget(self) -> dict[Stage, Budget]:
        """What each stage has spent so far, over every resume."""
        ...


class Store(Protocol):
    """The lineage in SQL: the truth that MLflow and the report are views of."""

    def lease(self, family: str, holder: str) -> AbstractContextManager[None]:
        """Be the only writer of a lineage while the context is open; StoreConflict names who holds it.

        A lease whose heartbeat stopped for longer than its time to live is taken over.
        """
        ...

    def generations(self, family: str) -> tuple[Generation, ...]:
        """Every generation of a lineage in the order of registration, rejected ones too."""
        ...

    def generation(self, family: str, number: int) -> Generation:
        """The promoted generation of that number; UserError naming those that exist."""
        ...

    def by_digest(self, digest: str) -> Generation:
        """A generation by full digest or unique prefix of at least 6 digits; UserError."""
        ...

    def begin(self, family: str, parent: Generation, plan: Plan, *, fresh: bool = False) -> Attempt:
        """The open attempt of this parent and plan, or a new one; ``fresh`` starts another trial.

        UserError when an unfinished attempt of the same parent has another plan, unless ``fresh``.
        """
        ...

    def result(self, family: str, parent: Generation, plan: Plan) -> Generation | None:
        """What the newest finished attempt of this parent and plan registered, or None."""
        ...

    def register(self, generation: Generation, attempt: Attempt | None) -> None:
        """Insert a generation and all it names, finish the attempt, move the champion if promoted: one transaction.

        Registering an equal generation again does nothing.
        """
        ...

    def open_holdout(self, attempt: Attempt, generation: str, why: str) -> None:
        """Record that the sealed bank was opened: who, when, which generation, why."""
        ...

    def replay(self, family: str, ancestors: Sequence[str], label: str) -> tuple[Row, ...]:
        """The training rows of these generations' attempts for one label, in order."""
        ...

    def forgotten(self) -> frozenset[str]:
        """The cases of living experience that may not be learned from any more."""
        ...

    def tasks_met(self, generation: Generation) -> tuple[Task, ...]:
        """The train tasks met to make a generation; empty for a root."""
        ...

    def load(self, kind: type[NounT], digest: str) -> NounT:
        """Any stored noun by its digest; raises TornBlob."""
        ...

    def save(self, noun: Noun) -> str:
        """Store a noun as a blob (Parquet for shards and training sets) under its digest."""
        ...
