"""Score a constrained choice: every token of every option in one pass after the prompt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from loop.engines.forward import Forward, Prefix
from loop.engines.rows import Job, Known
from loop.engines.sampling import log_probability

# Positions of prompts laid side by side in one pass; each beginning of an option needs its prompt's once.
POSITIONS = 4096

Options = tuple[tuple[int, ...], ...]


def beginnings(options: Options) -> list[tuple[int, ...]]:
    """What of the options a further token follows, without the empty beginning, each once and in order."""
    return sorted({option[:length] for option in options for length in range(1, len(option))})


def score(
    forward: Forward, prefix: Prefix, jobs: Sequence[tuple[Job, Known]]
) -> Iterator[tuple[Job, list[list[float]]]]:
    """Each job with the log-probabilities of its options' tokens, by the model alone.

    A prompt is known by the logits after it [V] and its own keys and values [L, P, 2, H, D].
    """
    for some in _batches(jobs):
        sequences = [(job.order, own, begun) for job, (_, own) in some for begun in beginnings(job.choices)]
        logits_NV = torch.empty(0)
        if sequences:
            pasts = [own for _, own, _ in sequences]
            logits_NV, _ = forward.extend(prefix, [begun for _, _, begun in sequences], pasts)
        place = {(order, begun): row for row, (order, _, begun) in enumerate(sequences)}
        for job, (first_V, _) in some:
            yield job, [_logprobs(option, first_V, logits_NV, job.order, place) for option in job.choices]


def _logprobs(
    option: tuple[int, ...],
    first_V: Tensor,
    logits_NV: Tensor,
    order: int,
    place: dict[tuple[int, tuple[int, ...]], int],
) -> list[float]:
    rest = [logits_NV[place[order, option[:length]]] for length in range(1, len(option))]
    found: list[float] = log_probability(torch.stack([first_V, *rest]), torch.tensor(option)).tolist()
    return found


def _batches(jobs: Sequence[tuple[Job, Known]]) -> Iterator[list[tuple[Job, Known]]]:
    """Jobs in order, as many at once as there is room for; one job at least."""
    batch: list[tuple[Job, Known]] = []
    rows = longest = 0
    for job, known in jobs:
        rows += len(beginnings(job.choices))
        longest = max(longest, known[1].shape[1])
        if batch and rows * longest > POSITIONS:
            yield batch
            batch, rows, longest = [], len(beginnings(job.choices)), known[1].shape[1]
        batch.append((job, known))
    if batch:
        yield batch
