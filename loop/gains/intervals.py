"""Paired, clustered bootstrap intervals over cases (BCa, by scipy).

The unit of analysis is the case; the unit of resampling is the cluster (scenario x
persona, or family x level of a ladder). Clusters are drawn within their group, so each
replicate keeps every scenario, and the statistic is the contract's own macro-average:
cases within a group, groups within an environment, environments (GAINS.md, Statistics).
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from loop.core.gate import Interval
from loop.core.noun import Noun, seed_from
from loop.core.score import CaseScore, Scorecard

Array = np.ndarray[Any, Any]
Value = Callable[[CaseScore], float | None]


class Difference(Noun):
    """One case's value (a score, or child minus parent) with where it belongs."""

    environment: str
    group: str
    cluster: str
    value: float


def by_score(score: CaseScore) -> float | None:
    """The case score, 0..100; None when unscored."""
    return score.score


def score_or_zero(score: CaseScore) -> float | None:
    """The second denominator: an unscored case counts as zero."""
    return 0.0 if score.score is None else score.score


def of_axiom(axiom: str) -> Value:
    """The value of one axiom in points, 0..100; None where it was not decided."""

    def value(score: CaseScore) -> float | None:
        found = score.axioms.get(axiom)
        return None if found is None else 100.0 * found

    return value


def single(card: Scorecard, value: Value = by_score) -> tuple[Difference, ...]:
    """The values of one scorecard, for the interval of a score."""
    found = ((score, value(score)) for score in card.scores)
    return tuple(_placed(score, points) for score, points in found if points is not None)


def paired(parent: Scorecard, child: Scorecard, value: Value = by_score) -> tuple[Difference, ...]:
    """Child minus parent on the same task and sample; cases decided in both.

    Raises ValueError when the two were scored under different contracts or halves, or
    did not meet the same cases.
    """
    if (parent.contract, parent.half) != (child.contract, child.half):
        raise ValueError("scorecards of different contracts do not compare: rescore the ancestor first")
    before = {(score.task.digest, score.sample): score for score in parent.scores}
    after = {(score.task.digest, score.sample): score for score in child.scores}
    if before.keys() != after.keys():
        raise ValueError("parent and child did not meet the same cases")
    rows = []
    for key, score in after.items():
        old, new = value(before[key]), value(score)
        if old is not None and new is not None:
            rows.append(_placed(score, new - old))
    return tuple(rows)


def _placed(score: CaseScore, value: float) -> Difference:
    task = score.task
    return Difference(environment=task.environment, group=task.group, cluster=task.cluster, value=value)


def interval(rows: Sequence[Difference], *, level: float = 0.95, draws: int = 2000, seed: int = 0) -> Interval | None:
    """The macro-average with its BCa interval; None for no rows.

    Where every cluster has the same mean, or a group has one case only, resampling says
    nothing and the interval is the point (its width then understates the uncertainty).
    """
    if not rows:
        return None
    tables, weights = _tables(rows)
    point = float(
        sum(weight * table[:, 0].sum() / table[:, 1].sum() for weight, table in zip(weights, tables, strict=True))
    )
    clusters = sum(len(table) for table in tables)
    low, high = _bounds(tables, weights, point, level, draws, seed)
    return Interval(point=point, low=low, high=high, level=level, n=len(rows), clusters=clusters)


