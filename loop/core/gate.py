"""Decisions: each rule with its figures, and the verdict they add up to."""

from __future__ import annotations

from enum import StrEnum

from loop.core.noun import Noun


class Interval(Noun):
    """A point with its interval at ``level`` (0.95: 95 %); ``n`` is the number of pairs."""

    point: float
    low: float
    high: float
    level: float = 0.95
    n: int
    clusters: int


class Rule(Noun):
    """One gate rule: its name, whether it passed, a sentence, and the figures behind it."""

    name: str
    passed: bool
    text: str
    figures: dict[str, float | None] = {}


class Standing(StrEnum):
    """What became of a generation."""

    ROOT = "root"
    PROMOTED = "promoted"
    REJECTED = "rejected"


class Decision(Noun):
    """The gate's record, promoted or not; ``forced`` marks a human override."""

    standing: Standing
    rules: tuple[Rule, ...] = ()
    forced: bool = False

    @property
    def reasons(self) -> tuple[str, ...]:
        """The sentences of the rules that did not pass."""
        return tuple(rule.text for rule in self.rules if not rule.passed)
