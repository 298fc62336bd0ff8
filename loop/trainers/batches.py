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
    that many batches; ``tokens`` does so at the row that comes nearest to as many; otherwise
    there are ``epochs`` of them. Raises ValueError without rows.
    """
    if not rows:
        raise ValueError("there is nothing to train on: the training set has no rows")
    batches: list[tuple[int, ...]] = []
    epoch, tokens = 0, 0
    while _more(len(batches), epoch, tokens, profile):
        fresh = _epoch(rows, profile.batch_rows, random.Random(seed_from("batches", seed, epoch)))
        tokens += sum(_length(rows[index]) for batch in fresh for index in batch)
        batches.extend(fresh)
        epoch += 1
    if profile.tokens is not None:
        return _cut(batches, rows, profile.tokens)
    return tuple(batches if profile.steps is None else batches[: profile.steps])


def row_id(row: Row) -> str:
    """A row's name in the record of what was trained: its episode and turn."""
    return f"{row.episode}:{row.turn}"


def _cut(batches: Sequence[tuple[int, ...]], rows: Sequence[Row], tokens: int) -> tuple[tuple[int, ...], ...]:
    """The batches up to the row whose end lies nearest to ``tokens``; at least one row."""
    kept: list[tuple[int, ...]] = []
    spent = 0
    for batch in batches:
        taken: list[int] = []
        for index in batch:
            length = _length(rows[index])
            if (kept or taken) and spent + length - tokens > tokens - spent:
                return (*kept, tuple(taken)) if taken else tuple(kept)
            taken.append(index)
            spent += length
        kept.append(tuple(taken))
    return tuple(kept)


def _length(row: Row) -> int:
    return len(row.prompt_ids) + len(row.response_ids)


def _more(planned: int, epoch: int, tokens: int, profile: TrainingProfile) -> bool:
    if profile.tokens is not None:
        return tokens < profile.tokens
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
    return row.prompt_ids[:PROMPT_START], _length(row) // LENGTH_BUCKET
