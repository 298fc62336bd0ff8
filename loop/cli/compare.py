"""Scores of several generations beside each other, only ever under one contract."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from loop.cli.render import bounds, lineage_table
from loop.core.errors import UserError
from loop.core.gate import Standing
from loop.core.generation import Generation
from loop.core.rescore import Rescore, Standpoint
from loop.core.score import Scorecard

if TYPE_CHECKING:
    from loop.store.sql import SqlStore


def print_lineage(
    console: Console,
    store: SqlStore,
    generations: tuple[Generation, ...],
    points: Mapping[str, Standpoint],
    contract: str | None,
) -> None:
    """The table, what in it was rescored or is missing, and the gain since generation 0."""
    names = store.contract_names()
    title = f"lineage {generations[0].family}" + (f" under contract {contract}" if contract else "")
    exams = {digest: point.exam for digest, point in points.items()}
    console.print(lineage_table(generations, title, exams, names))
    again = [g for g in generations if g.digest in points and points[g.digest].rescored]
    if again:
        console.print(f"rescored from stored episodes: {_named(again)}")
    absent = [g for g in generations if g.exam is not None and g.digest not in points]
    if absent:
        console.print(f"no score under {contract}: {_named(absent)}; macaron-loop rescore --contract {contract}")
    told = since_root(store, generations, points, names)
    if told:
        console.print(told, highlight=False)


def since_root(
    store: SqlStore, generations: Sequence[Generation], points: Mapping[str, Standpoint], names: Mapping[str, str]
) -> str:
    """A sentence with the newest standing generation's gain since generation 0, or why there is none; "" for one step.

    It needs the whole line of ancestors under one contract.
    """
    from loop.gains.comparable import gain_since, refuse_mixed

    line = [g for g in generations if g.decision.standing is Standing.PROMOTED and g.digest in points]
    grown = [g for g in generations if g.decision.standing is Standing.PROMOTED]
    if len(grown) < 2:
        return ""
    head = f"gain of generation {grown[-1].number} since generation 0: "
    if len(line) < len(grown):
        return f"{head}not shown, {len(grown) - len(line)} of its line without a score under this contract"
    shown = [g.revise(exam=points[g.digest].exam) for g in line]
    first, last = points[line[0].digest].exam, points[line[-1].digest].exam
    try:
        refuse_mixed(shown, names)
        if first.parent_scorecard is None:
            return f"{head}not shown, the exam of generation {line[0].number} kept no scorecard of its parent"
        before, after = (store.load(Scorecard, digest) for digest in (first.parent_scorecard, last.scorecard))
        _, plan = store.made_by(line[-1])
        return head + bounds(gain_since(before, after, plan.gate, plan.seed), signed=True)
    except (UserError, ValueError) as error:
        return f"{head}not shown, {error}"


def print_rescores(
    console: Console, title: str, chosen: Sequence[Generation], found: Mapping[str, Rescore], scored: frozenset[str]
) -> None:
    """Score and gain of each generation under the contract, and what could not be scored."""
    table = Table(
        title=title, title_justify="left", box=SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True
    )
    for name in ("gen", "digest", "score 0-100", "gain", "cases", "unscored", "scored"):
        table.add_column(name, justify="right" if name in ("gen", "cases", "unscored") else "left")
    for generation in chosen:
        exam = found[generation.digest].exam
        figures = (bounds(exam.score_interval), bounds(exam.gain, signed=True), str(exam.cases))
        when = "now" if generation.digest in scored else "before"
        unscored = f"{1 - exam.coverage:.1%}"
        table.add_row(str(generation.number), generation.digest[:7], *figures, unscored, when)
    console.print(table)
    for generation in chosen:
        for line in _notes(found[generation.digest]):
            console.print(f"generation {generation.number} {generation.digest[:7]}: {line}", highlight=False)


def _notes(rescore: Rescore) -> list[str]:
    lines = [f"{count} exam episodes unscored, {reason}" for reason, count in rescore.outside.items()]
    if rescore.reworded:
        lines.append(f"{rescore.reworded} exam conversations were held in words this version would not use")
    if rescore.collected:
        lines.append(f"{rescore.collected} train episodes, {rescore.collected_unscored} of them unscored")
    lines += rescore.left_out
    if rescore.equal is not None:
        lines.append(f"{'equal' if rescore.equal else 'NOT equal'} to the run's own scorecards")
    return lines


def _named(generations: Sequence[Generation]) -> str:
    return ", ".join(f"{g.number} ({g.digest[:7]})" for g in generations)
