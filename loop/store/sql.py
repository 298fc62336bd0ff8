"""The lineage in SQL, on SQLite or PostgreSQL: who descends from whom, and on what evidence."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeVar

from sqlalchemy.exc import IntegrityError
from sqlmodel import Session, col, func, select

from loop.core.budget import Budget
from loop.core.episode import Task
from loop.core.errors import UserError
from loop.core.evidence import EpisodeEvidence
from loop.core.figures import Figures
from loop.core.gate import Standing
from loop.core.generation import Generation
from loop.core.manifest import Surroundings
from loop.core.noun import Noun, digest_of
from loop.core.plan import Plan
from loop.core.rescore import Standpoint
from loop.core.results import TaskList
from loop.core.stage import Stage
from loop.core.training_set import Row
from loop.ports import Attempt, Blobs, Trained
from loop.store import episodes, lease, migrate, nouns, queries, rescores, taught
from loop.store.attempt import SqlAttempt
from loop.store.changes import differences
from loop.store.database import now, reading, who, writing
from loop.store.imports import refuse_quarantined
from loop.store.living import SqlLiving
from loop.store.registry import CHAMPION, point, register
from loop.store.tables import (
    AttemptRow,
    AttemptState,
    GenerationRow,
    HoldoutOpeningRow,
    NoiseFloorRow,
    NounRow,
    StepRow,
)
from loop.store.views import (
    AdapterView,
    AttemptView,
    NoiseFloor,
    OpeningView,
    PolicyMoveView,
    StatusView,
    WhyView,
)
from loop.store.why import why

NounT = TypeVar("NounT", bound=Noun)

SHORTEST_PREFIX = 6
_RACES = 3


@dataclass(frozen=True)
class SqlStore:
    """The lineage at a database URL, with the blobs beside it; it pickles, and forks safely.

    Opening one brings the schema to head (see ``migrate.upgrade``). Raises UserError for a
    URL that cannot be opened and for a schema of a newer version.
    """

    url: str
    blobs: Blobs

    def __post_init__(self) -> None:
        """Bring the schema to head."""
        migrate.upgrade(self.url)

    def lease(self, family: str, holder: str) -> AbstractContextManager[None]:
        """Be the only writer of a lineage while the context is open; raises StoreConflict."""
        return lease.hold(self.url, family, holder)

    def generations(self, family: str) -> tuple[Generation, ...]:
        """Every generation of a lineage in the order of registration, rejected ones too."""
        query = select(GenerationRow).where(GenerationRow.family == family).order_by(col(GenerationRow.id))
        with reading(self.url) as session:
            return tuple(row.document for row in session.exec(query))

    def generation(self, family: str, number: int) -> Generation:
        """The promoted (or root) generation of that number; UserError naming those that exist."""
        promoted = [g for g in self.generations(family) if g.decision.standing is not Standing.REJECTED]
        for generation in promoted:
            if generation.number == number:
                return generation
        numbers = ", ".join(str(g.number) for g in promoted)
        known = f"it has {numbers}" if promoted else f"it has none yet (families: {', '.join(self.families()) or '-'})"
        raise UserError(f"lineage {family} has no promoted generation {number}: {known}; choose one of those")

    def champion(self, family: str) -> Generation | None:
        """What the ``champion`` records point at, None on an empty lineage; UserError when owners' differ."""
        records = [policy for policy in queries.policies(self.url, family) if policy.name == CHAMPION]
        if len({policy.generation for policy in records}) > 1:
            listed = ", ".join(f"{policy.owner}: generation {policy.number}" for policy in records)
            raise UserError(f"lineage {family} has several champions ({listed}): choose one with `rollback`")
        return self.by_digest(records[0].generation) if records else None

    def by_digest(self, digest: str) -> Generation:
        """A generation by full digest or unique prefix of at least 6 digits; UserError."""
        prefix = digest.strip().lower()
        if len(prefix) < SHORTEST_PREFIX or not set(prefix) <= set("0123456789abcdef"):
            raise UserError(f"{digest!r} is no digest: expected at least {SHORTEST_PREFIX} hexadecimal digits")
        query = (
            select(GenerationRow).where(col(GenerationRow.digest).startswith(prefix)).order_by(col(GenerationRow.id))
        )
        with reading(self.url) as session:
            rows = session.exec(query).all()
            if len(rows) == 1:
                return rows[0].document
            known = session.exec(select(GenerationRow.digest).order_by(col(GenerationRow.id).desc()).limit(5)).all()
        if rows:
            raise UserError(f"{digest} fits {len(rows)} generations: give more digits of one of {_short(rows)}")
        newest = ", ".join(row[:12] for row in known) or "none"
        raise UserError(f"no generation has the digest {digest}; the newest are {newest}")

    def begin(self, family: str, parent: Generation, plan: Plan, *, fresh: bool = False) -> Attempt:
        """The open attempt of this parent and plan, or a new one; ``fresh`` starts another trial.

        Raises UserError when an unfinished attempt of the same parent has another plan.
        """
        for race in range(_RACES):
            try:
                with writing(self.url) as session:
                    lease.fence(session, self.url, family)
                    refuse_quarantined(session, parent.pair)
                    row = self._begin(session, family, parent, plan, fresh)
                    return SqlAttempt(self.url, self.blobs, family, row.digest, row.trial)
            except IntegrityError:
                # Another process began at the same moment: look again at what it began.
                if race == _RACES - 1:
                    raise
        raise AssertionError("unreachable")

    def result(self, family: str, parent: Generation, plan: Plan) -> Generation | None:
        """What the newest finished attempt of this parent and plan registered, or None.

        None as well while a newer trial is open: that one is to be resumed.
        """
        query = (
            select(AttemptRow)
            .where(AttemptRow.parent == parent.digest, AttemptRow.plan == plan.digest)
            .where(AttemptRow.state != AttemptState.REPLACED.value)
            .order_by(col(AttemptRow.trial).desc())
        )
        with reading(self.url) as session:
            newest = session.exec(query).first()
        if newest is None or newest.generation is None:
            return None
        return self.by_digest(newest.generation)

    def register(self, generation: Generation, attempt: Attempt | None) -> None:
        """Insert a generation and all it is made of, finish the attempt and, when it stands,
        move its owners' ``champion`` records: one transaction.

        An equal generation again does nothing. Raises StoreConflict when another generation
        of that number is promoted already, UserError when the parent is unknown.
        """
        register(self.url, generation, None if attempt is None else attempt.digest)

    def open_holdout(self, attempt: Attempt, generation: str, why: str) -> None:
        """Record that the sealed bank was opened: who, when, which generation, why."""
        with writing(self.url) as session:
            owner = session.get(AttemptRow, attempt.digest)
            if owner is None:
                raise UserError(f"attempt {attempt.digest[:12]} is unknown: the sealed bank stays closed")
            lease.fence(session, self.url, owner.family)
            row = session.get(HoldoutOpeningRow, (attempt.digest, generation, why))
            if row is None:
                row = HoldoutOpeningRow(
                    attempt=attempt.digest,
                    generation=generation,
                    why=why,
                    family=owner.family,
                    who=who(),
                    at=now(),
                    times=0,
                    last="",
                )
            row.times += 1
            row.last = now()
            session.add(row)

    def replay(self, family: str, ancestors: Sequence[str], label: str) -> tuple[Row, ...]:
        """The training rows of these generations' attempts for one label, in order.

        A row that a descendant replayed itself is given once, where it came up first; one of a
        forgotten case is not given.
        """
        return taught.replay(self.url, self.blobs, family, ancestors, label)

    def forgotten(self) -> frozenset[str]:
        """The cases of living experience that may not be learned from any more."""
        return SqlLiving(self.url).forgotten()

    def load(self, kind: type[NounT], digest: str) -> NounT:
        """Any stored noun by its digest; raises TornBlob."""
        return nouns.load(self.url, self.blobs, kind, digest)

    def save(self, noun: Noun) -> str:
        """Store a noun as a blob (Parquet for shards and training sets) under its digest."""
        return nouns.save(self.url, self.blobs, noun)

    def status(self, family: str) -> StatusView:
        """A lineage at a glance: generations, policy records, lease, open attempt with its stages."""
        return queries.status(self.url, family)

    def attempts(self, family: str) -> tuple[AttemptView, ...]:
        """Every attempt of a lineage in the order they began."""
        return queries.attempts(self.url, family)

    def plan_steps(self, family: str, number: int, plan: Plan) -> dict[str, int]:
        """Steps already recorded, by stage, for growing from that generation under this plan."""
        for generation in self.generations(family):
            if generation.number == number and generation.decision.standing is not Standing.REJECTED:
                return queries.plan_steps(self.url, generation.digest, plan.digest)
        return {}

    def adapters(self, family: str) -> tuple[AdapterView, ...]:
        """The adapter revisions of a lineage with the generations that use each."""
        return queries.adapters(self.url, family)

    def policy_history(self, family: str) -> tuple[PolicyMoveView, ...]:
        """Every move of every policy record of a lineage, oldest first."""
        return queries.policy_history(self.url, family)

    def openings(self, family: str) -> tuple[OpeningView, ...]:
        """The ledger of holdout openings, oldest first."""
        return queries.openings(self.url, family)

    def why(self, generation: Generation) -> WhyView:
        """The chain score -> adapters -> training rows -> episodes -> verdicts."""
        return why(self.url, generation)

    def evidence(self, generation: Generation) -> tuple[tuple[Trained, ...], dict[Stage, Budget]]:
        """The trainings that made a generation and what each stage spent: what MLflow is rebuilt from."""
        with reading(self.url) as session:
            row = session.exec(select(GenerationRow).where(GenerationRow.digest == generation.digest)).one()
            if row.attempt is None:
                return (), {}
            made = session.get_one(AttemptRow, row.attempt)
            attempt = SqlAttempt(self.url, self.blobs, made.family, made.digest, made.trial)
            steps = select(StepRow.key).where(StepRow.attempt == made.digest, StepRow.stage == Stage.TRAIN.value)
            keys = session.exec(steps.order_by(StepRow.key)).all()
        found = (attempt.find(Stage.TRAIN, Trained, key) for key in keys)
        return tuple(trained for trained in found if trained is not None), attempt.budget()

    def episode(self, digest: str) -> EpisodeEvidence:
        """One episode by digest or unique prefix, with its scores; UserError, TornBlob."""
        return episodes.evidence(self.url, self.blobs, digest)

    def figures(self) -> tuple[Figures, ...]:
        """Imported figures of other systems: of each source the newest import."""
        with reading(self.url) as session:
            digests = session.exec(select(NounRow.digest).where(NounRow.kind == Figures.__name__)).all()
        found = sorted((self.load(Figures, digest) for digest in digests), key=lambda each: each.imported)
        return tuple({each.name: each for each in found}.values())

    def made_by(self, generation: Generation) -> tuple[Attempt, Plan]:
        """The attempt that registered a generation, with its plan; UserError for a root."""
        return rescores.made_by(self.url, self.blobs, generation)

    def tasks_met(self, generation: Generation) -> tuple[Task, ...]:
        """The train tasks met to make a generation; empty for a root."""
        if generation.parent is None:
            return ()
        found = self.made_by(generation)[0].find(Stage.DISCOVER, TaskList)
        return found.tasks if found is not None else ()

    def played(self, attempt: Attempt) -> tuple[tuple[Stage, str], ...]:
        """The steps of an attempt that hold episodes, as (stage, key), in order."""
        return rescores.played(self.url, attempt.digest)

    def rescoring(self, generation: Generation, contract: str, judge: str) -> rescores.SqlRescoring:
        """What is recorded of scoring a generation again under a contract and judge (digests)."""
        return rescores.SqlRescoring(self.url, self.blobs, generation.family, generation.digest, contract, judge)

    def standpoints(self, family: str, contract: str, judge: str) -> dict[str, Standpoint]:
        """Each generation's exam under this contract and judge: its own or a rescore's; see rescores."""
        return rescores.standpoints(self.url, self.blobs, family, contract, judge)

    def contract_names(self) -> dict[str, str]:
        """The version of each contract saved here, by digest."""
        return rescores.contract_names(self.url)

    def origin(self, generation: Generation) -> tuple[Attempt, Plan, tuple[str, ...], tuple[Surroundings, ...]] | None:
        """The attempt that made a generation, its plan, the keys of its exam's steps, and where they were played.

        None for a root.
        """
        with reading(self.url) as session:
            row = session.exec(select(GenerationRow).where(GenerationRow.digest == generation.digest)).one()
            if row.attempt is None:
                return None
            made = session.get_one(AttemptRow, row.attempt)
            keys, places = queries.exam_steps(session, made.digest)
        attempt = SqlAttempt(self.url, self.blobs, made.family, made.digest, made.trial)
        return attempt, made.document, keys, tuple(self.load(Surroundings, digest) for digest in places)

    def table_counts(self) -> dict[str, int]:
        """Rows of every table, by table name."""
        return queries.table_counts(self.url)

    def point(self, family: str, owner: str, name: str, generation: Generation, reason: str) -> None:
        """Move a policy record by hand; raises UserError for a generation of another lineage."""
        point(self.url, family, owner, name, generation.digest, reason)

    def save_noise_floor(self, floor: NoiseFloor) -> None:
        """Keep a measured noise floor; a newer one of the same contract, engine and base replaces it."""
        with writing(self.url) as session:
            session.merge(
                NoiseFloorRow(
                    contract=floor.contract,
                    engine=floor.engine,
                    base=floor.base,
                    value=floor.value,
                    cases=floor.cases,
                    at=now(),
                )
            )

    def noise_floors(self) -> tuple[NoiseFloor, ...]:
        """Every measured noise floor."""
        return queries.noise_floors(self.url)

    def families(self) -> list[str]:
        """The names of all lineages, sorted."""
        with reading(self.url) as session:
            return sorted(session.exec(select(GenerationRow.family).distinct()).all())

    def _begin(self, session: Session, family: str, parent: Generation, plan: Plan, fresh: bool) -> AttemptRow:
        of_parent = select(AttemptRow).where(AttemptRow.parent == parent.digest)
        standing = session.exec(
            of_parent.where(AttemptRow.state == AttemptState.OPEN.value).with_for_update()
        ).one_or_none()
        if standing is not None and not fresh:
            if standing.plan == plan.digest:
                return standing
            raise _changed_plan(parent, standing.document, plan)
        if standing is not None:
            standing.state, standing.finished = AttemptState.REPLACED.value, now()
            session.add(standing)
            session.flush()
        last = session.exec(
            select(func.max(AttemptRow.trial)).where(AttemptRow.parent == parent.digest, AttemptRow.plan == plan.digest)
        ).one()
        trial = 0 if last is None else last + 1
        row = AttemptRow(
            digest=digest_of(["attempt", parent.digest, plan.digest, trial]),
            family=family,
            parent=parent.digest,
            plan=plan.digest,
            trial=trial,
            state=AttemptState.OPEN.value,
            generation=None,
            started=now(),
            finished=None,
            document=plan,
        )
        session.add(row)
        session.flush()
        return row


def _changed_plan(parent: Generation, recorded: Plan, plan: Plan) -> UserError:
    return UserError(
        f"generation {parent.number} ({parent.short}) has an unfinished attempt under other settings "
        f"({differences(recorded, plan)}): restore them to resume it, or run with --fresh to start anew"
    )


def _short(rows: Sequence[GenerationRow]) -> str:
    return ", ".join(row.digest[:16] for row in rows)
