"""What an arm spends: the same figures are recorded for each stage and added up."""

from __future__ import annotations

from typing import ClassVar

from loop.core.noun import Noun


class Budget(Noun):
    """Tokens, calls, trials and seconds; seconds are facts of a run and not of its identity."""

    undigested: ClassVar[frozenset[str]] = frozenset({"wall_seconds", "device_seconds"})

    generated_tokens: int = 0
    prompt_tokens: int = 0
    trained_tokens: int = 0
    judge_calls: int = 0
    trials: int = 0
    wall_seconds: float = 0.0
    device_seconds: float = 0.0

    def plus(self, other: Budget) -> Budget:
        """Field by field sum."""
        return Budget(**{name: getattr(self, name) + getattr(other, name) for name in Budget.model_fields})

    def minus(self, other: Budget) -> Budget:
        """Field by field difference: what was spent since ``other`` was read."""
        return Budget(**{name: getattr(self, name) - getattr(other, name) for name in Budget.model_fields})
