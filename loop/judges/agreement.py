"""How far judges agree: Krippendorff's alpha for scores on an interval scale."""

from __future__ import annotations

from collections.abc import Sequence


def krippendorff_alpha(units: Sequence[Sequence[float | None]]) -> float | None:
    """Krippendorff's alpha with the interval metric; ``units[unit][judge]``, None where a judge gave no score.

    1 is full agreement, 0 what chance gives. Units with fewer than two scores are left
    out. None when nothing can be compared, or when all scores are the same (alpha is then
    0/0). Krippendorff, Content Analysis (2019), 12.3: alpha = 1 - observed / expected
    disagreement, with squared differences.
    """
    pairable = [scores for unit in units if len(scores := [score for score in unit if score is not None]) > 1]
    values = [score for scores in pairable for score in scores]
    if not values:
        return None
    observed = sum(_squared_differences(scores) / (len(scores) - 1) for scores in pairable) / len(values)
    expected = _squared_differences(values) / (len(values) * (len(values) - 1))
    return 1 - observed / expected if expected > 0 else None


def _squared_differences(values: Sequence[float]) -> float:
    """The sum of squared differences over all ordered pairs: 2 n sum (v - mean)^2."""
    mean = sum(values) / len(values)
    return 2 * len(values) * sum((value - mean) ** 2 for value in values)
