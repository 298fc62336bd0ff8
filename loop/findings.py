"""What an experiment's arms came to, and what an exam can see, read from the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loop.core.errors import UserError
from loop.core.experiment import Arm, Findings, arm_of, experiment_of, family_of
from loop.core.experiment_record import ExperimentRecord, LineageRecord
from loop.core.generation import Generation
from loop.core.plan import Plan
from loop.core.score import Scorecard
from loop.settings import Settings

if TYPE_CHECKING:
    from loop.gains.power import Detectable
    from loop.store.sql import SqlStore


def read_findings(store: SqlStore, name: str, *, strict: bool = False) -> Findings | None:
    """What the arms of an experiment came to so far; None before any is examined.

    ``name`` may be that of one of its lineages. Arms that do not compare (other contracts,
    other cases) give None too, or with ``strict`` a UserError that says why.
    """
    record = read_record(store, name)
    return None if record is None else record_findings(record, strict=strict)


def read_record(store: SqlStore, name: str) -> ExperimentRecord | None:
    """What the findings of an experiment are computed from, as this store holds it; None before any arm has begun."""
    from loop.gains.records import record_of

    name = experiment_of(name)
    lineages: dict[Arm, dict[int, tuple[Generation, ...]]] = {}
    for family in store.families():
        found = arm_of(name, family)
        if found is not None:
            arm, seed = found
            lineages.setdefault(arm, {})[seed] = store.generations(family)
    if not lineages:
        return None
    record = record_of(name, lineages, lambda digest: store.load(Scorecard, digest), store.contract_names())
    return record.revise(
        lineages=tuple(_planned(store, line, lineages[line.arm][line.seed]) for line in record.lineages)
    )


def _planned(store: SqlStore, line: LineageRecord, lineage: tuple[Generation, ...]) -> LineageRecord:
    """The lineage with the plan of its first successor, and the packages that its newest exam was played with."""
    from loop.pipeline.arms import own_plan, shared_plan

    first, newest = (store.origin(generation) for generation in (lineage[1], lineage[-1]))
    if first is None or newest is None:
        return line
    plan, places = first[1], newest[3]
    packages = places[-1].packages if places else {}
    return line.revise(shared=shared_plan(plan).digest, plan=own_plan(plan).digest, packages=packages)


def record_findings(record: ExperimentRecord, *, strict: bool = False) -> Findings | None:
    """What the arms of a record came to, as ``read_findings`` says it."""
    if not record.lineages:
        return None  # before the statistics are imported: they take longer than all the rest of a finished run
    from loop.gains.findings import findings

    try:
        return findings(record)
    except ValueError as error:
        if not strict:
            return None
        raise UserError(
            f"the arms of experiment {record.name} do not compare: {error}; grow them under one contract and one exam"
        ) from error


def sight(settings: Settings, store: SqlStore, plan: Plan) -> Detectable | None:
    """The smallest gain that the plan's exam would find, from the gains of this lineage and of its arms."""
    from loop.gains.power import detectable
    from loop.gains.sequential import share

    mine = store.generations(settings.family)
    arms = (arm_of(settings.family, family) for family in store.families())
    alike = [found for found in arms if found is not None and found[0] not in (Arm.NULL, Arm.BEST_OF_K)]
    others = [g for arm, seed in alike for g in store.generations(family_of(settings.family, arm, seed))]
    exams = [g.exam for g in (*mine, *others) if g.exam is not None and g.exam.contract == plan.contract]
    gains = [exam.gain for exam in exams if exam.gain is not None]
    cases = sum(plan.examine.tasks.get(environment.use, 0) for environment in plan.environments)
    look = 1 + sum(generation.exam is not None for generation in mine)
    return detectable(gains, cases, share(plan.gate.alpha, look))
