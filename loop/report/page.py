"""The report: what a lineage gained, on what evidence, and what was decided; read from the store alone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

from jinja2 import Environment, PackageLoader, StrictUndefined

from loop import __version__
from loop.core.errors import TornBlob
from loop.core.experiment import MATCHED, Arm, Findings
from loop.core.figures import Figure, Figures
from loop.core.gate import Interval, Standing
from loop.core.generation import Exam, Generation
from loop.core.score import Scorecard
from loop.gains.comparable import series
from loop.report.bars import Bars, bars
from loop.report.chart import Chart, Mark, chart
from loop.report.moved import Moved, moved
from loop.store.views import OpeningView, PolicyMoveView, StatusView, WhyView

SIBLING_STEP = 0.18
CAPTION = 30  # pixels above a plot that stands alone
ENOUGH_SEEDS = 3  # one seed's luck is not told apart from the arm


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

    def load(self, kind: type[Scorecard], digest: str) -> Scorecard:
        """A stored scorecard; raises TornBlob."""
        ...

    def contract_names(self) -> dict[str, str]:
        """The version of each contract, by digest."""
        ...

    def openings(self, family: str) -> tuple[OpeningView, ...]:
        """Openings of the holdout."""
        ...

    def figures(self) -> tuple[Figures, ...]:
        """Imported figures of other systems."""
        ...

    def policy_history(self, family: str) -> tuple[PolicyMoveView, ...]:
        """Moves of the policy records."""
        ...


def page(store: Lineage, family: str, findings: Findings | None = None) -> str:
    """One HTML document without scripts or links to elsewhere; equal stores give equal pages.

    ``findings`` are those of the lineage's experiment, where there is one.
    """
    generations, names = store.generations(family), store.contract_names()
    template = _environment().get_template("page.html.j2")
    return template.render(
        family=family,
        version=__version__,
        status=store.status(family),
        summary=summary(generations, findings),
        generations=generations,
        known={generation.digest: generation for generation in generations},
        charts=_charts(generations, names),
        names=names,
        findings=findings,
        verdict=verdict(findings) if findings else "",
        arm_plots=_arm_plots(findings),
        cases={g.digest: _cases(store, g.exam) for g in generations if g.exam is not None},
        parts={g.digest: _parts(g.exam) for g in generations if g.exam is not None},
        labels=lambda matrix: sorted({label for row in matrix.values() for label in row}),
        whys={g.digest: store.why(g) for g in generations if g.exam is not None},
        published=by_protocol(store.figures()),
        openings=store.openings(family),
        moves=store.policy_history(family),
        levels=levels,
        Standing=Standing,
    )


def plots(store: Lineage, generation: Generation, findings: Findings | None = None) -> dict[str, str]:
    """The page's plots of a lineage and of one of its generations, each an SVG document of its own, by file name."""
    parts = _parts(generation.exam) if generation.exam is not None else []
    charts = _charts(store.generations(generation.family), store.contract_names())
    return _drawn([*charts, *_arm_plots(findings), *parts])


def arm_plots(findings: Findings) -> dict[str, str]:
    """The plots of an experiment's arms, each an SVG document of its own, by file name."""
    return _drawn(_arm_plots(findings))


def _drawn(found: Sequence[Chart | Bars]) -> dict[str, str]:
    template = _environment().get_template("plot.svg.j2")
    return {_file_name(plot.title): template.render(plot=plot, caption=CAPTION) for plot in found}


def _file_name(title: str) -> str:
    return "-".join(re.findall(r"\w+", title.lower())) + ".svg"


def summary(generations: Sequence[Generation], findings: Findings | None = None) -> str:
    """The lineage in a sentence or two, without more than was measured."""
    examined = [generation for generation in generations if generation.exam is not None]
    if not examined and findings is not None:
        seeds = len({seed for arm in findings.arms for seed in arm.seeds})
        under = f"{seeds} seed{'s' * (seeds != 1)}"
        return f"An experiment of {len(findings.arms)} arms under {under}; each is a lineage of its own."
    if not examined:
        return "No generation has been grown yet, so there is nothing to compare."
    promoted = [g for g in examined if g.decision.standing is Standing.PROMOTED]
    newest = examined[-1]
    gain = newest.exam.gain if newest.exam else None
    rejected = len(examined) - len(promoted)
    counted = f"{len(examined)} grown, {len(promoted)} promoted, {rejected} rejected."
    forced = sum(g.decision.forced for g in examined)
    override = f" {forced} stand although the gate refused them (forced)." if forced else ""
    return (
        f"{counted} The newest, generation {newest.number}, was {newest.decision.standing.value}"
        f"{f' with a gain of {bounds(gain, signed=True)} points' if gain else ''}.{override}"
    )


