"""Krippendorff's alpha against its author's worked example and against a peer library."""

from __future__ import annotations

import krippendorff
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loop.judges.agreement import krippendorff_alpha

# Krippendorff, "Computing Krippendorff's Alpha-Reliability" (2011), example with four
# observers, twelve units and missing data; its alpha for interval data is 0.849.
_ = None
OBSERVERS = (
    (1, 2, 3, 3, 2, 1, 4, 1, 2, _, _, _),
    (1, 2, 3, 3, 2, 2, 4, 1, 2, 5, _, 3),
    (_, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, _),
    (1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, _),
)


def test_the_published_example_gives_the_published_value() -> None:
    assert krippendorff_alpha(list(zip(*OBSERVERS, strict=True))) == pytest.approx(0.849, abs=5e-4)


score = st.one_of(st.none(), st.floats(0, 1, width=16))


@given(st.lists(st.tuples(score, score, score), min_size=2, max_size=12))
def test_it_equals_a_peer_library(units: list[tuple[float | None, ...]]) -> None:
    found = krippendorff_alpha(units)
    table = np.array([[np.nan if value is None else value for value in unit] for unit in units]).T
    values = {value for unit in units if sum(v is not None for v in unit) > 1 for value in unit if value is not None}
    if len(values) < 2:
        assert found is None
    else:
        expected = krippendorff.alpha(reliability_data=table, level_of_measurement="interval")
        assert found == pytest.approx(expected, abs=1e-6)


def test_one_judge_alone_has_no_agreement() -> None:
    assert krippendorff_alpha([(0.1,), (0.9,)]) is None
    assert krippendorff_alpha([]) is None
