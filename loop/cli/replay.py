"""Replays and noise floors as people read them, within 80 columns."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from loop.core.generation import Generation
from loop.core.manifest import Agreement, Replay, ReplayVerdict

COLOURS = {ReplayVerdict.EQUAL: "bold green", ReplayVerdict.WITHIN: "bold yellow", ReplayVerdict.DIFFERENT: "bold red"}


def print_replay(result: Replay) -> None:
    """The verdict first, then the figures behind it and what is not the same here."""
    console = Console(highlight=False)
    console.print(Text(result.verdict.value, style=COLOURS[result.verdict]))
    table = Table.grid(padding=(0, 2))
    table.add_row("generation", Text(result.generation[:12]))
    table.add_row("episodes", Text(_episodes(result)))
    table.add_row("case scores", Text(_scores(result.agreement)))
    for role, (then, now) in result.scores.items():
        table.add_row("score", Text(f"{role}: {_points(then)} in the exam, {_points(now)} now"))
    floor = result.floor
    measured = f"{floor.value:.2f} points, the largest over {floor.cases} cases" if floor else "not measured"
    table.add_row("noise floor", Text(measured if floor else f"{measured}: macaron-loop noise"))
    for reason in result.reasons:
        table.add_row("why", Text(reason))
    for line in _dependencies(result):
        table.add_row("changed", Text(line))
    console.print(table)


def print_noise(generation: Generation, measured: Agreement, cases: int) -> None:
    """The floor, over how many cases, and what a floor of nothing leaves open."""
    console = Console(highlight=False)
    console.print(
        f"noise floor: {measured.largest:.2f} points, the largest over {cases} cases of generation "
        f"{generation.number} ({generation.short}), each played beside others and alone"
    )
    console.print(_scores(measured))
    if not measured.moved and not measured.undecided:
        share = 1 - 0.05 ** (1 / cases)  # what a share of moving cases must exceed to show with 95 % in ``cases``
        console.print(f"None moved: with 95 % confidence fewer than {share:.1%} of cases would.")


def _episodes(result: Replay) -> str:
    if not result.changed:
        return f"all {result.episodes} have the digests of the exam"
    failed = f"; {result.failed} failed" if result.failed else ""
    return f"{result.changed} of {result.episodes} differ, {result.replies} of them in their tokens{failed}"


def _scores(found: Agreement) -> str:
    if not found.moved and not found.undecided:
        return f"none of {found.cases} moved (both halves of the contract)"
    text = f"{found.moved} of {found.cases} moved, largest {found.largest:.2f} points, mean {found.mean:.2f}"
    return f"{text}; {found.undecided} decided in one only" if found.undecided else text


def _points(score: float | None) -> str:
    return "undecided" if score is None else f"{score:.2f}"


def _dependencies(result: Replay) -> tuple[str, ...]:
    if result.dependencies is None:
        return ("unknown: an older version examined it and kept no record of code, packages and hardware",)
    return result.dependencies or ("nothing: code, packages, hardware and engine are those of the exam",)
