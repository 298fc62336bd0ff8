"""``macaron-loop episode``: what was said in one episode, and what every criterion made of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from loop.cli.options import Config, Json, print_json

if TYPE_CHECKING:
    from rich.console import Console

    from loop.core.evidence import EpisodeEvidence


def episode(
    which: Annotated[str, typer.Argument(help="The digest of an episode, or its first digits.")],
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show one episode: its turns, its scores, and the evidence behind each criterion."""
    from loop.app import open_store
    from loop.settings import load_settings

    found = open_store(load_settings(config)).episode(which)
    if as_json:
        print_json(found)
        return
    from rich.console import Console

    print_episode(Console(), found)


def print_episode(console: Console, found: EpisodeEvidence) -> None:
    """Turns first, then a table of criteria for each half; text of the episode is never markup."""
    from rich.table import Table
    from rich.text import Text

    made = found.episode
    task = made.task
    console.print(
        f"episode {made.short}  {task.environment}/{task.case}, level {task.level}, {task.split}, sample {made.sample}",
        highlight=False,
    )
    for turn in made.turns:
        who = f"{turn.role} {turn.label}".strip()
        console.print(Text.assemble((f"{who:>14}  ", "bold"), printable(turn.content)))
    if made.failure is not None:
        console.print(Text(f"broke at {made.failure.boundary}: {printable(made.failure.message)}", style="red"))
    for scored in found.scores:
        score = "unscored" if scored.score.score is None else f"{scored.score.score:.0f} of 100"
        title = f"{scored.half} half of contract {scored.contract[:12]}: {score}"
        table = Table(title=title, title_justify="left", width=80)
        for name in ("criterion", "axiom", "value", "evidence"):
            table.add_column(name, overflow="fold")
        for verdict in scored.score.verdicts:
            value = "undecided" if verdict.value is None else f"{verdict.value:.2f}"
            table.add_row(verdict.criterion, verdict.axiom, value, Text(printable(verdict.evidence)))
        console.print(table)


def printable(text: str) -> str:
    """The text with control characters written out: what a model said must not steer the terminal."""
    return "".join(
        letter if letter.isprintable() or letter in "\n\t" else letter.encode("unicode_escape").decode()
        for letter in text
    )
