"""Which rows each optimiser step sees, fixed by the job's seed before the first step."""

from __future__ import annotations

import random
from collections.abc import Sequence

from loop.core.noun import seed_from
from loop.core.training_set import Row, TrainingProfile

# Rows whose prompts begin alike can share the computation of that beginning, and rows of
# near lengths waste little padding; within such a group the shuffled order stands.
PROMPT_START = 32
LENGTH_BUCKET = 16


def plan_batches(rows: Sequence[Row], profile: TrainingProfile, seed: int) -> tuple[tuple[int, ...], ...]:
    """The row indices of every step, in order.

    Each epoch uses every row once, in batches whose sizes differ by at most one row and
    never exceed ``batch_rows``. ``steps``, when given, cuts or continues the epochs at
    that many batches; otherwise there are ``epochs`` of them. Raises ValueError without rows.
    """
    if not rows:
        raise ValueError("there is nothing to train on: the training set has no rows")
    batches: list[tuple[int, ...]] = []
    epoch = 0
    while _more(len(batches), epoch, profile):
        batches.extend(_epoch(rows, profile.batch_rows, random.Random(seed_from("batches", seed, epoch))))
        epoch += 1
    return tuple(batches if profile.steps is None else batches[: profile.steps])


def row_id(row: Row) -> str:
    """A row's name in the record of what was trained: its episode and turn."""
    return f"{row.episode}:{row.turn}"


def _more(planned: int, epoch: int, profile: TrainingProfile) -> bool:
    return epoch < profile.epochs if profile.steps is None else planned < profile.steps


def _epoch(rows: Sequence[Row], batch_rows: int, draw: random.Random) -> list[tuple[int, ...]]:
    order = list(range(len(rows)))
    draw.shuffle(order)
    order.sort(key=lambda index: _likeness(rows[index]))
    count = -(-len(order) // batch_rows)
    edges = [len(order) * step // count for step in range(count + 1)]
    batches = [tuple(order[start:end]) for start, end in zip(edges, edges[1:], strict=False)]
    draw.shuffle(batches)
    return batches


def _likeness(row: Row) -> tuple[tuple[int, ...], int]:
    return row.prompt_ids[:PROMPT_START], (len(row.prompt_ids) + len(row.response_ids)) // LENGTH_BUCKET
