"""Grow generation N+1 from N: the page to read first."""

from __future__ import annotations

from collections.abc import Mapping

from loop.core.errors import LoopError, StageFailed, UserError
from loop.core.gate import Decision, Standing
from loop.core.generation import Exam, Generation
from loop.core.pair import Harness, Pair
from loop.core.plan import Plan
from loop.core.stage import Stage
from loop.gains.gate import decide as gate
from loop.pipeline.collect import collect
from loop.pipeline.curate import curate
from loop.pipeline.discover import discover
from loop.pipeline.examine import Attestations, attest, examine, fingerprint_holdout
from loop.pipeline.experience import pass_rates, score
from loop.pipeline.explore import explore
from loop.pipeline.parts import Loop, Run
from loop.pipeline.routing import collect_routes, route_rows
from loop.pipeline.train import train
from loop.ports import Trained


def run_generation(
    loop: Loop, parent: Generation, plan: Plan, *, fresh: bool = False, forced: bool = False
) -> Generation:
    """Grow the successor of ``parent`` under ``plan`` and register it, promoted or not.

    Each line is a recorded step: kill it anywhere and the same call resumes. A finished
    attempt is returned as it is registered. Raises StageFailed with the cause chained.
    """
    finished = None if fresh else loop.store.result(loop.family, parent, plan)
    if finished is not None:
        return finished
    refuse_a_second_successor(loop, parent)
    loop.store.save(loop.contract)
    run = Run(loop, parent, plan, loop.store.begin(loop.family, parent, plan, fresh=fresh))

    tasks = discover(run)
    routes = collect_routes(run)
    episodes = collect(run, tasks, routes)
    scores = score(run, episodes)
    sets = curate(run, episodes, scores, fingerprint_holdout(run), route_rows(run, routes))
    harness = explore(run, episodes, sets)
    trained = train(run, sets)
    child = successor(run, harness, trained)
    attested = attest(run, child)
    exam = examine(run, child)
    decision = decide(run, exam, attested, forced)
    return register(run, child, exam, decision, pass_rates(scores), trained)


def refuse_a_second_successor(loop: Loop, parent: Generation) -> None:
    """UserError when N+1 is promoted already: one number of a lineage names one promoted generation."""
    number = parent.number + 1
    for known in loop.store.generations(loop.family):
        if known.number == number and known.decision.standing is Standing.PROMOTED:
            raise UserError(
                f"generation {number} of lineage {loop.family} is promoted already ({known.short}) under another plan: "
                f"grow from it with --generation {number}, or set another family to start a lineage beside it"
            )


def successor(run: Run, harness: Harness, trained: Mapping[str, Trained]) -> Pair:
    """The parent's pair with the trained adapters and the searched harness in place."""
    adapters = tuple(
        trained[adapter.label].adapter if adapter.label in trained else adapter for adapter in run.parent.pair.adapters
    )
    return run.parent.pair.revise(adapters=adapters, harness=harness)


def decide(run: Run, exam: Exam, attested: Attestations, forced: bool) -> Decision:
    """The gate's record; every exam of the lineage so far was a look that spent of its alpha."""
    plan = run.plan.gate

    def judge() -> Decision:
        look = 1 + sum(known.exam is not None for known in run.loop.store.generations(run.loop.family))
        return gate(exam, attested.ok, margin=plan.margin, look=look, alpha=plan.alpha, forced=forced)

    return run.attempt.once(Stage.DECIDE, Decision, judge)


def register(
    run: Run,
    child: Pair,
    exam: Exam,
    decision: Decision,
    experience: Mapping[str, float],
    trained: Mapping[str, Trained],
) -> Generation:
    """Write the generation to the store, then to the tracker, which is only a view of it."""
    spent, budgets = run.spent(), run.attempt.budget()
    generation = Generation(
        number=run.parent.number + 1,
        family=run.loop.family,
        arm=run.plan.arm,
        seed=run.plan.seed,
        pair=child,
        parent=run.parent.digest,
        plan=run.plan.digest,
        exam=exam,
        decision=decision,
        experience=dict(experience),
        budget=spent,
        stages={stage.value: budget for stage, budget in budgets.items()},
    )
    run.loop.store.register(generation, run.attempt)
    run.loop.tracker.publish(generation, run.parent, tuple(trained.values()), {"budgets": budgets})
    return generation


def plant(loop: Loop, pair: Pair, seed: int) -> Generation:
    """Register and publish generation 0 of a lineage, or return the one that stands there already."""
    standing = [g for g in loop.store.generations(loop.family) if g.number == 0]
    if standing:
        return standing[0]
    root = Generation(number=0, family=loop.family, seed=seed, pair=pair, decision=Decision(standing=Standing.ROOT))
    loop.store.register(root, None)
    loop.tracker.publish(root, None, (), {})
    return root


def grow(
    loop: Loop, number: int, until: int, plan: Plan, *, fresh: bool = False, forced: bool = False
) -> list[Generation]:
    """Grow from generation ``number`` until ``until`` exists; stops after a rejected one.

    Every error that is not ours becomes StageFailed that says how to go on.
    """
    grown: list[Generation] = []
    for parent_number in range(number, until):
        parent = loop.store.generation(loop.family, parent_number)
        try:
            child = run_generation(loop, parent, plan, fresh=fresh, forced=forced)
        except (LoopError, KeyboardInterrupt):
            raise
        except Exception as error:
            raise StageFailed(
                f"growing generation {parent_number + 1} broke: {type(error).__name__}: {error}. "
                "What was recorded is kept; run the same command to resume."
            ) from error
        grown.append(child)
        if child.decision.standing is not Standing.PROMOTED:
            break
    return grown
