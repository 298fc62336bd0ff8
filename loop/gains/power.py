"""What an exam can see: the smallest gain that a plan would detect, before anything is spent on it.

Answers are greedy and the engine's are equal for equal requests, so the A/A difference of
an unchanged pair is zero and says nothing about power. What hides a gain is that a
successor answers some cases better and others worse; that spread is read off the gains of
earlier successors (Cohen 1988, chapter 1: the effect that a one-sided test at ``alpha``
finds with the wanted power is (z_alpha + z_power) standard errors).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from scipy import stats

from loop.core.gate import Interval
from loop.core.noun import Noun

POWER = 0.8


class Detectable(Noun):
    """The minimum detectable effect in points, and what it rests on: ``exams`` earlier gains, ``cases`` planned."""

    effect: float
    error: float
    alpha: float
    power: float
    exams: int
    cases: int


def standard_error(gain: Interval) -> float:
    """The standard error, in points, behind an interval: half its width over the normal quantile."""
    return (gain.high - gain.low) / 2.0 / float(stats.norm.ppf(0.5 + gain.level / 2.0))


def detectable(gains: Sequence[Interval], cases: int, alpha: float, power: float = POWER) -> Detectable | None:
    """The smallest gain that an exam of ``cases`` would find at ``alpha``; None without an earlier exam.

    Earlier errors are pooled as a root mean square and scaled by the square root of the
    numbers of cases. Gains without any spread (nothing changed) are left out.
    """
    errors = [standard_error(gain) * math.sqrt(gain.n / cases) for gain in gains if gain.high > gain.low]
    if not errors or cases <= 0:
        return None
    error = math.sqrt(math.fsum(value**2 for value in errors) / len(errors))
    effect = float(stats.norm.isf(alpha) + stats.norm.ppf(power)) * error
    return Detectable(effect=effect, error=error, alpha=alpha, power=power, exams=len(errors), cases=cases)
