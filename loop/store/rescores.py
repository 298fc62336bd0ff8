"""Stored episodes scored again under another contract: step by step, and never twice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy.exc import IntegrityError
from sqlmodel import Session, col, select

from loop.core.errors import StoreConflict, UserError
from loop.core.generation import Generation
from loop.core.noun import Noun
from loop.core.plan import Plan
from loop.core.rescore import Rescore, Standpoint
from loop.core.stage import Stage
from loop.ports import Blobs
from loop.store import lease, nouns
from loop.store.attempt import SqlAttempt
from loop.store.database import now, reading, writing
from loop.store.parquet import encode
from loop.store.tables import AttemptRow, ContractRow, GenerationRow, NounRow, RescoreRow, StepRow

NounT = TypeVar("NounT", bound=Noun)

EPISODES = "EpisodeShard"


@dataclass(frozen=True)
class SqlRescoring:
    """The recorded steps of one generation under one contract and judge, all by digest."""

    url: str
    blobs: Blobs
    family: str
    generation: str
    contract: str
    judge: str

    def find(self, kind: type[NounT], key: str) -> NounT | None:
        """The recorded result of a step, read back and checked, or None; raises TornBlob."""
        with reading(self.url) as session:
            row = self._row(session, key)
        return None if row is None else nouns.load(self.url, self.blobs, kind, row.noun)

    def record(self, result: Noun, key: str) -> None:
        """Record a step: blob durably first, then its rows in one transaction.

        Equal content again does nothing; other content, or a lost lease, raises StoreConflict.
        """
        if self._is_recorded(result, key):
            return
        blob = self.blobs.put(encode(result))
        try:
            with writing(self.url) as session:
                lease.fence(session, self.url, self.family)
                nouns.add_noun(session, result, blob)
                identity = {"generation": self.generation, "contract": self.contract, "judge": self.judge}
                session.add(RescoreRow(**identity, key=key, noun=result.digest, at=now()))
        except IntegrityError:
            # Another process recorded the step in between: equal content is no conflict.
            if not self._is_recorded(result, key):
                raise

    def _row(self, session: Session, key: str) -> RescoreRow | None:
        return session.get(RescoreRow, (self.generation, self.contract, self.judge, key))

    def _is_recorded(self, result: Noun, key: str) -> bool:
        with reading(self.url) as session:
            row = self._row(session, key)
        if row is not None and row.noun != result.digest:
            raise StoreConflict(
                f"{key} of generation {self.generation[:12]} under contract {self.contract[:12]} is recorded as "
                f"{row.noun[:12]} and would now be {result.short}: this judge is not deterministic; the record stays"
            )
        return row is not None


def made_by(url: str, blobs: Blobs, generation: Generation) -> tuple[SqlAttempt, Plan]:
    """The attempt that registered a generation, with its plan; UserError where none is known (the root)."""
    query = (
        select(AttemptRow)
        .join(GenerationRow, col(GenerationRow.attempt) == col(AttemptRow.digest))
        .where(GenerationRow.digest == generation.digest)
    )
    with reading(url) as session:
        row = session.exec(query).one_or_none()
    if row is None:
        raise UserError(
            f"generation {generation.number} ({generation.short}) has no recorded episodes of its own; "
            "a root is examined beside its first successor: choose that one"
        )
    return SqlAttempt(url, blobs, row.family, row.digest, row.trial), row.document


def played(url: str, attempt: str) -> tuple[tuple[Stage, str], ...]:
    """The steps of an attempt that hold episodes, as (stage, key), in the order of their keys."""
    query = (
        select(StepRow.stage, StepRow.key)
        .where(StepRow.attempt == attempt, StepRow.kind == EPISODES)
        .order_by(StepRow.stage, StepRow.key)
    )
    with reading(url) as session:
        return tuple((Stage(stage), key) for stage, key in session.exec(query))


def standpoints(url: str, blobs: Blobs, family: str, contract: str, judge: str) -> dict[str, Standpoint]:
    """The exam of each generation of a lineage under this contract and judge, by generation digest.

    A generation's own exam where it was under both, else its finished rescore; absent with
    neither. Of a generation without an attempt (imported) the judge is unknown and taken to be this one.
    """
    mine = (
        select(GenerationRow, AttemptRow)
        .outerjoin(AttemptRow, col(AttemptRow.digest) == col(GenerationRow.attempt))
        .where(GenerationRow.family == family)
    )
    again = (
        select(RescoreRow.generation, RescoreRow.noun)
        .join(NounRow, col(NounRow.digest) == col(RescoreRow.noun))
        .where(RescoreRow.contract == contract, RescoreRow.judge == judge, NounRow.kind == Rescore.__name__)
    )
    with reading(url) as session:
        rows = session.exec(mine.order_by(col(GenerationRow.id))).all()
        rescored = {generation: noun for generation, noun in session.exec(again)}
    found: dict[str, Standpoint] = {}
    for row, attempt in rows:
        exam = row.document.exam
        own = exam is not None and exam.contract == contract and (attempt is None or _judge(attempt) == judge)
        if exam is not None and own:
            found[row.digest] = Standpoint(generation=row.digest, exam=exam)
        elif row.digest in rescored:
            rescore = nouns.load(url, blobs, Rescore, rescored[row.digest])
            found[row.digest] = Standpoint(generation=row.digest, exam=rescore.exam, rescored=True)
    return found


def contract_names(url: str) -> dict[str, str]:
    """The version of each contract saved here, by digest; edited drafts of one name carry their digest's start."""
    with reading(url) as session:
        rows = session.exec(select(ContractRow.digest, ContractRow.version)).all()
    versions = [version for _, version in rows]
    return {
        digest: version if versions.count(version) == 1 else f"{version} {digest[:6]}"
        for digest, version in rows
        if version is not None
    }


def _judge(attempt: AttemptRow) -> str:
    return attempt.document.judge.digest
