"""One try at growing a generation, step by step: what is recorded is never done again."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlmodel import Session, select

from loop.core.budget import Budget
from loop.core.errors import LoopError, StoreConflict, TornBlob
from loop.core.noun import Noun
from loop.core.stage import Stage
from loop.ports import Blobs
from loop.store import lease, nouns
from loop.store.database import now, reading, writing
from loop.store.index import index
from loop.store.parquet import encode
from loop.store.tables import AttemptRow, AttemptState, BudgetRow, StepRow

NounT = TypeVar("NounT", bound=Noun)


@dataclass(frozen=True)
class SqlAttempt:
    """An attempt of a SqlStore; ``digest`` covers the parent, the plan and the trial."""

    url: str
    blobs: Blobs
    family: str
    digest: str
    trial: int

    def find(self, stage: Stage, kind: type[NounT], key: str = "") -> NounT | None:
        """The recorded result of a step, read back and checked, or None.

        Raises TornBlob when its bytes are gone or changed, TypeError when the step was
        recorded as another kind.
        """
        with reading(self.url) as session:
            row = session.get(StepRow, (self.digest, stage.value, key))
        if row is None:
            return None
        if row.kind != kind.__name__:
            raise TypeError(f"step {stage.value}/{key} holds a {row.kind}, not a {kind.__name__}")
        return nouns.load(self.url, self.blobs, kind, row.noun)

    def elsewhere(self, job: str, kind: type[NounT]) -> tuple[NounT, Budget] | None:
        """What another attempt recorded for an equal job, with its cost; None also where its bytes are torn."""
        query = (
            select(StepRow)
            .where(StepRow.job == job, StepRow.kind == kind.__name__, StepRow.attempt != self.digest)
            .order_by(StepRow.at, StepRow.attempt)
        )
        with reading(self.url) as session:
            step = session.exec(query).first()
            if step is None:
                return None
            spent = session.get(BudgetRow, (step.attempt, step.stage, step.key))
        with suppress(TornBlob):
            return nouns.load(self.url, self.blobs, kind, step.noun), spent.document if spent else Budget()
        return None

    def record(self, stage: Stage, result: Noun, budget: Budget, key: str = "", job: str = "") -> None:
        """Record a step: blob durably first, then all its rows in one transaction.

        Equal content again does nothing; other content raises StoreConflict, and so does
        an attempt that a fresh one has replaced, or a lost lease.
        """
        if self._is_recorded(stage, result, key):
            return
        blob = self.blobs.put(encode(result))
        try:
            with writing(self.url) as session:
                self._insert(session, stage, result, budget, key, blob, job)
        except IntegrityError:
            # Another process recorded the step in between: equal content is no conflict.
            if not self._is_recorded(stage, result, key):
                raise

    def once(self, stage: Stage, kind: type[NounT], call: Callable[[], NounT], key: str = "") -> NounT:
        """The recorded result, or the result of ``call`` recorded now with its wall time.

        What the result says of its own cost (a ``budget`` field) is added. When ``call``
        raises, its seconds are still counted.
        """
        found = self.find(stage, kind, key)
        if found is not None:
            return found
        started = time.monotonic()
        finished = False
        try:
            result = call()
            finished = True
        finally:
            wall = Budget(wall_seconds=time.monotonic() - started)
            if not finished:
                # The error of the call is what matters; a cost that cannot be written is lost.
                with suppress(LoopError, SQLAlchemyError), writing(self.url) as session:
                    self._spend(session, stage, key, wall)
        if not isinstance(result, kind):
            raise TypeError(f"step {stage.value}/{key} gave a {type(result).__name__}, expected a {kind.__name__}")
        self.record(stage, result, wall.plus(own_cost(result)), key)
        return result

    def budget(self) -> dict[Stage, Budget]:
        """What each stage has spent so far, over every resume, in the order of the stages."""
        with reading(self.url) as session:
            rows = session.exec(
                select(BudgetRow).where(BudgetRow.attempt == self.digest).order_by(BudgetRow.stage, BudgetRow.key)
            ).all()
        spent: dict[Stage, Budget] = {}
        for stage in Stage:
            for row in rows:
                if row.stage == stage.value:
                    spent[stage] = spent.get(stage, Budget()).plus(row.document)
        return spent

    def _is_recorded(self, stage: Stage, result: Noun, key: str) -> bool:
        with reading(self.url) as session:
            row = session.get(StepRow, (self.digest, stage.value, key))
        if row is not None and row.noun != result.digest:
            raise StoreConflict(
                f"step {stage.value}/{key} of attempt {self.digest[:12]} is recorded as {row.noun[:12]} and would "
                f"now be {result.short}: something it depends on is not deterministic; run with --fresh"
            )
        return row is not None

    def _insert(
        self, session: Session, stage: Stage, result: Noun, budget: Budget, key: str, blob: str, job: str
    ) -> None:
        lease.fence(session, self.url, self.family)
        attempt = session.get(AttemptRow, self.digest)
        if attempt is None or attempt.state == AttemptState.REPLACED:
            raise StoreConflict(f"attempt {self.digest[:12]} was replaced by a fresh one: run again to resume that one")
        nouns.add_noun(session, result, blob)
        step = StepRow(
            attempt=self.digest,
            stage=stage.value,
            key=key,
            kind=type(result).__name__,
            noun=result.digest,
            at=now(),
            job=job or None,
        )
        session.add(step)
        session.flush()
        index(session, step, result, blob)
        self._spend(session, stage, key, budget)

    def _spend(self, session: Session, stage: Stage, key: str, budget: Budget) -> None:
        row = session.get(BudgetRow, (self.digest, stage.value, key))
        if row is None:
            session.add(BudgetRow(attempt=self.digest, stage=stage.value, key=key, document=budget))
        else:
            row.document = row.document.plus(budget)
            session.add(row)


def own_cost(result: Noun) -> Budget:
    """The cost a result states in its ``budget`` field, without wall time: the caller measured that."""
    stated = getattr(result, "budget", None)
    return stated.revise(wall_seconds=0.0) if isinstance(stated, Budget) else Budget()
