"""Live rows: what each reply has so far, and the room for its keys and values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from loop.core.episode import Request
from loop.engines.branches import Beginning
from loop.engines.forward import Forward, Prefix
from loop.engines.sampling import draw, uniforms

ROOM_STEP = 64

Origin = tuple[tuple[int, ...], int]


class Known(NamedTuple):
    """What a prompt computed: the logits after it [V], its own keys and values [L, S, 2, H, D], and what
    follows it and beginnings of its options [V], where the same pass computed that."""

    logits_V: Tensor
    own: Tensor
    begun: Mapping[Beginning, Tensor] = {}


@dataclass(eq=False)
class Job:
    """A request with the caller's key, its prompt's token ids and its place in the order of arrival.

    Where the request goes on from a reply that was just decoded, ``kept`` counts the tokens after
    the lane's prefix whose keys and values stood there; ``past`` holds them until the prefill.
    """

    key: int
    order: int
    request: Request
    prompt: tuple[int, ...]
    budget: int
    choices: tuple[tuple[int, ...], ...] = ()
    cached_tokens: int = 0
    kept: int = 0
    past: Tensor | None = None

    @property
    def origin(self) -> Origin:
        """What its first logits follow from: prompts that are equal here share one prefill."""
        return self.prompt, self.kept


@dataclass(eq=False)
class Row:
    """One growing reply."""

    job: Job
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    uniforms: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.float64))

    def __post_init__(self) -> None:
        """Draw the row's whole luck at once; position i always has the same number."""
        if self.job.request.sampling.temperature > 0:
            self.uniforms = uniforms(self.job.request.seed, self.job.budget)

    @property
    def luck(self) -> float:
        """The uniform number of the next position (unused when greedy)."""
        return float(self.uniforms[len(self.tokens)]) if self.uniforms.numel() else 0.0


def accept(rows: Sequence[Row], logits_NV: Tensor) -> None:
    """Add the next token of every row, drawn under its own sampling."""
    sampling = [row.job.request.sampling for row in rows]
    token_N, logprob_N = draw(
        logits_NV,
        torch.tensor([s.temperature for s in sampling], dtype=torch.float64),
        torch.tensor([s.top_p for s in sampling], dtype=torch.float64),
        torch.tensor([row.luck for row in rows], dtype=torch.float64),
    )
    for row, token, logprob in zip(rows, token_N.tolist(), logprob_N.tolist(), strict=True):
        row.tokens.append(token)
        row.logprobs.append(logprob)


class Slots:
    """The room of the live rows, which always fill the first places."""

    def __init__(self, forward: Forward, prefix: Prefix, capacity: int) -> None:
        self.forward, self.prefix, self.capacity = forward, prefix, capacity
        self.cache = forward.empty(0, 0)
        self.live: list[Row] = []
        self.lengths: list[int] = []

    def add(self, rows: Sequence[Row], caches: Sequence[Tensor], room: int) -> None:
        """Take rows in, each with the keys and values of its own prompt part [L, S, 2, H, D]."""
        self._make_room(len(self.live) + len(rows), room)
        for row, cache in zip(rows, caches, strict=True):
            length = cache.shape[1]
            self.cache[:, len(self.live), :length] = cache
            self.live.append(row)
            self.lengths.append(length)

    def step(self) -> None:
        """Run the newest token of every live row and add the next."""
        token_N = torch.tensor([row.tokens[-1] for row in self.live])
        logits_NV = self.forward.step(self.prefix, self.cache, torch.tensor(self.lengths), token_N)
        self.lengths = [length + 1 for length in self.lengths]
        accept(self.live, logits_NV)

    def past(self, row: Row, positions: int) -> Tensor:
        """A copy of a live row's first own keys and values [L, positions, 2, H, D]."""
        return self.cache[:, self.live.index(row), :positions].clone()

    def keep(self, alive: Sequence[bool]) -> None:
        """Drop rows that are finished; the last live rows move into their places."""
        gone = [i for i, stays in enumerate(alive) if not stays]
        for place in reversed(gone):
            last = len(self.live) - 1
            if place != last:
                self.cache[:, place, : self.lengths[last]] = self.cache[:, last, : self.lengths[last]]
                self.live[place], self.lengths[place] = self.live[last], self.lengths[last]
            self.live.pop()
            self.lengths.pop()

    def _make_room(self, rows: int, positions: int) -> None:
        have_rows, have_positions = self.cache.shape[1], self.cache.shape[2]
        if rows <= have_rows and positions <= have_positions:
            return
        wanted = max(positions + -positions % ROOM_STEP, have_positions)
        larger = self.forward.empty(max(rows, self.capacity, have_rows), wanted)
        larger[:, : len(self.live), :have_positions] = self.cache[:, : len(self.live)]
        self.cache = larger
