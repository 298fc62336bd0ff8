"""What one specialist is trained on; a holdout episode cannot be in it."""

from __future__ import annotations

from pydantic import Field, model_validator

from loop.core.episode import Split
from loop.core.noun import Noun


class Row(Noun):
    """One reply to learn: exact token ids of the prompt and of the response.

    ``score`` is the visible contract score 0..100 that selected it; ``generation`` is the
    number of the generation that produced it (replay rows come from ancestors). ``turn``
    counts assistant replies from 0; ``request`` is the task's text, for duplicate checks.
    ``supervised`` marks a reply that is a bank's answer and was not sampled.
    """

    episode: str
    task: str
    split: Split
    environment: str
    case: str
    level: int
    turn: int
    generation: int
    licence: str
    weight: float = Field(default=1.0, gt=0)
    score: float
    prompt_ids: tuple[int, ...] = Field(min_length=1)
    response_ids: tuple[int, ...] = Field(min_length=1)
    text: str
    request: str = ""
    supervised: bool = False


class TrainingSet(Noun):
    """Rows for one label, with how many candidates each filter dropped."""

    label: str
    rows: tuple[Row, ...]
    dropped: dict[str, int] = {}

    @model_validator(mode="after")
    def _no_holdout_row(self) -> TrainingSet:
        leaked = [row.episode for row in self.rows if row.split is Split.HOLDOUT]
        if leaked:
            raise ValueError(f"{len(leaked)} holdout episodes in the training set of {self.label}: {leaked[:3]}")
        return self

    @property
    def tokens(self) -> int:
        """Prompt and response tokens of one pass over the rows."""
        return sum(len(row.prompt_ids) + len(row.response_ids) for row in self.rows)


class Fingerprints(Noun):
    """What the curate stage may know of the holdout: hashes of n-grams and embeddings only.

    ``grams`` are 64-bit hashes of word n-grams (n stated); ``embeddings`` are unit vectors
    rounded to four decimals. No text of the holdout can be read back from it.
    """

    n: int = 8
    grams: frozenset[int] = frozenset()
    embeddings: tuple[tuple[float, ...], ...] = ()


class TrainingProfile(Noun):
    """A recipe: LoRA shape, optimiser and stopping, in the terms the papers use.

    ``epochs`` or ``steps`` (steps win when given) or ``tokens`` (they win over both: as many
    trained tokens, to within half a row); ``targets`` as PEFT's target_modules;
    ``expert_parameters`` as PEFT's target_parameters (mixture-of-experts bases).
    ``learning_rate`` peaks after ``warmup_ratio`` and follows ``schedule``.
    """

    name: str
    rank: int = Field(gt=0)
    alpha: float = Field(gt=0)
    dropout: float = 0.0
    targets: tuple[str, ...]
    expert_parameters: tuple[str, ...] = ()
    learning_rate: float = Field(gt=0)
    batch_rows: int = Field(gt=0)
    epochs: int = Field(default=1, gt=0)
    steps: int | None = None
    tokens: int | None = None
    schedule: str = "cosine"
    warmup_ratio: float = 0.1
    weight_decay: float = 0.0
    clip_norm: float = 1.0
    dtype: str = "bfloat16"
    min_rows: int = 8
    checkpoint_steps: int = 8
    threads: int = 2
    prompt_gradient: bool = True


class TrainingJob(Noun):
    """Everything one specialist's training depends on; equal jobs give equal adapters."""

    label: str
    role: str
    base: str
    parent: str
    training_set: str
    profile: TrainingProfile
    seed: int
    licence: str = "unknown"


class Curve(Noun):
    """The loss curve: one value per optimiser step, mean over response tokens (nats)."""

    losses: tuple[float, ...]
    learning_rates: tuple[float, ...]
    grad_norms: tuple[float, ...]
