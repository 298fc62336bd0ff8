"""Named effects with their intervals, one above the other, as an SVG that follows the page's colours."""

from __future__ import annotations

from collections.abc import Mapping

from loop.core.gate import Interval
from loop.core.noun import Noun
from loop.report.chart import round_ticks

WIDTH, ROW, TOP, BOTTOM = 640, 26, 8, 26
LEFT, RIGHT = 150, 16


class Bar(Noun):
    """One effect in pixels: its point, its ends, and the row it stands in."""

    label: str
    x: float
    low: float
    high: float
    y: float
    text: str


class Bars(Noun):
    """All that the template draws."""

    title: str
    height: int
    rows: tuple[Bar, ...]
    ticks: tuple[tuple[str, float], ...]
    zero: float


def bars(title: str, effects: Mapping[str, Interval]) -> Bars | None:
    """Lay effects out in the order given, in contract points around zero; None for none."""
    if not effects:
        return None
    ticks = round_ticks(
        min(0.0, *(found.low for found in effects.values())), max(0.0, *(found.high for found in effects.values()))
    )

    def x(points: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * (points - ticks[0]) / (ticks[-1] - ticks[0]), 1)

    rows = tuple(
        Bar(
            label=name.replace("_", " "),
            x=x(found.point),
            low=x(found.low),
            high=x(found.high),
            y=TOP + ROW * (index + 0.5),
            text=f"{name.replace('_', ' ')}: {found.point:+.1f} [{found.low:+.1f}, {found.high:+.1f}]",
        )
        for index, (name, found) in enumerate(effects.items())
    )
    marks = tuple((f"{tick:+g}" if tick else "0", x(tick)) for tick in ticks)
    return Bars(title=title, height=TOP + ROW * len(rows) + BOTTOM, rows=rows, ticks=marks, zero=x(0.0))