def by_protocol(sources: Sequence[Figures]) -> dict[str, list[tuple[str, Figure]]]:
    """Imported figures with their sources, by protocol: nothing is compared across protocols."""
    rows = [(source.source, figure) for source in sources for figure in source.figures]
    protocols = sorted({figure.protocol for _, figure in rows})
    return {protocol: [row for row in rows if row[1].protocol == protocol] for protocol in protocols}


def verdict(found: Findings) -> str:
    """Whether gains compound, and whose budget does not match, in sentences that say no more than was measured."""
    apart = ", ".join(f"{arm} {ratio:.3f}" for arm, ratio in found.unmatched.items())
    note = f" Budgets more than {MATCHED:.0%} from the iterated arm's (ratio): {apart}." if apart else ""
    return _compounding(found) + note


def _compounding(found: Findings) -> str:
    gap = found.compounding
    if gap is None:
        return "Compounding was not measured: the arms iterated and one_shot are both needed."
    seeds = len(found.by_seed.get(Arm.ONE_SHOT, {}))
    said = f"{bounds(gap, signed=True)} points over one_shot ({seeds} seed{'s' * (seeds != 1)})"
    if seeds < ENOUGH_SEEDS:
        return f"Too few seeds to say whether gains compound: {said}; {ENOUGH_SEEDS} are asked for."
    if gap.low <= 0 <= gap.high:
        return f"Compounding is not shown: {said}; the interval holds zero."
    claim = "Gains compound" if gap.low > 0 else "Gains do not compound"
    alone = found.over_seeds[Arm.ONE_SHOT]
    beyond = f"the seeds alone say [{alone.low:+.1f}, {alone.high:+.1f}]"
    if alone.low <= 0 <= alone.high:
        return f"{claim} on these seeds: {said}. Of other seeds it is not shown: {beyond}."
    return f"{claim}: {said}; {beyond}."


def _arm_plots(found: Findings | None) -> list[Bars]:
    if found is None:
        return []
    gains = {f"{arm.arm.value} {point.number}": point.gain for arm in found.arms for point in arm.points if point.gain}
    plots = (
        bars("Gain over generation 0, by arm and generation", gains),
        bars("The iterated arm less each other arm", found.contrasts),
    )
    return [plot for plot in plots if plot is not None]


def _cases(store: Lineage, exam: Exam) -> tuple[Moved, ...]:
    """The cases that moved most; none where the scorecards' bytes are gone, since the page is a view."""
    if exam.parent_scorecard is None:
        return ()
    try:
        return moved(store.load(Scorecard, exam.parent_scorecard), store.load(Scorecard, exam.scorecard))
    except TornBlob:
        return ()


def _parts(exam: Exam) -> list[Bars]:
    earlier = {f"tasks of generation {number}": gain for number, gain in exam.earlier.items()}
    plots = (
        bars("Transplant", exam.transplant),
        bars("Shapley values", exam.shapley),
        bars("Backward transfer: gain on earlier tasks", earlier),
    )
    return [plot for plot in plots if plot is not None]


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


def _charts(generations: Sequence[Generation], names: Mapping[str, str]) -> list[Chart]:
    """Scores and gains, each contract's on charts of its own: points of two contracts are no curve."""
    groups = series(generations)
    found = []
    for contract, group in groups.items():
        under = f" under contract {names.get(contract, contract[:8])}" if len(groups) > 1 else ""
        scores = [(g, g.exam.score_interval) for g in group if g.exam is not None]
        gains = [(g, g.exam.gain) for g in group if g.exam is not None]
        found.append(chart(f"Score on the sealed holdout, by generation{under}", _marks(scores)))
        found.append(chart(f"Gain over the parent, by generation{under}", _marks(gains), signed=True))
    return [made for made in found if made is not None]


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
