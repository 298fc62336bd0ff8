"""Compose: an imported adapter in the champion's pair, the whole examined beside its parts, and the gate's word."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from loop.core.episode import EpisodeShard, Task
from loop.core.errors import UserError
from loop.core.gate import Interval
from loop.core.generation import Exam, Generation
from loop.core.hop import Hop
from loop.core.imported import Composition, Imported
from loop.core.pair import Adapter, Pair
from loop.core.plan import Plan
from loop.core.results import TaskList
from loop.core.score import Scorecard
from loop.core.stage import Stage
from loop.gains.exam import known
from loop.gains.intervals import Difference, paired, single
from loop.gains.routing import router_regret
from loop.pipeline.cards import by_environment, only, side_by_side
from loop.pipeline.examine import attest, examine
from loop.pipeline.experience import split_tasks
from loop.pipeline.generation import decide, refuse_a_second_successor, register
from loop.pipeline.parts import Loop, Run
from loop.pipeline.placed import Placed, routed
from loop.pipeline.routing import picked
from loop.ports import Environment

ALL = "all"
COMPOSED, BEFORE, BASE, STRONGEST = "composed", "before", "base", "strongest"


def composition_plan(plan: Plan, imported: Imported) -> Plan:
    """The settings' plan with nothing trained: the exam alone, of the parent with the adapter in place."""
    exam = plan.examine.revise(interference=0, diversity_tasks=0, samples=1, temperature=0.0)
    return plan.revise(arm="composed", weights=False, imported=imported.adapter.digest, examine=exam)


def compose(loop: Loop, parent: Generation, plan: Plan, imported: Imported, *, forced: bool = False) -> Generation:
    """Examine the composed system and register it, promoted or not, each line a recorded step as in ``run_generation``.

    Everybody's turns are routed, before and after. Raises UserError for a pair that cannot be made.
    """
    finished = loop.store.result(loop.family, parent, plan)
    if finished is not None:
        return finished
    refuse_a_second_successor(loop, parent)
    child = composed(parent.pair, imported)
    loop.store.save(loop.contract)
    everybody = replace(loop, environments=routed(loop.environments, imported.adapter.label))
    run = Run(everybody, parent, plan, loop.store.begin(loop.family, parent, plan))
    attested = attest(run, child)
    exam = examine(run, child)
    run.attempt.once(Stage.EXAMINE, Composition, lambda: _composition(run, loop, imported, child, exam), "composition")
    decision = decide(run, exam, attested, forced)
    return register(run, child, exam, decision, parent.experience, {})


def composed(pair: Pair, imported: Imported) -> Pair:
    """The pair with the adapter under its label, which is new to the harness or taken over; UserError."""
    adapter, terms = imported.adapter, imported.terms
    harness, label = pair.harness, adapter.label
    known = {prompt.label: prompt for prompt in harness.prompts}
    prompt = terms.prompt or known.get(label)
    if prompt is None:
        raise UserError(
            f"the registry has no label {label} ({', '.join(known)}): import the adapter again with --prompt FILE, "
            "or under the label whose place it takes"
        )
    routing = harness.routing
    labels = routing.labels if label in routing.labels else (*routing.labels, label)
    lines = routing.descriptions | ({label: terms.description} if terms.description else {})
    changed = harness.revise(
        prompts=tuple((known | {label: prompt}).values()),
        routing=routing.revise(labels=labels, descriptions=lines),
    )
    others = tuple(other for other in pair.adapters if other.label != label)
    place = next((n for n, other in enumerate(pair.adapters) if other.label == label), len(others))
    return pair.revise(
        adapters=(*others[:place], adapter, *others[place:]),
        harness=harness if changed == harness else changed.revise(parent=harness.digest),
    )


def _at_home(environment: Environment, imported: Imported) -> Environment:
    """The environment answered by its own specialist, or by the imported one where it was trained for it."""
    theirs = environment.name in imported.terms.environments
    return Placed(inner=environment, label=imported.adapter.label if theirs else environment.label)


def _composition(run: Run, loop: Loop, imported: Imported, child: Pair, exam: Exam) -> Composition:
    """Play the parts alone on the exam's own tasks, each environment's specialist answering, and compare."""
    home = tuple(_at_home(environment, imported) for environment in loop.environments)
    alone = replace(run, loop=replace(loop, environments=home))
    tasks = run.attempt.find(Stage.EXAMINE, TaskList, "tasks") or TaskList(tasks=())
    parts = {BASE: child.revise(adapters=())} | {a.label: only(child, a.label) for a in trained(child)}
    cards = side_by_side(alone, split_tasks(tasks.tasks, run.plan.examine.shard_tasks), parts, "alone")
    base = cards.pop(BASE)
    whole = run.loop.store.load(Scorecard, exam.scorecard)
    before = run.loop.store.load(Scorecard, exam.parent_scorecard or exam.scorecard)
    best = {name: max(cards, key=lambda label: cards[label].mean(name) or 0.0) for name in whole.environments()}
    best[ALL] = max(cards, key=lambda label: cards[label].mean() or 0.0)
    strongest = picked(cards, {row.task.digest: best[row.task.environment] for row in whole.scores})
    over = {name: _spread(run.plan, paired(card, whole)) for name, card in ((BASE, base), (BEFORE, before))}
    # Over all it is held against the one adapter that is best over all, in each environment against the best there.
    over[STRONGEST] = _spread(run.plan, paired(strongest, whole)) | known(
        run.plan, {ALL: paired(cards[best[ALL]], whole)}
    )
    own = {environment.name: environment.label for environment in home}
    fresh = {label: base for label in own.values() if label not in cards}
    right = picked(cards | fresh, {row.task.digest: own[row.task.environment] for row in whole.scores})
    rows = {COMPOSED: whole, BEFORE: before, BASE: base} | cards
    return Composition(
        adapter=imported.adapter.digest,
        pair=child.digest,
        contract=run.loop.contract.digest,
        scores={name: _spread(run.plan, single(card)) for name, card in rows.items()},
        strongest=best,
        over=over,
        interference=by_environment({COMPOSED: whole, BASE: base} | cards),
        routes=_routes(run, tasks.tasks, child),
        regret=router_regret(run.plan, right, whole),
    )


def trained(pair: Pair) -> tuple[Adapter, ...]:
    """The adapters that have learned something, each once: a fresh one answers as the base does."""
    return tuple({adapter.blob: adapter for adapter in pair.adapters if adapter.parent is not None}.values())


def _spread(plan: Plan, rows: Sequence[Difference]) -> dict[str, Interval]:
    names = sorted({row.environment for row in rows})
    return known(plan, {ALL: rows} | {name: [row for row in rows if row.environment == name] for name in names})


def _routes(run: Run, tasks: Sequence[Task], child: Pair) -> dict[str, dict[str, int]]:
    """Who answered first in the composed system's episodes, counted by environment and label."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for place in range(len(split_tasks(tasks, run.plan.examine.shard_tasks))):
        shard = run.attempt.find(Stage.EXAMINE, EpisodeShard, f"exam/{place:03d}")
        for episode in shard.episodes if shard else ():
            answered = [turn.label for turn in episode.turns if turn.role == "assistant" and turn.hop is Hop.ANSWER]
            if episode.pair == child.digest and answered:
                counts[episode.task.environment][answered[0]] += 1
    return {name: dict(sorted(row.items())) for name, row in sorted(counts.items())}
