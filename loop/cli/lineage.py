"""``status``, ``lineage``, ``show`` and ``why``: reading the lineage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from loop.cli.options import Config, Json, Under, Which, print_json

if TYPE_CHECKING:
    from loop.core.generation import Generation
    from loop.core.rescore import Standpoint
    from loop.settings import Settings
    from loop.store.sql import SqlStore

app = typer.Typer(help="The generations of a lineage; rebuild MLflow from them.", invoke_without_command=True)


def find(settings: Settings, store: SqlStore, which: str) -> Generation:
    """A generation by number (the promoted one) or by the start of its digest; UserError."""
    if which.isdigit() and len(which) < 6:
        return store.generation(settings.family, int(which))
    return store.by_digest(which)


def find_or_champion(settings: Settings, store: SqlStore, which: str) -> Generation:
    """A generation as ``find`` finds it, or the champion for an empty ``which``; UserError."""
    from loop.core.errors import UserError

    found = find(settings, store, which) if which else store.champion(settings.family)
    if found is None:
        raise UserError(f"lineage {settings.family} has no generation yet: macaron-loop run --generation 0")
    return found


def standpoints(
    settings: Settings, store: SqlStore, generations: Sequence[Generation], contract: str | None
) -> dict[str, Standpoint]:
    """Each generation's exam by digest: its own, or its standing under the named version; UserError."""
    from loop.core.rescore import Standpoint
    from loop.library import default_root, load_contract

    if contract is None:
        return {g.digest: Standpoint(generation=g.digest, exam=g.exam) for g in generations if g.exam is not None}
    wanted = load_contract(default_root(), contract)
    return store.standpoints(settings.family, wanted.digest, settings.judge.digest)


@app.callback()
def lineage(context: typer.Context, config: Config = None, contract: Under = None, as_json: Json = False) -> None:
    """List every generation, rejected ones too, with scores, gains and decisions."""
    if context.invoked_subcommand is not None:
        return
    from loop.app import open_store
    from loop.settings import load_settings

    settings = load_settings(config)
    store = open_store(settings)
    generations = store.generations(settings.family)
    points = standpoints(settings, store, generations, contract)
    if as_json:
        print_json(generations if contract is None else [points.get(g.digest) for g in generations])
        return
    if not generations:
        print(f"lineage {settings.family} has no generation yet: macaron-loop run --generation 0")
        return
    from rich.console import Console

    from loop.cli.compare import print_lineage

    print_lineage(Console(), store, generations, points, contract)


@app.command("sync-mlflow")
def sync_mlflow(config: Config = None, as_json: Json = False) -> None:
    """Write every generation of the store to MLflow again; nothing is doubled."""
    from loop.app import open_store, open_tracker
    from loop.settings import load_settings

    settings = load_settings(config)
    store, tracker = open_store(settings), open_tracker(settings)
    generations = store.generations(settings.family)
    known = {generation.digest: generation for generation in generations}
    for generation in generations:
        trained, budgets = store.evidence(generation)
        parent = known.get(generation.parent or "")
        tracker.publish(generation, parent, trained, {"budgets": budgets})
    print_json({"written": len(generations)}) if as_json else print(
        f"{len(generations)} generations of lineage {settings.family} written to {settings.tracking}"
    )


def status(config: Config = None, as_json: Json = False) -> None:
    """What stands, who is writing, and how far the open attempt is."""
    from loop.app import open_store
    from loop.settings import load_settings

    settings = load_settings(config)
    view = open_store(settings).status(settings.family)
    if as_json:
        print_json(view)
        return
    print(f"lineage {view.family}: {view.promoted} standing, {view.rejected} rejected")
    for policy in view.policies:
        print(f"  {policy.owner}/{policy.name} -> generation {policy.number} ({policy.generation[:12]})")
    if view.lease:
        held = view.lease
        print(f"  being written by {held.holder}, process {held.pid} on {held.host}, since {held.since}")
    if view.attempt is None:
        print("  no open attempt")
        return
    open_ = view.attempt
    print(f"  open attempt {open_.attempt[:12]}: from generation {open_.parent_number}, trial {open_.trial}")
    for stage in view.attempt.stages:
        print(f"    {stage.stage:<9} {stage.steps:>3} steps  {stage.budget.wall_seconds:7.1f} s  last {stage.last}")


def show(which: Which, config: Config = None, contract: Under = None, as_json: Json = False) -> None:
    """One generation: score, gains, axioms, decision, budget."""
    from loop.app import open_store
    from loop.core.errors import UserError
    from loop.settings import load_settings

    settings = load_settings(config)
    store = open_store(settings)
    generation = find(settings, store, which)
    point = standpoints(settings, store, (generation,), contract).get(generation.digest)
    if contract is not None and generation.exam is not None and point is None:
        raise UserError(
            f"generation {generation.number} ({generation.short}) has no score under contract {contract}: "
            f"macaron-loop rescore --contract {contract} --generation {generation.short}"
        )
    if as_json:
        print_json(generation if contract is None else point)
        return
    from rich.console import Console

    from loop.cli.render import print_generation
    from loop.findings import read_findings

    rescored = point.exam if point is not None and point.rescored else None
    print_generation(Console(), generation, read_findings(store, settings.family), store.contract_names(), rescored)


def why(
    which: Which,
    config: Config = None,
    as_json: Json = False,
    examples: Annotated[int, typer.Option("--examples", min=0, help="Episodes to name for each adapter.")] = 3,
) -> None:
    """The chain behind a generation: score, adapters, training rows, episodes, criteria."""
    from loop.app import open_store
    from loop.settings import load_settings

    settings = load_settings(config)
    store = open_store(settings)
    view = store.why(find(settings, store, which))
    if as_json:
        print_json(view)
        return
    from rich.console import Console

    from loop.cli.why import print_why

    print_why(Console(), view, examples)
