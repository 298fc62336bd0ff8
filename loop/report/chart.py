"""Points with their intervals over generations, as an SVG that follows the page's colours."""

from __future__ import annotations

import math
from collections.abc import Sequence

from loop.core.gate import Interval
from loop.core.noun import Noun

WIDTH, HEIGHT = 640, 240
LEFT, RIGHT, TOP, BOTTOM = 48, 16, 14, 34
TICKS = 5
MOST_NUMBERS = 16  # more generation numbers than this would touch each other on a phone


class Mark(Noun):
    """One generation's place on a chart: hollow where it was rejected, beside its siblings."""

    label: str
    at: float
    interval: Interval
    rejected: bool = False


class Dot(Noun):
    """A mark in pixels."""

    label: str
    x: float
    y: float
    low: float
    high: float
    rejected: bool
    text: str


class Chart(Noun):
    """All that the template draws: dots, the line through the promoted ones, and ticks in pixels."""

    title: str
    height: int = HEIGHT
    dots: tuple[Dot, ...]
    line: str
    y_ticks: tuple[tuple[str, float], ...]
    x_ticks: tuple[tuple[str, float], ...]
    zero: float | None


def chart(title: str, marks: Sequence[Mark], *, signed: bool = False) -> Chart | None:
    """Lay marks out; None for no marks. The value axis is in contract points."""
    if not marks:
        return None
    low = min(mark.interval.low for mark in marks)
    high = max(mark.interval.high for mark in marks)
    if signed:
        low, high = min(low, 0.0), max(high, 0.0)
    ticks = round_ticks(low, high)
    bottom, top = ticks[0], ticks[-1]
    first, last = min(mark.at for mark in marks), max(mark.at for mark in marks)

    def x(at: float) -> float:
        inner = WIDTH - LEFT - RIGHT
        return round(LEFT + inner * ((at - first + 0.5) / (last - first + 1)), 1)

    def y(points: float) -> float:
        return round(TOP + (HEIGHT - TOP - BOTTOM) * (top - points) / (top - bottom), 1)

    sign = "+" if signed else ""
    dots = tuple(
        Dot(
            label=mark.label,
            x=x(mark.at),
            y=y(mark.interval.point),
            low=y(mark.interval.low),
            high=y(mark.interval.high),
            rejected=mark.rejected,
            text=f"{mark.label}: {mark.interval.point:{sign}.1f} "
            f"[{mark.interval.low:{sign}.1f}, {mark.interval.high:{sign}.1f}]",
        )
        for mark in marks
    )
    standing = [dot for dot in dots if not dot.rejected]
    numbers = sorted({int(mark.at) for mark in marks})
    shown = numbers[:: math.ceil(len(numbers) / MOST_NUMBERS)]
    return Chart(
        title=title,
        dots=dots,
        line=" ".join(f"{dot.x},{dot.y}" for dot in standing) if len(standing) > 1 else "",
        y_ticks=tuple((f"{tick:{sign}g}", y(tick)) for tick in ticks),
        x_ticks=tuple((str(number), x(number)) for number in shown),
        zero=y(0.0) if signed else None,
    )


def round_ticks(low: float, high: float) -> list[float]:
    """About five round numbers that enclose the range."""
    span = max(high - low, 1e-9)
    raw = span / (TICKS - 1)
    scale = 10.0 ** math.floor(math.log10(raw))
    step = next(scale * factor for factor in (1, 2, 2.5, 5, 10) if scale * factor >= raw)
    start, end = math.floor(low / step), math.ceil(high / step)
    return [round(step * count, 10) for count in range(start, max(end, start + 1) + 1)]
