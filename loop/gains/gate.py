"""The first gate: a gain above zero, no axiom shown worse, no Goodhart gap, every adapter attested."""

from __future__ import annotations

from loop.core.gate import Decision, Interval, Rule, Standing
from loop.core.generation import Exam


def decide(exam: Exam, attested: bool, *, margin: float, forced: bool = False) -> Decision:
    """Promote iff every rule passes; the record keeps each rule's figures either way.

    An axiom is worse when its gain lies beyond ``-margin`` points and its interval lies
    below zero: with a laptop's number of cases an interval is wider than the margin, so
    the point alone would refuse by luck. The total gain must hold under both denominators.
    """
    rules = (_gain_rule(exam), _axiom_rule(exam, margin), _goodhart_rule(exam), _attested_rule(attested))
    promoted = forced or all(rule.passed for rule in rules)
    standing = Standing.PROMOTED if promoted else Standing.REJECTED
    return Decision(standing=standing, rules=rules, forced=forced and not all(rule.passed for rule in rules))


def _gain_rule(exam: Exam) -> Rule:
    both = (exam.gain, exam.gain_unscored_zero)
    passed = all(gain is not None and gain.low > 0 for gain in both)
    text = "the gain's interval lies above zero" if passed else "the gain's interval does not lie above zero"
    figures: dict[str, float | None] = {}
    for name, gain in zip(("dropped", "zero"), both, strict=True):
        figures |= {f"{name}_{part}": getattr(gain, part) if gain else None for part in ("point", "low", "high")}
    return Rule(name="total_gain", passed=passed, text=text, figures=figures)


def _axiom_rule(exam: Exam, margin: float) -> Rule:
    worse = [axiom for axiom, gain in exam.axiom_gains.items() if shown_worse(gain, margin)]
    text = f"worse beyond {margin:g} points: {', '.join(worse)}" if worse else "no axiom is shown worse"
    figures: dict[str, float | None] = {axiom: gain.point for axiom, gain in exam.axiom_gains.items()}
    return Rule(name="axioms", passed=not worse, text=text, figures=figures)


def _goodhart_rule(exam: Exam) -> Rule:
    """Learning the checks that can be seen, without what they stand for, shows as a gap above zero."""
    gap = exam.goodhart
    passed = gap is None or gap.low <= 0
    text = "the visible checks gained more than the sealed ones" if not passed else "no Goodhart gap is shown"
    figures: dict[str, float | None] = {part: getattr(gap, part) if gap else None for part in ("point", "low", "high")}
    return Rule(name="goodhart", passed=passed, text=text, figures=figures)


def shown_worse(gain: Interval, margin: float) -> bool:
    """Whether a loss beyond the margin is shown: the point below it, the interval below zero."""
    return gain.point < -margin and gain.high < 0


def _attested_rule(attested: bool) -> Rule:
    text = "every adapter was attested" if attested else "an adapter was not attested"
    return Rule(name="attested", passed=attested, text=text)
