"""What a request to the engine is for within a user's turn, and what it took."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import ClassVar

from loop.core.noun import Noun


class Hop(StrEnum):
    """Route, answer, summary; only the answer is shown to the user."""

    ROUTE = "route"
    ANSWER = "answer"
    SUMMARY = "summary"


class HopRecord(Noun):
    """The ledger's line for one generation: who, what for, tokens, and seconds until it was there.

    ``adapter`` is the digest of the revision that answered, where serving wrote it down.
    """

    undigested: ClassVar[frozenset[str]] = frozenset({"seconds"})

    hop: Hop
    label: str
    adapter: str = ""
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    seconds: float = 0.0


class HopSum(Noun):
    """What the hops of one kind took; ``seconds`` are those each was waited for, also side by side."""

    undigested: ClassVar[frozenset[str]] = frozenset({"seconds"})

    hops: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    seconds: float = 0.0

    def plus(self, other: HopSum, sign: int = 1) -> HopSum:
        """Field by field sum, or difference where ``sign`` is -1."""
        return HopSum(**{name: getattr(self, name) + sign * getattr(other, name) for name in HopSum.model_fields})


def ledger(records: Iterable[HopRecord]) -> dict[Hop, HopSum]:
    """The records summed by their kind, in the order of a turn."""
    sums: dict[Hop, HopSum] = {}
    for record in records:
        one = HopSum(
            hops=1,
            prompt_tokens=record.prompt_tokens,
            cached_tokens=record.cached_tokens,
            generated_tokens=record.generated_tokens,
            seconds=record.seconds,
        )
        sums[record.hop] = sums.get(record.hop, HopSum()).plus(one)
    return {hop: sums[hop] for hop in Hop if hop in sums}
