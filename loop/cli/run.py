"""``macaron-loop run``: grow generation N+1 from N."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from loop.cli.options import Config, Json, print_json

if TYPE_CHECKING:
    from loop.core.contract import Contract
    from loop.core.generation import Generation
    from loop.core.plan import Plan
    from loop.settings import Settings
    from loop.store.sql import SqlStore


def run(
    generation: Annotated[int, typer.Option("--generation", "-g", min=0, help="The generation to grow from.")],
    config: Config = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan and what is done; do nothing.")] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start another trial instead of resuming.")] = False,
    until: Annotated[int | None, typer.Option("--until", min=1, help="Go on until this generation exists.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Promote whatever the gate says; recorded for ever.")] = False,
    underpowered: Annotated[
        bool, typer.Option("--underpowered", help="Grow although the exam cannot see the effect asked for.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Grow generation N+1 from N: collect, score, curate, train, examine, decide, register.

    Kill it anywhere: the same command resumes. A finished generation is shown, not redone.
    """
    from loop.app import make_plan, open_contract, open_store
    from loop.core.errors import UserError
    from loop.settings import load_settings

    settings = load_settings(config)
    last = until if until is not None else generation + 1
    if last <= generation:
        raise UserError(f"--until {last} must be above --generation {generation}")
    contract = open_contract(settings)
    store = open_store(settings)
    plan = make_plan(settings, contract)
    if dry_run:
        _show_plan(settings, store, plan, generation, as_json)
        return
    if not underpowered:
        _refuse_underpowered(settings, store, plan)
    done = None if fresh else _finished(settings, store, plan, generation, last)
    grown = done if done is not None else _grow(settings, store, contract, plan, (generation, last), (fresh, force))
    _report(settings, store, grown, done is not None, as_json)


def _refuse_underpowered(settings: Settings, store: SqlStore, plan: Plan) -> None:
    """UserError when the exam could not find the effect that the settings ask for."""
    from loop.core.errors import UserError
    from loop.findings import sight

    wanted = plan.gate.effect
    seen = sight(settings, store, plan) if wanted is not None else None
    if wanted is None or seen is None or seen.effect <= wanted:
        return
    needed = round(seen.cases * (seen.effect / wanted) ** 2)
    raise UserError(
        f"the exam of {seen.cases} cases sees gains from {seen.effect:.1f} points on ({seen.power:.0%} power, from "
        f"{seen.exams} earlier gains), and sizes.gate.effect asks for {wanted:g}: examine about {needed} cases, "
        "or run with --underpowered"
    )


def _finished(settings: Settings, store: SqlStore, plan: Plan, first: int, last: int) -> list[Generation] | None:
    """The whole chain when it already stands; asked before any model library is imported."""
    from loop.app import finished
    from loop.core.gate import Standing

    chain: list[Generation] = []
    for number in range(first, last):
        found = finished(settings, store, number, plan)
        if found is None:
            return None
        chain.append(found)
        if found.decision.standing is not Standing.PROMOTED:
            break
    return chain


def _grow(
    settings: Settings,
    store: SqlStore,
    contract: Contract,
    plan: Plan,
    span: tuple[int, int],
    flags: tuple[bool, bool],
) -> list[Generation]:
    from rich.console import Console

    from loop.app import attach_report, first_pair, open_loop
    from loop.cli.progress import TerminalProgress
    from loop.pipeline.generation import grow, plant

    first, last = span
    fresh, force = flags
    if first > 0:
        store.generation(settings.family, first)  # an unknown generation is refused before anything is loaded
    with (
        store.lease(settings.family, f"macaron-loop run --generation {first}"),
        TerminalProgress(Console(stderr=True)) as progress,
        open_loop(settings, store, contract, progress) as loop,
    ):
        if first == 0 and not store.generations(settings.family):
            progress.stage("base", "preparing the base model and fresh adapters")
            plant(loop, first_pair(settings, loop), settings.seed)
        grown = grow(loop, first, last, plan, fresh=fresh, forced=force)
        try:
            attach_report(settings, store, loop.tracker, grown[-1])
        except OSError as error:  # the report is only a view: the generation is registered all the same
            progress.stage("report", f"not written ({error.strerror}); macaron-loop report writes it again")
        return grown


def _report(settings: Settings, store: SqlStore, grown: list[Generation], reused: bool, as_json: bool) -> None:
    if as_json:
        print_json({"generations": grown, "reused": reused})
        return
    from rich.console import Console

    from loop.cli.render import print_generation
    from loop.core.gate import Standing
    from loop.findings import read_findings

    console = Console()
    findings = read_findings(store, settings.family)
    for generation in grown:
        print_generation(console, generation, findings)
    newest = grown[-1]
    if reused:
        console.print(f"Generation {newest.number} was grown before under this plan: nothing to do.")
    if newest.decision.standing is Standing.PROMOTED:
        console.print(f"Next: macaron-loop run --generation {newest.number}")
    else:
        console.print(f"Generation {newest.number} is kept as rejected: macaron-loop why {newest.short}")
        console.print("Try again with --fresh (other tasks, other luck), or with other settings.")


def _show_plan(settings: Settings, store: SqlStore, plan: Plan, first: int, as_json: bool) -> None:
    from loop.findings import sight

    steps = store.plan_steps(settings.family, first, plan)
    seen = sight(settings, store, plan)
    if as_json:
        print_json({"plan": plan, "plan_digest": plan.digest, "recorded": steps, "detectable": seen})
        return
    from rich.console import Console

    sizes = settings.sizes
    console = Console()
    console.print(f"plan {plan.short}: grow generation {first + 1} from {first} of lineage {settings.family}")
    console.print(
        f"  contract {settings.contract} ({plan.contract[:12]}), seed {plan.seed}, profile {plan.profile.name}"
    )
    console.print(f"  collect {dict(sizes.collect.tasks)} tasks x {sizes.collect.samples} samples")
    console.print(f"  examine {dict(sizes.examine.tasks)} holdout tasks, parent and child")
    if seen is None:
        console.print("  minimum detectable gain: not known before a successor was examined")
    else:
        console.print(
            f"  minimum detectable gain: {seen.effect:.1f} points ({seen.power:.0%} power at alpha {seen.alpha:.2g}, "
            f"from {seen.exams} earlier gains)"
        )
    recorded = ", ".join(f"{stage} {count}" for stage, count in steps.items()) or "nothing yet"
    console.print(f"  recorded: {recorded}")
