"""Comparing two scorings of the same cases, with figures worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from loop.core.episode import Split, Task
from loop.core.manifest import Floor
from loop.core.score import CaseScore
from loop.gains.agreement import agreement, disagreements


def _scores(values: Sequence[float | None], environment: str = "tools") -> list[CaseScore]:
    """Each case is a cluster of its own."""
    return [
        CaseScore(
            episode=f"{index}",
            task=Task(environment=environment, case=f"family{index}", split=Split.HOLDOUT, seed=index),
            sample=0,
            score=value,
            passed=None,
        )
        for index, value in enumerate(values)
    ]


def test_equal_scores_agree_without_a_floor() -> None:
    found = agreement(_scores([0.0, 50.0, None]), _scores([0.0, 50.0, None]))
    assert (found.cases, found.moved, found.undecided, found.largest, found.mean) == (3, 0, 0, 0.0, 0.0)
    assert disagreements(found, None) == ()


def test_the_largest_and_the_mean_difference_are_taken_over_the_cases_decided_twice() -> None:
    found = agreement(_scores([10.0, 20.0, 30.0, None]), _scores([10.0, 26.0, 27.0, 5.0]))
    assert (found.cases, found.moved, found.undecided) == (4, 2, 1)
    assert found.largest == 6.0
    assert found.mean == pytest.approx((0 + 6 + 3) / 3)


def test_a_difference_is_noise_up_to_the_floor_and_no_further() -> None:
    found = agreement(_scores([10.0, 20.0]), _scores([10.0, 26.0]))
    assert disagreements(found, Floor(value=6.0, cases=20)) == ()
    (above,) = disagreements(found, Floor(value=5.9, cases=20))
    assert "6.00 points" in above and "5.90" in above
    (unmeasured,) = disagreements(found, None)
    assert "no noise floor" in unmeasured


def test_scores_that_all_moved_one_way_are_not_noise_however_small_the_step() -> None:
    # Ten clusters with one sign: 2^-10 each side, 0.002 in all.
    found = agreement(_scores([50.0] * 10), _scores([51.0] * 10))
    assert found.p == pytest.approx(2 / 1024, abs=0.001)
    (reason,) = disagreements(found, Floor(value=60.0, cases=20))
    assert "one direction" in reason


def test_as_many_steps_up_as_down_are_noise() -> None:
    found = agreement(_scores([50.0] * 10), _scores([51.0, 49.0] * 5))
    assert found.p == 1.0
    assert disagreements(found, Floor(value=1.0, cases=20)) == ()


def test_a_case_that_one_scoring_left_undecided_is_never_noise() -> None:
    found = agreement(_scores([None, 1.0]), _scores([1.0, 1.0]))
    (reason,) = disagreements(found, Floor(value=100.0, cases=20))
    assert "1 case scores are decided in one" in reason


def test_other_cases_do_not_compare() -> None:
    with pytest.raises(ValueError, match="same cases"):
        agreement(_scores([1.0, 2.0]), _scores([1.0, 2.0], "coding"))
