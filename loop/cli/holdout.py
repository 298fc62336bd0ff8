"""``macaron-loop holdout``: who looked at the sealed bank, when, and for which generation."""

from __future__ import annotations

import typer

from loop.cli.options import Config, Json, print_json

app = typer.Typer(help="The sealed holdout: every opening is a row.", no_args_is_help=True)


@app.command("ledger")
def ledger(config: Config = None, as_json: Json = False) -> None:
    """List every opening of the sealed bank, oldest first; resumes of one attempt are counted."""
    from loop.app import open_store
    from loop.settings import load_settings

    settings = load_settings(config)
    store = open_store(settings)
    openings = store.openings(settings.family)
    if as_json:
        print_json(openings)
        return
    if not openings:
        print(f"the holdout of lineage {settings.family} was never opened")
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"openings of the holdout, lineage {settings.family}", expand=True)
    for name in ("at", "parent", "attempt", "why"):
        table.add_column(name, overflow="fold")
    table.add_column("times", justify="right")
    for opening in openings:
        table.add_row(opening.at[:16], opening.generation[:8], opening.attempt[:8], opening.why, str(opening.times))
    console = Console()
    console.print(table)
    exams = sum(generation.exam is not None for generation in store.generations(settings.family))
    looks = settings.sizes.examine.looks
    console.print(
        f"panel {exams // looks}: {exams % looks} of {looks} looks are used; then all but the anchor cases "
        f"({settings.sizes.examine.anchor:.0%}) are drawn again"
    )
