"""The report: what a lineage gained, on what evidence, and what was decided; read from the store alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

from jinja2 import Environment, PackageLoader, StrictUndefined

from loop import __version__
from loop.core.gate import Interval, Standing
from loop.core.generation import Exam, Generation
from loop.report.chart import Mark, chart
from loop.store.views import OpeningView, PolicyMoveView, StatusView, WhyView

SIBLING_STEP = 0.18


class Lineage(Protocol):
    """What the page reads of a store."""

    def generations(self, family: str) -> tuple[Generation, ...]:
        """Every generation in the order of registration."""
        ...

    def status(self, family: str) -> StatusView:
        """Policy records and the open attempt."""
        ...

    def why(self, generation: Generation) -> WhyView:
        """The chain behind a generation."""
        ...

    def openings(self, family: str) -> tuple[OpeningView, ...]:
        """Openings of the holdout."""
        ...

    def policy_history(self, family: str) -> tuple[PolicyMoveView, ...]:
        """Moves of the policy records."""
        ...


def page(store: Lineage, family: str) -> str:
    """One HTML document without scripts or links to elsewhere; equal stores give equal pages."""
    generations = store.generations(family)
    template = _environment().get_template("page.html.j2")
    return template.render(
        family=family,
        version=__version__,
        status=store.status(family),
        summary=summary(generations),
        generations=generations,
        known={generation.digest: generation for generation in generations},
        charts=[found for found in (_scores(generations), _gains(generations)) if found is not None],
        whys={g.digest: store.why(g) for g in generations if g.exam is not None},
        openings=store.openings(family),
        moves=store.policy_history(family),
        levels=levels,
        Standing=Standing,
    )


def summary(generations: Sequence[Generation]) -> str:
    """The lineage in a sentence or two, without more than was measured."""
    examined = [generation for generation in generations if generation.exam is not None]
    if not examined:
        return "No generation has been grown yet, so there is nothing to compare."
    promoted = [g for g in examined if g.decision.standing is Standing.PROMOTED]
    newest = examined[-1]
    gain = newest.exam.gain if newest.exam else None
    rejected = len(examined) - len(promoted)
    counted = f"{len(examined)} grown, {len(promoted)} promoted, {rejected} rejected."
    forced = sum(g.decision.forced for g in examined)
    override = f" {forced} stand only because a person forced it." if forced else ""
    return (
        f"{counted} The newest, generation {newest.number}, was {newest.decision.standing.value}"
        f"{f' with a gain of {bounds(gain, signed=True)} points' if gain else ''}.{override}"
    )


def levels(exam: Exam, environment: str) -> list[tuple[str, float | None, float | None]]:
    """Pass rates (label, parent, child) of an environment: over all its levels, then by level; 0..1."""
    rates = exam.pass_rates
    marks = Counter(key.split("/")[2] for key in rates if key.count("/") == 2 and key.split("/")[1] == environment)
    names = [("all", environment), *((f"level {mark}", f"{environment}/{mark}") for mark in sorted(marks))]
    return [(label, rates.get(f"parent/{key}"), rates.get(f"child/{key}")) for label, key in names]


def bounds(found: Interval | None, signed: bool = False) -> str:
    """``+6.1 [+2.0, +10.3]``; a dash when it was not measured."""
    if found is None:
        return "–"
    sign = "+" if signed else ""
    return f"{found.point:{sign}.1f} [{found.low:{sign}.1f}, {found.high:{sign}.1f}]"


def percent(rate: float | None) -> str:
    """A rate of 0..1 as a percentage."""
    return "–" if rate is None else f"{rate:.0%}"


def _scores(generations: Sequence[Generation]) -> Any:
    marks = [(g, g.exam.score_interval) for g in generations if g.exam is not None]
    return chart("Score on the sealed holdout, by generation", _marks(marks))


def _gains(generations: Sequence[Generation]) -> Any:
    marks = [(g, g.exam.gain) for g in generations if g.exam is not None]
    return chart("Gain over the parent, by generation", _marks(marks), signed=True)


def _marks(rows: Sequence[tuple[Generation, Interval | None]]) -> list[Mark]:
    """Generations of one number stand side by side in the order they came."""
    seen: Counter[int] = Counter()
    marks = []
    for generation, found in rows:
        if found is None:
            continue
        at = generation.number + SIBLING_STEP * seen[generation.number]
        seen[generation.number] += 1
        rejected = generation.decision.standing is Standing.REJECTED
        label = f"generation {generation.number} ({generation.short[:8]}, {generation.decision.standing.value})"
        marks.append(Mark(label=label, at=at, interval=found, rejected=rejected))
    return marks


def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("loop.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"bounds": bounds, "percent": percent}
    return made
