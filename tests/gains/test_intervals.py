"""Intervals equal scipy's where scipy can compute them, and keep every group where it cannot."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from loop.core.contract import Half
from loop.core.episode import Split, Task
from loop.core.score import CaseScore, Scorecard
from loop.gains.intervals import Difference, interval, of_axiom, paired, score_or_zero


def _case(seed: int, score: float | None, *, case: str = "family", sample: int = 0, **axioms: float) -> CaseScore:
    task = Task(environment="tools", case=case, split=Split.HOLDOUT, seed=seed)
    passed = None if score is None else score > 50
    return CaseScore(episode=f"e{seed}", task=task, sample=sample, score=score, passed=passed, axioms=axioms)


def _card(scores: list[CaseScore], contract: str = "c") -> Scorecard:
    return Scorecard(contract=contract, pair="p", half=Half.SEALED, scores=tuple(scores))


def test_one_case_a_cluster_agrees_with_scipys_bca_of_the_mean() -> None:
    values = np.random.default_rng(7).gamma(2.0, 3.0, 60)
    rows = [Difference(environment="a", group="a", cluster=str(i), value=float(v)) for i, v in enumerate(values)]
    ours = interval(rows, draws=20_000)
    # The corrections for few clusters by hand: n of n draws have (n - 1) / n of the variance, and t is not normal.
    widened = values.mean() + (values - values.mean()) * np.sqrt(60 / 59)
    level = stats.norm.cdf(stats.t.ppf(0.975, 59)) - stats.norm.cdf(stats.t.ppf(0.025, 59))
    theirs = stats.bootstrap(
        (widened,), np.mean, method="BCa", confidence_level=level, n_resamples=20_000, rng=np.random.default_rng(1)
    )
    assert ours is not None
    assert ours.point == pytest.approx(values.mean())
    width = theirs.confidence_interval.high - theirs.confidence_interval.low
    assert ours.low == pytest.approx(theirs.confidence_interval.low, abs=0.03 * width)
    assert ours.high == pytest.approx(theirs.confidence_interval.high, abs=0.03 * width)


def test_few_clusters_a_group_still_cover() -> None:
    # Seven groups of two clusters, as the default exam has: plain resampling would see half of their variance.
    covered = 0
    for number in range(300):
        generator = np.random.default_rng(number)
        rows = [
            Difference(environment="a", group=str(g), cluster=f"{g}/{c}", value=float(generator.normal()))
            for g in range(7)
            for c in range(2)
        ]
        found = interval(rows, draws=400, seed=number)
        covered += found is not None and found.low <= 0 <= found.high
    assert covered >= stats.binom.ppf(0.001, 300, 0.93)


def test_the_point_is_the_macro_average_by_hand() -> None:
    rows = [
        Difference(environment="a", group="x", cluster="1", value=1.0),
        Difference(environment="a", group="x", cluster="2", value=3.0),
        Difference(environment="a", group="y", cluster="3", value=10.0),
        Difference(environment="b", group="b", cluster="4", value=0.0),
    ]
    found = interval(rows)
    assert found is not None
    assert found.point == pytest.approx(((2.0 + 10.0) / 2 + 0.0) / 2)
    assert (found.n, found.clusters) == (4, 4)


def test_correlated_cases_widen_the_interval() -> None:
    generator = np.random.default_rng(3)
    shifts = generator.normal(0, 1, 20)
    rows = [
        Difference(environment="a", group="a", cluster=str(c), value=float(shifts[c] + 0.1 * generator.normal()))
        for c in range(20)
        for _ in range(5)
    ]
    loose = [row.revise(cluster=str(i)) for i, row in enumerate(rows)]
    clustered, free = interval(rows), interval(loose)
    assert clustered is not None and free is not None
    assert clustered.high - clustered.low > 1.7 * (free.high - free.low)


def test_equal_clusters_give_the_point_and_no_rows_give_none() -> None:
    rows = [Difference(environment="a", group="a", cluster=str(i), value=2.0) for i in range(5)]
    found = interval(rows)
    assert found is not None and (found.low, found.point, found.high) == (2.0, 2.0, 2.0)
    assert interval([]) is None


def test_the_same_rows_give_the_same_interval() -> None:
    rows = [Difference(environment="a", group="a", cluster=str(i % 7), value=float(i % 5)) for i in range(30)]
    assert interval(rows, seed=4) == interval(rows, seed=4)


def test_a_nominal_95_percent_interval_covers_about_95_percent() -> None:
    generator = np.random.default_rng(11)
    hits, trials = 0, 300
    for _ in range(trials):
        shifts = generator.normal(2.0, 1.0, 40)
        rows = [
            Difference(environment="a", group="a", cluster=str(c), value=float(shifts[c] + generator.normal()))
            for c in range(40)
            for _ in range(3)
        ]
        found = interval(rows, draws=500)
        assert found is not None
        hits += found.low <= 2.0 <= found.high
    assert 0.91 <= hits / trials <= 0.98  # 95 % within three standard errors of 300 trials


def test_pairs_are_child_minus_parent_on_the_same_case() -> None:
    parent = _card([_case(1, 10.0, honest=0.5), _case(2, 20.0)])
    child = _card([_case(2, 50.0), _case(1, 15.0, honest=1.0)])
    assert sorted(row.value for row in paired(parent, child)) == [5.0, 30.0]
    assert [row.value for row in paired(parent, child, of_axiom("honest"))] == [50.0]


def test_an_unscored_case_is_dropped_or_zero_by_the_denominator() -> None:
    parent, child = _card([_case(1, 10.0), _case(2, 20.0)]), _card([_case(1, None), _case(2, 30.0)])
    assert [row.value for row in paired(parent, child)] == [10.0]
    assert sorted(row.value for row in paired(parent, child, score_or_zero)) == [-10.0, 10.0]


def test_different_contracts_or_cases_do_not_compare() -> None:
    with pytest.raises(ValueError, match="different contracts"):
        paired(_card([_case(1, 1.0)]), _card([_case(1, 1.0)], contract="other"))
    with pytest.raises(ValueError, match="same cases"):
        paired(_card([_case(1, 1.0)]), _card([_case(2, 1.0)]))
