"""pass@k against enumeration, and the alarm on lost diversity."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loop.gains.coverage import collapse_alarms, distinct_share, pass_at_k


@given(st.integers(1, 9).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_is_the_share_of_draws_of_k_that_hold_a_pass(sizes: tuple[int, int, int]) -> None:
    n, c, k = sizes
    samples = [True] * c + [False] * (n - c)
    draws = list(combinations(samples, k))
    assert pass_at_k(n, c, k) == pytest.approx(sum(any(draw) for draw in draws) / len(draws))


def test_pass_at_k_refuses_more_draws_than_samples() -> None:
    with pytest.raises(ValueError, match="0 < k <= n"):
        pass_at_k(3, 1, 4)


def test_collapse_is_named_when_pass_at_k_falls_onto_pass_at_1() -> None:
    before = {"tools/pass@1": 0.3, "tools/pass@k": 0.7, "tools/distinct": 0.9}
    after = {"tools/pass@1": 0.5, "tools/pass@k": 0.52, "tools/distinct": 0.3}
    alarms = collapse_alarms(before, after)
    assert len(alarms) == 2 and all("tools" in alarm for alarm in alarms)
    assert collapse_alarms(before, before) == ()


def test_equal_replies_to_a_mastered_task_are_no_alarm() -> None:
    before = {"tools/pass@1": 0.5, "tools/pass@k": 1.0, "tools/distinct": 0.5}
    after = {"tools/pass@1": 1.0, "tools/pass@k": 1.0, "tools/distinct": 0.125}
    assert collapse_alarms(before, after) == ()


def test_distinct_share_by_hand() -> None:
    assert distinct_share([["a", "a", "b", "c"], ["x", "x"], ["alone"]]) == pytest.approx((0.75 + 0.5) / 2)
    assert distinct_share([]) is None
