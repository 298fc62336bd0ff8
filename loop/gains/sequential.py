"""Promotion after promotion on one holdout: a test of each gain, and the alpha that all of them share.

A lineage looks at its holdout once a generation, for as long as it lives. Look g may err
with probability ``alpha * 6 / (pi * g)^2``; over any number of looks, however they depend
on each other and whenever one stops, the chance of a single false promotion is at most
``alpha`` (the union bound, since the shares of all looks sum to one). Each look is a
one-sided sign-flip test over clusters (Fisher 1935; Winkler et al. 2014, exchangeability
blocks): were parent and child alike, a cluster's difference would be as likely with either
sign. It is exact for that null at any sample size and needs no variance, so environments
that did not change cost no power.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from loop.core.noun import seed_from
from loop.gains.intervals import Difference

Array = np.ndarray[Any, Any]
DRAWS_AT_ONCE = 4096


def share(alpha: float, look: int) -> float:
    """What of the alpha budget the look-th look (1, 2, ...) may use; all shares sum to alpha.

    Raises ValueError for an alpha outside (0, 1) or a look before the first.
    """
    if not 0 < alpha < 1 or look < 1:
        raise ValueError(f"alpha {alpha} and look {look}: expected 0 < alpha < 1 and a look of 1 or more")
    return 6.0 * alpha / (math.pi * look) ** 2


def draws_for(level: float, least: int = 9_999) -> int:
    """Enough sign flips that a p-value of a tenth of the level can be seen."""
    return max(least, math.ceil(10.0 / level))


def sign_flip(rows: Sequence[Difference], *, draws: int, seed: int = 0) -> float | None:
    """The one-sided p-value of the macro-averaged gain being above zero; None for no rows.

    Signs are flipped by whole clusters; the observed signs count as one draw, so the
    p-value is at least 1 / (draws + 1) and the test is exact for any number of draws.
    """
    if not rows:
        return None
    share_C = contributions(rows)
    observed = float(share_C.sum())
    generator = np.random.default_rng(seed_from("sign_flip", seed))
    # Sums of equal numbers in another order may differ in the last bits; they are equal.
    bar = observed - 1e-9 * max(1.0, float(np.abs(share_C).sum()))
    as_large = 0
    for start in range(0, draws, DRAWS_AT_ONCE):
        count = min(DRAWS_AT_ONCE, draws - start)
        sign_DC = 1.0 - 2.0 * generator.integers(0, 2, (count, len(share_C)))
        as_large += int((sign_DC @ share_C >= bar).sum())
    return (1 + as_large) / (1 + draws)


def contributions(rows: Sequence[Difference]) -> Array:
    """What each cluster adds to the macro-average, float64 [clusters]; they sum to the point."""
    counts: dict[tuple[str, str], int] = defaultdict(int)
    sums: dict[tuple[str, str, str], float] = defaultdict(float)
    for row in rows:
        counts[row.environment, row.group] += 1
        sums[row.environment, row.group, row.cluster] += row.value
    environments = {environment for environment, _ in counts}
    groups = {name: sum(environment == name for environment, _ in counts) for name in environments}
    found = [
        total / (counts[environment, group] * groups[environment] * len(environments))
        for (environment, group, _), total in sorted(sums.items())
    ]
    return np.array(found, dtype=np.float64)
