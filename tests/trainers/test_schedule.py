"""Learning rates against transformers' own schedules."""

from __future__ import annotations

import pytest
import torch
from transformers import (
    get_constant_schedule_with_warmup,
    get_cosine_schedule_with_warmup,
    get_linear_schedule_with_warmup,
)

from loop.core.errors import UserError
from loop.trainers.schedule import learning_rate
from tests.trainers.tiny import PROFILE


@pytest.mark.parametrize("steps", [2, 7, 24, 100])
@pytest.mark.parametrize("name", ["cosine", "linear", "constant"])
def test_rates_equal_those_of_transformers(name: str, steps: int) -> None:
    profile = PROFILE.revise(schedule=name, warmup_ratio=0.1, learning_rate=2e-4)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=2e-4)
    warmup = -(-steps // 10)
    reference = {
        "cosine": lambda: get_cosine_schedule_with_warmup(optimizer, warmup, steps),
        "linear": lambda: get_linear_schedule_with_warmup(optimizer, warmup, steps),
        "constant": lambda: get_constant_schedule_with_warmup(optimizer, warmup),
    }[name]()
    for step in range(steps):
        assert learning_rate(profile, step, steps) == pytest.approx(reference.get_last_lr()[0], rel=1e-9, abs=1e-15)
        optimizer.step()
        reference.step()


@pytest.mark.parametrize("name", ["cosine", "linear", "constant"])
def test_a_training_of_one_step_takes_it_at_the_full_rate(name: str) -> None:
    profile = PROFILE.revise(schedule=name, warmup_ratio=0.1, learning_rate=2e-4)
    assert learning_rate(profile, 0, 1) == 2e-4


def test_an_unknown_schedule_is_a_user_error() -> None:
    with pytest.raises(UserError, match="'square' is not one of constant, cosine, linear"):
        learning_rate(PROFILE.revise(schedule="square"), 0, 3)