def _tables(rows: Sequence[Difference]) -> tuple[list[Array], list[float]]:
    """Per group: an array [clusters, 2] of (sum, count); and the group's weight in the mean."""
    groups: Mapping[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        groups[(row.environment, row.group)][row.cluster].append(row.value)
    environments = sorted({environment for environment, _ in groups})
    sizes = {name: sum(environment == name for environment, _ in groups) for name in environments}
    tables, weights = [], []
    for (environment, _), clusters in sorted(groups.items()):
        units = [values for _, values in sorted(clusters.items())]
        if len(units) == 1:  # one cluster cannot be resampled: fall back to its cases
            units = [[value] for value in units[0]]
        tables.append(_rescaled(np.array([[sum(values), len(values)] for values in units], dtype=np.float64)))
        weights.append(1.0 / (len(environments) * sizes[environment]))
    return tables, weights


def _rescaled(table: Array) -> Array:
    """Clusters with their deviations from the group's mean widened by sqrt(n / (n - 1)); the mean stays.

    Drawing n of n clusters understates the variance by (n - 1) / n (Rao and Wu 1988), which
    in groups of two to four clusters is most of it: without this, nominal 95 % intervals of
    an exam's shape covered 90 % (benchmarks/coverage.py).
    """
    count = len(table)
    if count < 2:
        return table
    mean = table[:, 0].sum() / table[:, 1].sum()
    expected = mean * table[:, 1]
    widened = expected + (table[:, 0] - expected) * np.sqrt(count / (count - 1))
    return np.stack((widened, table[:, 1]), axis=1)


def _expanded(tables: Sequence[Array], weights: Sequence[float], level: float) -> float:
    """The level whose normal quantile is the t quantile of ``level`` (Hesterberg 2015, expanded percentiles).

    A bootstrap of few clusters has the spread of a normal where a t is due; the degrees of
    freedom are Satterthwaite's over the groups.
    """
    variances, freedoms = [], []
    for table, weight in zip(tables, weights, strict=True):
        residual = table[:, 0] - table[:, 1] * table[:, 0].sum() / table[:, 1].sum()
        variances.append(float((weight * residual / table[:, 1].sum()) @ (weight * residual / table[:, 1].sum())))
        freedoms.append(len(table) - 1)
    total = sum(variances)
    if total <= 0:
        return level
    freedom = total**2 / sum(v**2 / f for v, f in zip(variances, freedoms, strict=True))
    return float(1 - 2 * stats.norm.sf(stats.t.isf((1 - level) / 2, freedom)))


def _bounds(
    tables: list[Array], weights: list[float], point: float, level: float, draws: int, seed: int
) -> tuple[float, float]:
    moving = [index for index, table in enumerate(tables) if len(table) > 1]
    fixed = sum(w * t[0, 0] / t[0, 1] for w, t in zip(weights, tables, strict=True) if len(t) == 1)
    means = [tables[index][:, 0] / tables[index][:, 1] for index in moving]
    if not moving or all(np.ptp(mean) < 1e-12 for mean in means):
        return point, point

    def statistic(*samples: Array, axis: int = -1) -> Array:
        total: Array = np.asarray(fixed, dtype=np.float64)
        for index, chosen in zip(moving, samples, strict=True):
            drawn = tables[index][chosen.astype(np.intp)]  # [..., clusters, 2]
            sums = drawn.sum(axis=-2)
            total = total + weights[index] * sums[..., 0] / sums[..., 1]
        return total

    samples = tuple(np.arange(len(tables[index])) for index in moving)
    generator = np.random.default_rng(seed_from("bootstrap", seed))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scipy warns of degenerate draws; they are handled below
        wide = _expanded([tables[index] for index in moving], [weights[index] for index in moving], level)
        found = _bootstrap(samples, statistic, wide, draws, generator, "BCa")
        if not np.isfinite(found).all():
            found = _bootstrap(samples, statistic, wide, draws, generator, "percentile")
    return float(found[0]), float(found[1])


def _bootstrap(
    samples: tuple[Array, ...],
    statistic: Callable[..., Array],
    level: float,
    draws: int,
    generator: np.random.Generator,
    method: str,
) -> tuple[float, float]:
    result = stats.bootstrap(
        samples,
        statistic,
        n_resamples=draws,
        confidence_level=level,
        method=method,
        vectorized=True,
        axis=-1,
        rng=generator,
    )
    return result.confidence_interval.low, result.confidence_interval.high
