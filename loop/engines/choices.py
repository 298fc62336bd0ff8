"""Score a constrained choice: every token of every option in one pass, after the prompt or together with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from loop.engines.branches import Beginning
from loop.engines.forward import Forward, Prefix
from loop.engines.rows import Job, Known
from loop.engines.sampling import log_probability

# Positions of prompts laid side by side in one pass; each beginning of an option needs its prompt's once.
POSITIONS = 4096

Options = tuple[tuple[int, ...], ...]


def beginnings(options: Options) -> list[Beginning]:
    """What of the options a further token follows, without the empty beginning, each once and in order."""
    return sorted({option[:length] for option in options for length in range(1, len(option))})


def score(
    forward: Forward, prefix: Prefix, jobs: Sequence[tuple[Job, Known]]
) -> Iterator[tuple[Job, list[list[float]]]]:
    """Each job with the log-probabilities of its options' tokens, by the model alone.

    What the prompts' own pass did not compute takes one pass more.
    """
    for some in _batches(jobs):
        after = {(job.order, begun): logits_V for job, known in some for begun, logits_V in known.begun.items()}
        lacking = [(job.order, known.own, begun) for job, known in some for begun in _lacking(job, known)]
        if lacking:
            logits_NV, _ = forward.extend(prefix, [begun for _, _, begun in lacking], [own for _, own, _ in lacking])
            after |= {(order, begun): logits_V for (order, _, begun), logits_V in zip(lacking, logits_NV, strict=True)}
        for job, known in some:
            yield job, [_logprobs(option, known.logits_V, job.order, after) for option in job.choices]


def _lacking(job: Job, known: Known) -> list[Beginning]:
    return [begun for begun in beginnings(job.choices) if begun not in known.begun]


def _logprobs(
    option: tuple[int, ...], first_V: Tensor, order: int, after: Mapping[tuple[int, Beginning], Tensor]
) -> list[float]:
    rest = [after[order, option[:length]] for length in range(1, len(option))]
    found: list[float] = log_probability(torch.stack([first_V, *rest]), torch.tensor(option)).tolist()
    return found


def _batches(jobs: Sequence[tuple[Job, Known]]) -> Iterator[list[tuple[Job, Known]]]:
    """Jobs in order, as many at once as there is room for; one job at least."""
    batch: list[tuple[Job, Known]] = []
    rows = longest = 0
    for job, known in jobs:
        rows += len(_lacking(job, known))
        longest = max(longest, known.own.shape[1])
        if batch and rows * longest > POSITIONS:
            yield batch
            batch, rows, longest = [], len(_lacking(job, known)), known.own.shape[1]
        batch.append((job, known))
    if batch:
        yield batch
