"""Beginnings of several replies laid behind their prompt as one tree, so that a single pass computes all.

Tree attention as in SpecInfer (Miao et al. 2023, section 4.2): each beginning adds its last token, at
the position it has in its own reply, and sees the prompt and its own ancestors only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

# The first tokens of a reply.
Beginning = tuple[int, ...]


class Laid(NamedTuple):
    """A sequence with its branches: tokens [T], their positions in what each continues, and where logits are wanted."""

    tokens: list[int]
    positions: list[int]
    wanted: list[int]


def lay(sequence: Sequence[int], begun: Sequence[Beginning]) -> Laid:
    """The sequence, then one token for each beginning; wanted are its last token and every beginning.

    ``begun`` holds with each beginning all that begin it, so that every ancestor is there to be seen.
    """
    known = set(begun)
    assert all(len(each) == 1 or each[:-1] in known for each in begun), "a beginning lacks its own beginning"
    length = len(sequence)
    return Laid(
        tokens=[*sequence, *(each[-1] for each in begun)],
        positions=[*range(length), *(length + len(each) - 1 for each in begun)],
        wanted=list(range(length - 1, length + len(begun))),
    )


def sight(length: int, begun: Sequence[Beginning], size: int) -> Tensor:
    """What each of ``size`` places sees of them, [size, size]: causal, but branches do not see one another."""
    sees = torch.ones(size, size, dtype=torch.bool).tril()
    for row, beginning in enumerate(begun, start=length):
        ancestors = [beginning[: len(other)] == other for other in begun]
        sees[row, length : length + len(begun)] = torch.tensor(ancestors)
    return sees
