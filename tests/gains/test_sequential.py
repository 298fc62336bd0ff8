"""The promotion test against scipy's exact permutations, and the alpha budget against its sum."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from loop.gains.intervals import Difference, interval
from loop.gains.sequential import contributions, draws_for, share, sign_flip


def _rows(values: list[float], cases: int = 1) -> list[Difference]:
    return [
        Difference(environment="a", group="a", cluster=str(c), value=value)
        for c, value in enumerate(values)
        for _ in range(cases)
    ]


@pytest.mark.parametrize("seed", range(4))
def test_the_p_value_is_scipys_exact_one(seed: int) -> None:
    values = np.random.default_rng(seed).normal(0.4, 1.0, 12)
    exact = stats.permutation_test(
        (values,), np.mean, permutation_type="samples", alternative="greater", n_resamples=np.inf
    )
    found = sign_flip(_rows(values.tolist()), draws=200_000)
    assert found == pytest.approx(exact.pvalue, abs=4 * math.sqrt(exact.pvalue / 200_000) + 1e-5)


def test_repeated_cases_of_a_cluster_are_no_evidence() -> None:
    values = [3.0, -1.0, 2.0, 4.0, 1.0]
    assert sign_flip(_rows(values, cases=20), draws=20_000) == sign_flip(_rows(values), draws=20_000)
    # Of 2^5 sign patterns three reach 9, by hand: the observed, -1 turned (11), and -1 and 1 turned (9).
    assert sign_flip(_rows(values), draws=200_000) == pytest.approx(3 / 32, abs=0.003)


def test_what_did_not_change_costs_no_power() -> None:
    ups = _rows([100.0] * 8)
    still = [Difference(environment="b", group=str(i % 7), cluster=str(i), value=0.0) for i in range(28)]
    assert sign_flip([*ups, *still], draws=200_000) == pytest.approx(1 / 256, abs=0.001)


@given(st.lists(st.tuples(st.sampled_from("xyz"), st.sampled_from("123"), st.floats(-100, 100)), min_size=1))
def test_contributions_sum_to_the_point_of_the_interval(table: list[tuple[str, str, float]]) -> None:
    rows = [Difference(environment=g < "z" and "a" or "b", group=g, cluster=c, value=v) for g, c, v in table]
    found = interval(rows, draws=50)
    assert found is not None
    assert contributions(rows).sum() == pytest.approx(found.point, abs=1e-9)


def test_the_shares_of_all_looks_sum_to_alpha() -> None:
    assert math.fsum(share(0.05, look) for look in range(1, 200_001)) == pytest.approx(0.05, abs=1e-6)
    assert share(0.05, 1) == pytest.approx(0.0304, abs=1e-4)
    assert all(draws_for(share(0.05, look)) * share(0.05, look) >= 10 for look in (1, 5, 20))
    for alpha, look in ((0.0, 1), (1.0, 1), (0.05, 0)):
        with pytest.raises(ValueError, match="alpha"):
            share(alpha, look)


def test_no_rows_no_p_value() -> None:
    assert sign_flip([], draws=10) is None
