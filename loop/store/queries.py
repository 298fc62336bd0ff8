"""Reading the lineage for people: every answer is one of the nouns in ``views``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime

from sqlmodel import Session, col, func, select

from loop.core.budget import Budget
from loop.core.gate import Standing
from loop.core.manifest import Surroundings
from loop.core.stage import Stage
from loop.store import lease
from loop.store.database import reading
from loop.store.schema import METADATA
from loop.store.tables import (
    AdapterRow,
    AttemptRow,
    AttemptState,
    BudgetRow,
    GenerationAdapterRow,
    GenerationRow,
    HoldoutOpeningRow,
    NoiseFloorRow,
    PolicyMoveRow,
    PolicyRow,
    StepRow,
)
from loop.store.views import (
    AdapterView,
    AttemptView,
    LeaseView,
    NoiseFloor,
    OpeningView,
    PolicyMoveView,
    PolicyView,
    StageView,
    StatusView,
)


def status(url: str, family: str) -> StatusView:
    """A lineage at a glance, with its lease and its open attempt if there are any."""
    with reading(url) as session:
        standings = session.exec(select(GenerationRow.standing).where(GenerationRow.family == family)).all()
        rejected = sum(standing == Standing.REJECTED for standing in standings)
        open_attempt = session.exec(
            select(AttemptRow)
            .where(AttemptRow.family == family, AttemptRow.state == AttemptState.OPEN.value)
            .order_by(col(AttemptRow.started).desc())
        ).first()
        return StatusView(
            family=family,
            promoted=len(standings) - rejected,
            rejected=rejected,
            policies=_policies(session, family),
            lease=_lease(session, family),
            attempt=None if open_attempt is None else attempt_view(session, open_attempt),
        )


def attempts(url: str, family: str) -> tuple[AttemptView, ...]:
    """Every attempt of a lineage in the order they began."""
    query = select(AttemptRow).where(AttemptRow.family == family).order_by(AttemptRow.started, AttemptRow.digest)
    with reading(url) as session:
        return tuple(attempt_view(session, row) for row in session.exec(query).all())


def plan_steps(url: str, parent: str, plan: str) -> dict[str, int]:
    """Recorded steps by stage of the newest attempt of this parent and plan (digests); empty without one."""
    query = (
        select(AttemptRow)
        .where(AttemptRow.parent == parent, AttemptRow.plan == plan)
        .where(AttemptRow.state != AttemptState.REPLACED.value)
        .order_by(col(AttemptRow.trial).desc())
    )
    with reading(url) as session:
        row = session.exec(query).first()
        if row is None:
            return {}
        return {stage.stage: stage.steps for stage in attempt_view(session, row).stages if stage.steps}


def adapters(url: str, family: str) -> tuple[AdapterView, ...]:
    """The adapter revisions of a lineage, oldest first, with the generations that use each."""
    query = (
        select(AdapterRow, GenerationRow)
        .join(GenerationAdapterRow, col(GenerationAdapterRow.adapter) == col(AdapterRow.digest))
        .join(GenerationRow, col(GenerationRow.digest) == col(GenerationAdapterRow.generation))
        .where(GenerationRow.family == family)
        .order_by(col(GenerationRow.id), col(AdapterRow.label))
    )
    rows: dict[str, AdapterRow] = {}
    used: dict[str, list[GenerationRow]] = defaultdict(list)
    with reading(url) as session:
        for adapter, generation in session.exec(query):
            rows[adapter.digest] = adapter
            used[adapter.digest].append(generation)
    return tuple(
        AdapterView(
            adapter=row.document,
            at=row.at,
            numbers=tuple(generation.number for generation in used[digest]),
            generations=tuple(generation.digest for generation in used[digest]),
        )
        for digest, row in rows.items()
    )


def policies(url: str, family: str) -> tuple[PolicyView, ...]:
    """The policy records of a lineage by owner and name."""
    with reading(url) as session:
        return _policies(session, family)


def policy_history(url: str, family: str) -> tuple[PolicyMoveView, ...]:
    """Every move of every policy record of a lineage, oldest first."""
    query = (
        select(PolicyMoveRow, GenerationRow.number)
        .join(GenerationRow, col(GenerationRow.digest) == col(PolicyMoveRow.generation))
        .where(PolicyMoveRow.family == family)
        .order_by(col(PolicyMoveRow.id))
    )
    with reading(url) as session:
        return tuple(
            PolicyMoveView(
                owner=row.owner,
                name=row.name,
                generation=row.generation,
                number=number,
                previous=row.previous,
                why=row.why,
                at=row.at,
            )
            for row, number in session.exec(query)
        )


def openings(url: str, family: str, attempt: str | None = None) -> tuple[OpeningView, ...]:
    """The ledger of holdout openings of a lineage (or of one attempt), oldest first."""
    query = select(HoldoutOpeningRow).where(HoldoutOpeningRow.family == family)
    if attempt is not None:
        query = query.where(HoldoutOpeningRow.attempt == attempt)
    query = query.order_by(HoldoutOpeningRow.at, HoldoutOpeningRow.attempt, HoldoutOpeningRow.why)
    with reading(url) as session:
        return tuple(
            OpeningView(
                attempt=row.attempt,
                generation=row.generation,
                why=row.why,
                who=row.who,
                at=row.at,
                times=row.times,
            )
            for row in session.exec(query)
        )


def noise_floors(url: str) -> tuple[NoiseFloor, ...]:
    """Every measured noise floor, by contract, engine and base."""
    query = select(NoiseFloorRow).order_by(NoiseFloorRow.contract, NoiseFloorRow.engine, NoiseFloorRow.base)
    with reading(url) as session:
        return tuple(
            NoiseFloor(contract=row.contract, engine=row.engine, base=row.base, value=row.value, cases=row.cases)
            for row in session.exec(query)
        )


def exam_steps(session: Session, attempt: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The keys of an attempt's examine steps, and the digests of the surroundings its exam was played in.

    A shard that was taken from an equal job was played by the attempt that recorded it first.
    """
    mine = (StepRow.attempt == attempt, StepRow.stage == Stage.EXAMINE.value)
    keys = session.exec(select(StepRow.key).where(*mine).order_by(StepRow.key)).all()
    jobs = select(StepRow.job).where(*mine, col(StepRow.key).startswith("exam/"), col(StepRow.job).is_not(None))
    query = select(StepRow.job, StepRow.attempt).where(col(StepRow.job).in_(jobs))
    first: dict[str | None, str] = {}
    for job, player in session.exec(query.order_by(StepRow.at, StepRow.attempt)):
        first.setdefault(job, player)
    places = session.exec(
        select(StepRow.noun)
        .where(col(StepRow.attempt).in_(set(first.values()) or {attempt}))
        .where(StepRow.kind == Surroundings.__name__)
        .distinct()
        .order_by(StepRow.noun)
    ).all()
    return tuple(keys), tuple(places)


