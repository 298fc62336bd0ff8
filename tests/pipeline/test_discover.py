"""The ladder: up to one rung above the highest reached, without the mastered ones."""

from __future__ import annotations

import pytest

from loop.pipeline.discover import frontier


@pytest.mark.parametrize(
    ("experience", "levels"),
    [
        ({}, (1, 2)),
        ({"tools/1": 0.4, "tools/2": 0.0}, (1, 2)),
        ({"tools/1": 0.6, "tools/2": 0.2}, (1, 2, 3)),
        ({"tools/1": 0.95, "tools/2": 0.5, "tools/3": 0.1}, (2, 3, 4)),
        ({"tools/4": 0.95, "tools/5": 0.97}, (5,)),
        ({"tools/2": 0.5, "tools/3": 0.0}, (2, 3)),
        ({"coding/1": 0.9}, (1, 2)),
    ],
)
def test_the_frontier(experience: dict[str, float], levels: tuple[int, ...]) -> None:
    assert frontier("tools", 5, experience) == levels


def test_one_rung_is_always_met() -> None:
    assert frontier("scenarios", 1, {"scenarios/1": 0.99}) == (1,)
