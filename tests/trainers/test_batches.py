"""What each step is planned to see."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loop.trainers.batches import plan_batches, row_id
from tests.trainers.tiny import PROFILE, tiny_rows


@settings(max_examples=50, deadline=None)
@given(count=st.integers(1, 40), batch=st.integers(1, 9), epochs=st.integers(1, 3), seed=st.integers(0, 5))
def test_each_epoch_uses_each_row_once_in_even_batches(count: int, batch: int, epochs: int, seed: int) -> None:
    profile = PROFILE.revise(batch_rows=batch, epochs=epochs, steps=None)
    plan = plan_batches(tiny_rows(count), profile, seed)
    assert Counter(index for step in plan for index in step) == {index: epochs for index in range(count)}
    sizes = {len(step) for step in plan}
    assert max(sizes) <= batch
    assert max(sizes) - min(sizes) <= 1
    assert plan == plan_batches(tiny_rows(count), profile, seed)


def test_steps_win_over_epochs_and_no_row_is_seen_twice_before_all_are_seen_once() -> None:
    plan = plan_batches(tiny_rows(14), PROFILE.revise(batch_rows=4, steps=7, epochs=9), 1)
    assert len(plan) == 7
    seen = Counter(index for step in plan for index in step)
    assert max(seen.values()) - min(seen[index] for index in range(14)) <= 1


@settings(max_examples=50, deadline=None)
@given(count=st.integers(1, 30), batch=st.integers(1, 9), share=st.floats(0.2, 6.0), seed=st.integers(0, 5))
def test_tokens_win_over_epochs_and_end_at_the_nearest_row(count: int, batch: int, share: float, seed: int) -> None:
    rows = tiny_rows(count)
    lengths = [len(row.prompt_ids) + len(row.response_ids) for row in rows]
    wanted = max(1, round(share * sum(lengths)))
    plan = plan_batches(rows, PROFILE.revise(batch_rows=batch, epochs=1, steps=None, tokens=wanted), seed)
    spent = sum(lengths[index] for step in plan for index in step)
    first = lengths[plan[0][0]]
    assert abs(spent - wanted) <= max(lengths) / 2 or spent == first > wanted
    assert all(step for step in plan)


def test_another_seed_is_another_order() -> None:
    assert plan_batches(tiny_rows(), PROFILE, 1) != plan_batches(tiny_rows(), PROFILE, 2)


def test_rows_of_one_prompt_start_are_batched_together() -> None:
    rows = tiny_rows(8, seed=1) + tiny_rows(8, seed=2)
    for step in plan_batches(rows, PROFILE.revise(batch_rows=4, steps=None), 3):
        assert len({rows[index].prompt_ids[:10] for index in step}) == 1


def test_no_rows_is_an_error() -> None:
    with pytest.raises(ValueError, match="no rows"):
        plan_batches((), PROFILE, 0)


def test_a_row_is_named_by_episode_and_turn() -> None:
    assert row_id(tiny_rows(1)[0]) == "episode0:0"