def table_counts(url: str) -> dict[str, int]:
    """Rows of every table, by table name."""
    with reading(url) as session:
        return {
            table.name: int(session.connection().execute(select(func.count()).select_from(table)).scalar_one())
            for table in sorted(METADATA.tables.values(), key=lambda table: table.name)
        }


def attempt_view(session: Session, row: AttemptRow) -> AttemptView:
    """An attempt with its stages in the order they run."""
    steps = session.exec(select(StepRow).where(StepRow.attempt == row.digest)).all()
    budgets = session.exec(
        select(BudgetRow).where(BudgetRow.attempt == row.digest).order_by(BudgetRow.stage, BudgetRow.key)
    ).all()
    number = session.exec(select(GenerationRow.number).where(GenerationRow.digest == row.parent)).one_or_none()
    stages = (_stage(stage, steps, budgets) for stage in Stage)
    return AttemptView(
        attempt=row.digest,
        parent=row.parent,
        parent_number=number,
        plan=row.plan,
        trial=row.trial,
        state=row.state,
        generation=row.generation,
        started=row.started,
        finished=row.finished,
        stages=tuple(stage for stage in stages if stage.steps or stage.budget != Budget()),
    )


def _stage(stage: Stage, steps: Sequence[StepRow], budgets: Sequence[BudgetRow]) -> StageView:
    mine = [step for step in steps if step.stage == stage.value]
    spent = Budget()
    for row in budgets:
        if row.stage == stage.value:
            spent = spent.plus(row.document)
    return StageView(stage=stage.value, steps=len(mine), last=max((step.at for step in mine), default=""), budget=spent)


def _policies(session: Session, family: str) -> tuple[PolicyView, ...]:
    query = (
        select(PolicyRow, GenerationRow.number)
        .join(GenerationRow, col(GenerationRow.digest) == col(PolicyRow.generation))
        .where(PolicyRow.family == family)
        .order_by(PolicyRow.owner, PolicyRow.name)
    )
    return tuple(
        PolicyView(owner=row.owner, name=row.name, generation=row.generation, number=number, at=row.at)
        for row, number in session.exec(query)
    )


def _lease(session: Session, family: str) -> LeaseView | None:
    row = lease.holder_of(session, family)
    if row is None:
        return None
    since = datetime.fromtimestamp(row.since, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    age = max(0.0, lease.clock(session) - row.heartbeat)
    return LeaseView(holder=row.holder, host=row.host, pid=row.pid, since=since, beat_seconds=round(age, 1))
