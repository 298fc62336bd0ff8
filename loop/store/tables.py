"""The tables: keys to look things up by, and one typed document column that is the noun itself.

Bodies (episodes, evidence, token ids) are Parquet blobs; rows here are their index. Times
are ISO 8601 in UTC, except the lease's, which are seconds since 1970.
"""

from __future__ import annotations

from enum import StrEnum

from sqlalchemy import BigInteger, Column, ForeignKeyConstraint, Index, MetaData, text
from sqlmodel import Field, SQLModel

from loop.core.base import Base
from loop.core.budget import Budget
from loop.core.contract import Contract
from loop.core.generation import Generation
from loop.core.noun import Noun
from loop.core.pair import Adapter, Harness
from loop.core.plan import Plan
from loop.store.column import NounColumn

METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


class Table(SQLModel):
    """The root of every table; it holds the metadata that migrations compare with."""

    metadata = METADATA


def document(kind: type[Noun], nullable: bool = False) -> Column[Noun]:
    """The column that holds a row's noun."""
    return Column("document", NounColumn(kind), nullable=nullable)


class NounRow(Table, table=True):
    """Where a noun's bytes are: noun digest -> blob digest."""

    __tablename__ = "nouns"

    digest: str = Field(primary_key=True)
    kind: str
    blob: str
    at: str


class BaseRow(Table, table=True):
    """A base model that a registered generation stands on."""

    __tablename__ = "bases"

    digest: str = Field(primary_key=True)
    weights_digest: str = Field(index=True)
    id: str
    at: str
    document: Base = Field(sa_column=document(Base))


class AdapterRow(Table, table=True):
    """An adapter revision: immutable."""

    __tablename__ = "adapters"

    digest: str = Field(primary_key=True)
    label: str
    owner: str
    base: str
    blob: str
    parent: str | None
    at: str
    document: Adapter = Field(sa_column=document(Adapter))


class HarnessRow(Table, table=True):
    """A harness revision: immutable."""

    __tablename__ = "harnesses"

    digest: str = Field(primary_key=True)
    name: str
    at: str
    document: Harness = Field(sa_column=document(Harness))


class ContractRow(Table, table=True):
    """A contract version that an exam or a score names; the document when it was saved here."""

    __tablename__ = "contracts"

    digest: str = Field(primary_key=True)
    version: str | None
    folder_digest: str | None
    at: str
    document: Contract | None = Field(default=None, sa_column=document(Contract, nullable=True))


class GenerationRow(Table, table=True):
    """A registered generation, promoted or not; ``id`` is the order of registration."""

    __tablename__ = "generations"
    __table_args__ = (
        Index(
            "uq_generations_promoted",
            "family",
            "number",
            unique=True,
            sqlite_where=text("standing <> 'rejected'"),
            postgresql_where=text("standing <> 'rejected'"),
        ),
    )

    id: int | None = Field(default=None, primary_key=True)
    digest: str = Field(unique=True)
    family: str = Field(index=True)
    number: int
    standing: str
    arm: str
    parent: str | None = Field(foreign_key="generations.digest")
    base: str = Field(foreign_key="bases.digest")
    harness: str = Field(foreign_key="harnesses.digest")
    contract: str | None = Field(foreign_key="contracts.digest")
    attempt: str | None = Field(foreign_key="attempts.digest")
    score: float | None
    gain: float | None
    at: str
    document: Generation = Field(sa_column=document(Generation))


class GenerationAdapterRow(Table, table=True):
    """Which adapter revisions a generation is made of."""

    __tablename__ = "generation_adapters"

    generation: str = Field(primary_key=True, foreign_key="generations.digest")
    label: str = Field(primary_key=True)
    adapter: str = Field(foreign_key="adapters.digest")


class AttemptState(StrEnum):
    """What became of an attempt; ``replaced`` when a fresh one took its place."""

    OPEN = "open"
    FINISHED = "finished"
    REPLACED = "replaced"


class AttemptRow(Table, table=True):
    """One try at growing a generation; a parent has at most one open one."""

    __tablename__ = "attempts"
    __table_args__ = (
        Index(
            "uq_attempts_open",
            "parent",
            unique=True,
            sqlite_where=text("state = 'open'"),
            postgresql_where=text("state = 'open'"),
        ),
        Index("uq_attempts_identity", "parent", "plan", "trial", unique=True),
    )

    digest: str = Field(primary_key=True)
    family: str = Field(index=True)
    parent: str
    plan: str
    trial: int
    state: str
    generation: str | None
    started: str
    finished: str | None
    document: Plan = Field(sa_column=document(Plan))


class StepRow(Table, table=True):
    """A recorded step: the digest of its result; ``job`` is the digest of all it depends on, where known."""

    __tablename__ = "steps"

    attempt: str = Field(primary_key=True, foreign_key="attempts.digest")
    stage: str = Field(primary_key=True)
    key: str = Field(primary_key=True)
    kind: str
    noun: str = Field(foreign_key="nouns.digest")
    at: str
    job: str | None = Field(default=None, index=True)


class BudgetRow(Table, table=True):
    """What a step has spent, over every resume: also the seconds of tries that broke."""

    __tablename__ = "budgets"

    attempt: str = Field(primary_key=True, foreign_key="attempts.digest")
    stage: str = Field(primary_key=True)
    key: str = Field(primary_key=True)
    document: Budget = Field(sa_column=document(Budget))


