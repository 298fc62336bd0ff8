"""The minimum detectable effect against textbook quantiles and a simulation."""

from __future__ import annotations

import numpy as np
import pytest

from loop.core.gate import Interval
from loop.gains.power import detectable, standard_error


def _gain(half: float, n: int = 100, point: float = 1.0) -> Interval:
    return Interval(point=point, low=point - half, high=point + half, n=n, clusters=10)


def test_the_error_behind_a_95_percent_interval_is_its_half_width_over_1_96() -> None:
    assert standard_error(_gain(1.96)) == pytest.approx(1.0, abs=1e-3)


def test_one_sided_5_percent_and_80_percent_power_take_2_486_errors() -> None:
    # z(0.95) = 1.645 and z(0.80) = 0.842 in every table of the normal distribution
    found = detectable([_gain(1.96)], 100, 0.05)
    assert found is not None and found.effect == pytest.approx(1.6449 + 0.8416, abs=2e-3)


def test_four_times_the_cases_see_half_the_effect() -> None:
    few, many = detectable([_gain(3.0)], 100, 0.05), detectable([_gain(3.0)], 400, 0.05)
    assert few is not None and many is not None
    assert many.effect == pytest.approx(few.effect / 2)


def test_nothing_is_known_before_a_successor_has_differed_from_its_parent() -> None:
    assert detectable([], 100, 0.05) is None
    assert detectable([_gain(0.0)], 100, 0.05) is None


def test_a_true_effect_of_that_size_is_found_as_often_as_the_power_says() -> None:
    found = detectable([_gain(1.96)], 100, 0.03)
    assert found is not None
    draws = np.random.default_rng(1).normal(found.effect, 1.0, 200_000)
    assert float((draws > 1.8808).mean()) == pytest.approx(0.8, abs=0.005)  # z(0.97) = 1.8808
