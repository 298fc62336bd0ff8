"""A night's post-mortem as people read it in the morning, within 80 columns."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from loop.cli.render import bounds
from loop.core.budget import Budget
from loop.core.night import Night

WIDTH = 80
NOTICED_SECONDS = 0.1


def print_night(console: Console, night: Night) -> None:
    """What ran, what was decided, what it spent, what failed and why, and the next step."""
    ending = night.ending
    console.print(
        f"night {night.date} of lineage {night.family}: [bold]{ending.value}[/] (exit code {ending.exit_code})"
    )
    lines = Table.grid(padding=(0, 2))
    lines.add_column(no_wrap=True)
    lines.add_column(overflow="fold")
    for name, text in _lines(night):
        lines.add_row(f"  {name}", Text(text))
    console.print(lines, width=WIDTH)


def _lines(night: Night) -> list[tuple[str, str]]:
    lines = [("what", night.text)]
    if night.tries:
        tries = "1 try" if night.tries == 1 else f"{night.tries} tries"
        lines.append(("ran", f"{night.started} to {night.ended}, {night.seconds:,.0f} s, {tries}"))
    if night.parent and night.attempt:
        how = "resumed" if night.resumed else "begun"
        lines.append(
            (
                "grew from",
                f"generation {night.parent_number} ({night.parent[:12]}), "
                f"attempt {night.attempt[:12]}, trial {night.trial}, {how}",
            )
        )
    if night.generation:
        lines.append(("score", bounds(night.score)))
        lines.append(("gain", bounds(night.gain, signed=True)))
    lines += [("gate", reason) for reason in night.reasons]
    spent = {stage: budget for stage, budget in night.spent.items() if is_noticed(budget)}
    lines += [("spent", f"{stage.value}: {spent_text(budget)}") for stage, budget in spent.items()]
    if night.judge_cost:
        lines.append(("judges", f"cost {night.judge_cost:,.2f}"))
    lines += [(f"failed {number}", text) for number, text in enumerate(night.failures, 1)]
    lines.append(("next", night.next_step))
    return lines


def is_noticed(spent: Budget) -> bool:
    """Whether a stage spent anything but a moment."""
    counted = spent.generated_tokens + spent.trained_tokens + spent.judge_calls + spent.trials
    return counted > 0 or spent.wall_seconds >= NOTICED_SECONDS


def spent_text(spent: Budget) -> str:
    """The figures of a budget that are not zero."""
    parts = [
        (spent.generated_tokens, f"{spent.generated_tokens:,} tokens generated"),
        (spent.trained_tokens, f"{spent.trained_tokens:,} trained"),
        (spent.judge_calls, f"{spent.judge_calls:,} judge calls"),
        (spent.trials, f"{spent.trials:,} trials"),
    ]
    return ", ".join([text for value, text in parts if value] + [f"{spent.wall_seconds:,.1f} s"])
