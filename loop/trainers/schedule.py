"""The learning rate of each optimiser step."""

from __future__ import annotations

import math

from loop.core.errors import UserError
from loop.core.training_set import TrainingProfile

SCHEDULES = ("constant", "cosine", "linear")


def learning_rate(profile: TrainingProfile, step: int, steps: int) -> float:
    """The rate of step ``step`` (from 0) of ``steps``.

    Linear warm-up from 0 over ceil(warmup_ratio x steps) steps, then the profile's
    schedule: half a cosine down to 0, a line down to 0, or constant. The formulas are
    those of transformers' ``get_cosine_schedule_with_warmup`` and its siblings, but the last
    step never warms up: a single step at rate 0 would learn nothing. Raises
    UserError for a schedule of another name.
    """
    if profile.schedule not in SCHEDULES:
        raise UserError(f"profile {profile.name}: schedule {profile.schedule!r} is not one of {', '.join(SCHEDULES)}.")
    warmup = min(math.ceil(profile.warmup_ratio * steps), steps - 1)
    if step < warmup:
        return profile.learning_rate * step / warmup
    progress = (step - warmup) / max(1, steps - warmup)
    factors = {
        "constant": 1.0,
        "cosine": 0.5 * (1.0 + math.cos(math.pi * progress)),
        "linear": 1.0 - progress,
    }
    return profile.learning_rate * factors[profile.schedule]
