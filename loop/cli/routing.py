"""``macaron-loop routing``: the registry of labels, and how well a router routes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from loop.cli.options import Config, Json, print_json

if TYPE_CHECKING:
    from rich.table import Table

    from loop.core.gate import Interval
    from loop.core.generation import Generation
    from loop.core.pair import Pair
    from loop.core.routing import RoutingReport
    from loop.settings import Settings
    from loop.store.sql import SqlStore

app = typer.Typer(help="The router: its labels, and how well it routes.", no_args_is_help=True)

Which = Annotated[str, typer.Option("--generation", "-g", help="A number (the promoted one) or a digest's start.")]
ALL_CASES = 1000


@app.command("show")
def show(which: Which = "", config: Config = None, as_json: Json = False) -> None:
    """List the registered labels with what they are for and who owns them.

    Without --generation those of the harness in the settings.
    """
    from loop.app import open_harness, open_store
    from loop.cli.lineage import find
    from loop.mol.route import description
    from loop.settings import load_settings

    settings = load_settings(config)
    pair = find(settings, open_store(settings), which).pair if which else None
    harness = pair.harness if pair else open_harness(settings)
    routing = harness.routing
    labels = [
        {"label": label, "owner": _owner(pair, label), "for": description(harness, label)} for label in routing.labels
    ]
    router = routing.router or routing.fallback
    policy = {"router": router, "fallback": routing.fallback, "threshold": routing.threshold}
    if as_json:
        print_json({"labels": labels, **policy})
        return
    from rich.console import Console

    table = _table("registered labels", ("label", "owner", "for"))
    for row in labels:
        table.add_row(row["label"], row["owner"], row["for"])
    console = Console(highlight=False)
    console.print(table)
    console.print(f"{router} routes; below {routing.threshold:g} and where it abstains {routing.fallback} answers")


def _owner(pair: Pair | None, label: str) -> str:
    adapter = pair.adapter(label) if pair else None
    return adapter.owner if adapter else "-"


@app.command("evaluate")
def evaluate(
    which: Which = "0",
    bank: Annotated[
        Literal["holdout", "train"], typer.Option("--bank", help="The sealed cases, or fresh ones of the open bank.")
    ] = "holdout",
    cases: Annotated[int, typer.Option("--cases", min=1, help="At most this many cases.")] = ALL_CASES,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Ask a generation's router about a bank of cases and print what it did.

    Accuracy by class and kind with intervals, label compliance, confusion, abstention.
    Opening the sealed bank is a row of the holdout's ledger.
    """
    from loop.app import open_contract, open_loop, open_store
    from loop.cli.lineage import find
    from loop.cli.progress import TerminalProgress
    from loop.core.episode import Split
    from loop.pipeline.routing import evaluate as measure
    from loop.settings import load_settings

    settings = load_settings(config)
    store = open_store(settings)
    generation = find(settings, store, which)
    split = Split(bank)
    if split is Split.HOLDOUT:
        note_opening(settings, store, generation)
    from rich.console import Console

    quiet = settings.model_copy(update={"tracking_uri": "off"})
    with (
        TerminalProgress(Console(stderr=True)) as progress,
        open_loop(quiet, store, open_contract(settings), progress) as loop,
    ):
        wanted = min(cases, ALL_CASES if split is Split.HOLDOUT else 240)
        report = measure(loop, generation.pair, split, wanted, settings.sizes.examine.seed)
    if as_json:
        print_json({"generation": generation.digest, "bank": bank, "report": report})
        return
    console = Console(highlight=False)
    console.print(f"router of generation {generation.number} ({generation.short}), {bank} bank, {report.cases} cases")
    for table in report_tables(report):
        console.print(table)


def note_opening(settings: Settings, store: SqlStore, generation: Generation) -> None:
    """A row in the ledger, under the attempt that made the generation or, for a root, one grown from it. UserError."""
    from loop.core.errors import UserError

    grown = (g for g in store.generations(settings.family) if generation.digest in (g.digest, g.parent))
    origins = (store.origin(found) for found in grown)
    origin = next((found for found in origins if found is not None), None)
    if origin is None:
        raise UserError(
            f"generation {generation.number} ({generation.short}) has no successor yet, so no attempt may open the "
            "sealed bank for it: grow one with sizes.examine.routes set, or use --bank train"
        )
    with store.lease(settings.family, "macaron-loop routing evaluate"):
        store.open_holdout(origin[0], generation.digest, f"routing evaluation of {generation.short}")


def report_tables(report: RoutingReport) -> list[Table]:
    """The findings in four tables of at most 80 columns."""
    shares = _table("accuracy", ("", "per cent (95 % interval)", "cases"))
    shares.add_row("all", share(report.accuracy), str(report.accuracy.n), style="bold")
    for group in (report.labels, report.kinds):
        for name, found in group.items():
            shares.add_row(name.replace("_", " "), share(found), str(found.n))
    shares.add_row("labels kept", f"{report.compliance:.1f}", str(report.cases))
    if report.in_distribution is not None:
        familiar = report.in_distribution
        shares.add_row("in-distribution, apart", share(familiar), str(familiar.n), style="dim")
    answers = sorted({label for row in report.confusion.values() for label in row})
    confusion = _table("confusion", ("wanted / answered", *answers))
    for wanted, row in report.confusion.items():
        confusion.add_row(wanted, *(str(row.get(label, 0)) for label in answers))
    how = _table("how it was decided", ("how", "cases"))
    for name, count in report.how.items():
        how.add_row(name, str(count))
    curve = _table("answering only the surest", ("threshold", "answered", "right"))
    for point in report.curve:
        curve.add_row(f"{point.threshold:.3f}", f"{point.coverage:.1f} %", f"{point.accuracy:.1f} %")
    return [shares, confusion, how, curve]


def share(found: Interval) -> str:
    """A share with its interval, e.g. ``87.5 [82.1, 91.4]``."""
    return f"{found.point:.1f} [{found.low:.1f}, {found.high:.1f}]"


def _table(title: str, columns: tuple[str, ...]) -> Table:
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for place, name in enumerate(columns):
        table.add_column(name, overflow="fold", justify="left" if place == 0 else "right")
    return table
