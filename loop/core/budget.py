"""What an arm spends: the same figures are recorded for each stage and added up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from loop.core.hop import Hop, HopSum
from loop.core.noun import Noun


class Budget(Noun):
    """Tokens, calls, trials and seconds; seconds are facts of a run and not of its identity.

    ``hops`` is the ledger of the conversations that were played, a sum for each kind of hop.
    """

    undigested: ClassVar[frozenset[str]] = frozenset({"wall_seconds", "device_seconds", "hops"})

    generated_tokens: int = 0
    prompt_tokens: int = 0
    trained_tokens: int = 0
    judge_calls: int = 0
    trials: int = 0
    wall_seconds: float = 0.0
    device_seconds: float = 0.0
    hops: dict[Hop, HopSum] = {}

    @property
    def figures(self) -> dict[str, float]:
        """What is counted or clocked, by name; without the ledger."""
        return {name: getattr(self, name) for name in Budget.model_fields if name != "hops"}

    def plus(self, other: Budget, sign: int = 1) -> Budget:
        """Field by field sum, or difference where ``sign`` is -1."""
        more = other.figures
        figures = {name: value + sign * more[name] for name, value in self.figures.items()}
        return Budget.model_validate(figures | {"hops": _added(self.hops, other.hops, sign)})

    def minus(self, other: Budget) -> Budget:
        """Field by field difference: what was spent since ``other`` was read."""
        return self.plus(other, -1)


def _added(left: Mapping[Hop, HopSum], right: Mapping[Hop, HopSum], sign: int) -> dict[Hop, HopSum]:
    sums = {hop: left.get(hop, HopSum()).plus(right.get(hop, HopSum()), sign) for hop in Hop}
    return {hop: found for hop, found in sums.items() if found.hops}
