"""``macaron-loop judge``: how the language-model judge grades what is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from loop.cli.options import Config, Json, print_json

if TYPE_CHECKING:
    from rich.table import Table

    from loop.judges.calibration import Calibration
    from loop.judges.drift import Drift

app = typer.Typer(help="The language-model judge: calibrate it on labelled replies.", no_args_is_help=True)


@app.command("calibrate")
def calibrate(
    config: Config = None,
    each: Annotated[int, typer.Option(min=1, help="Labelled replies of a criterion that hold, and that breach.")] = 2,
    every: Annotated[bool, typer.Option("--every", help="Every criterion, not only the judged ones.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say how many requests it takes; ask nothing.")] = False,
    as_json: Json = False,
) -> None:
    """Ask the judges about replies whose label is known, store the figures, print their digest.

    Accuracy, mean scores, agreement between judges, the effect of order and of sampling again.
    """
    from loop.app import known_base, open_contract, open_language_judge, open_store
    from loop.judges.calibration import Calibration, requests, specimens
    from loop.judges.calibration import calibrate as ask
    from loop.judges.drift import drift
    from loop.settings import load_settings

    settings = load_settings(config)
    judge, contract = open_language_judge(settings), open_contract(settings)
    chosen = specimens(contract, judge, each=each, every=every)
    if dry_run:
        planned = {"replies": len(chosen), "requests": requests(judge, chosen)}
        print_json(planned) if as_json else print(f"{planned['replies']} replies, {planned['requests']} requests")
        return
    store = open_store(settings)
    pinned = store.load(Calibration, judge.calibration) if judge.calibration else None
    found = ask(contract, judge, chosen, base=known_base(settings, store))
    store.save(found)
    moved = drift(judge.models, pinned.readings, found.readings) if pinned else ()
    if as_json:
        print_json({"calibration": found, "drift": moved})
        return
    from rich.console import Console

    console = Console(highlight=False)
    console.print(f"judge prompt {found.prompt}, contract {found.contract[:12]}, {found.calls} requests")
    console.print(_figures(found))
    agreement = "not measured" if found.agreement is None else f"{found.agreement:.2f}"
    console.print(f"agreement between judges (Krippendorff's alpha, interval): {agreement}")
    for sentence in found.warnings:
        console.print(f"warning: {sentence}", style="yellow")
    if moved:
        console.print(_drift(moved))
    console.print(f'pin it under the judge\'s options:\ncalibration = "{found.digest}"', soft_wrap=True)


def _figures(found: Calibration) -> Table:
    from rich.table import Table

    table = Table(title="labelled replies", title_justify="left", width=80)
    table.add_column("judge", overflow="fold", ratio=1)
    for name in ("graded", "accuracy", "held", "breached", "order", "sampling"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in found.figures:
        accuracy = "-" if row.accuracy is None else f"{row.accuracy:.1%}"
        shown = (_two(value) for value in (row.held, row.breached, row.order_effect, row.spread))
        table.add_row(row.model, f"{row.graded}/{row.asked}", accuracy, *shown)
    return table


def _drift(moved: tuple[Drift, ...]) -> Table:
    from rich.table import Table

    table = Table(title="since the pinned calibration", title_justify="left", width=80)
    for name in ("judge", "figure", "then", "now"):
        table.add_column(name, overflow="fold")
    for row in moved:
        table.add_row(row.model, row.figure, _two(row.before), f"{row.after:.2f} ({row.change:+.2f})")
    return table


def _two(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