def _of_step() -> ForeignKeyConstraint:
    return ForeignKeyConstraint(["attempt", "stage", "key"], ["steps.attempt", "steps.stage", "steps.key"])


class EpisodeRow(Table, table=True):
    """Index of an episode; its body is row ``position`` of the Parquet blob ``shard``."""

    __tablename__ = "episodes"
    __table_args__ = (_of_step(), Index("ix_episodes_digest", "digest"))

    attempt: str = Field(primary_key=True)
    digest: str = Field(primary_key=True)
    stage: str
    key: str
    shard: str
    position: int
    pair: str
    task: str
    environment: str
    case: str
    split: str
    level: int
    sample: int
    seed: int = Field(sa_type=BigInteger)
    boundary: str | None


class ScoreRow(Table, table=True):
    """Index of a case score: one episode under one half of one contract."""

    __tablename__ = "scores"
    __table_args__ = (_of_step(), Index("ix_scores_episode", "episode"))

    attempt: str = Field(primary_key=True)
    stage: str = Field(primary_key=True)
    key: str = Field(primary_key=True)
    episode: str = Field(primary_key=True)
    contract: str
    half: str
    environment: str
    case: str
    level: int
    score: float | None
    passed: bool | None


class VerdictRow(Table, table=True):
    """Index of a verdict: one criterion on one episode; the evidence is in the shard."""

    __tablename__ = "verdicts"
    __table_args__ = (_of_step(), Index("ix_verdicts_episode", "episode"))

    attempt: str = Field(primary_key=True)
    stage: str = Field(primary_key=True)
    key: str = Field(primary_key=True)
    episode: str = Field(primary_key=True)
    half: str = Field(primary_key=True)
    criterion: str = Field(primary_key=True)
    axiom: str
    value: float | None
    judge: str


class RescoreRow(Table, table=True):
    """A recorded step of scoring a generation's stored episodes again; its result, by contract and judge."""

    __tablename__ = "rescores"

    generation: str = Field(primary_key=True, foreign_key="generations.digest")
    contract: str = Field(primary_key=True, foreign_key="contracts.digest")
    judge: str = Field(primary_key=True)
    key: str = Field(primary_key=True)
    noun: str = Field(foreign_key="nouns.digest")
    at: str


class TrainingSetRow(Table, table=True):
    """A training set that an attempt built for one label."""

    __tablename__ = "training_sets"
    __table_args__ = (_of_step(),)

    attempt: str = Field(primary_key=True)
    stage: str = Field(primary_key=True)
    key: str = Field(primary_key=True)
    label: str
    noun: str = Field(foreign_key="nouns.digest")
    rows: int
    tokens: int


class TrainingRowRow(Table, table=True):
    """The source of one row of a training set: which episode and task it comes from, under which licence."""

    __tablename__ = "training_rows"
    __table_args__ = (
        ForeignKeyConstraint(
            ["attempt", "stage", "key"], ["training_sets.attempt", "training_sets.stage", "training_sets.key"]
        ),
        Index("ix_training_rows_episode", "episode"),
    )

    attempt: str = Field(primary_key=True)
    stage: str = Field(primary_key=True)
    key: str = Field(primary_key=True)
    position: int = Field(primary_key=True)
    label: str
    episode: str
    turn: int
    task: str
    environment: str
    case: str
    licence: str
    generation: int
    score: float
    weight: float


class PolicyRow(Table, table=True):
    """A policy record: a named, mutable pointer (``champion``, ``candidate``) to a generation."""

    __tablename__ = "policies"

    family: str = Field(primary_key=True)
    owner: str = Field(primary_key=True)
    name: str = Field(primary_key=True)
    generation: str = Field(foreign_key="generations.digest")
    at: str


class PolicyMoveRow(Table, table=True):
    """One move of a policy record; rows are only ever added."""

    __tablename__ = "policy_moves"

    id: int | None = Field(default=None, primary_key=True)
    family: str = Field(index=True)
    owner: str
    name: str
    generation: str = Field(foreign_key="generations.digest")
    previous: str | None
    why: str
    at: str


class HoldoutOpeningRow(Table, table=True):
    """An opening of the sealed bank: who, when, for which generation, why.

    A resumed attempt opens it for the same purpose again: that counts in ``times``.
    """

    __tablename__ = "holdout_openings"

    attempt: str = Field(primary_key=True, foreign_key="attempts.digest")
    generation: str = Field(primary_key=True)
    why: str = Field(primary_key=True)
    family: str = Field(index=True)
    who: str
    at: str
    times: int
    last: str


class LeaseRow(Table, table=True):
    """Who is writing a lineage; ``machine`` says where the process number means anything."""

    __tablename__ = "leases"

    family: str = Field(primary_key=True)
    token: str
    holder: str
    host: str
    machine: str
    pid: int
    process_started: float
    since: float
    heartbeat: float


class NoiseFloorRow(Table, table=True):
    """The largest |difference| of one A/A run, by contract and engine (score points)."""

    __tablename__ = "noise_floors"

    contract: str = Field(primary_key=True)
    engine: str = Field(primary_key=True)
    base: str = Field(primary_key=True)
    value: float
    cases: int
    at: str
