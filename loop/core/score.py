"""Verdicts on criteria and the scoring rule that turns them into one scorecard.

The rule (CONTRACT_V1): axiom score = weighted mean of its criteria; balance =
2 p_A p_B / (p_A + p_B) over the poles; case = 100 x (axioms_weight x mean over axioms +
balance_weight x balance), 0 when a veto criterion is breached. Undecided is not zero.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import ClassVar

from pydantic import Field

from loop.core.contract import Half, Pole, ScoringRule
from loop.core.episode import Failure, Task
from loop.core.noun import Noun

PASS_THRESHOLD = 0.5


class Verdict(Noun):
    """One criterion's value in [0, 1], or None when undecided, with what decided it.

    ``calls`` counts the requests to language models that it cost, repeated ones too.
    """

    undigested: ClassVar[frozenset[str]] = frozenset({"calls"})

    criterion: str
    axiom: str
    pole: Pole = Pole.NONE
    weight: float = 1.0
    veto: bool = False
    half: Half = Half.VISIBLE
    value: float | None = Field(default=None, ge=0, le=1)
    evidence: str = ""
    judge: str = "rules"
    calls: int = Field(default=0, ge=0)


class CaseScore(Noun):
    """One episode under one half of the contract; ``score`` is 0..100 or None (unscored)."""

    episode: str
    task: Task
    sample: int
    score: float | None
    passed: bool | None
    axioms: dict[str, float] = {}
    verdicts: tuple[Verdict, ...] = ()
    failure: Failure | None = None


class ScoreShard(Noun):
    """The case scores of one recorded step, in the order of its episodes."""

    contract: str
    half: Half
    scores: tuple[CaseScore, ...]


def weighted_mean(verdicts: Iterable[Verdict]) -> float | None:
    """Mean of the decided values by weight; None when none is decided."""
    decided = [(verdict.value, verdict.weight) for verdict in verdicts if verdict.value is not None]
    if not decided:
        return None
    return sum(value * weight for value, weight in decided) / sum(weight for _, weight in decided)


def axiom_scores(verdicts: Iterable[Verdict]) -> dict[str, float]:
    """The score of each axiom that has a decided criterion, in [0, 1]."""
    groups: dict[str, list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        groups[verdict.axiom].append(verdict)
    means = {axiom: weighted_mean(group) for axiom, group in sorted(groups.items())}
    return {axiom: mean for axiom, mean in means.items() if mean is not None}


def balance(verdicts: Iterable[Verdict]) -> float | None:
    """Harmonic mean of the two poles; with one pole decided, that pole; None with neither."""
    rows = tuple(verdicts)
    poles = [weighted_mean(v for v in rows if v.pole is pole) for pole in (Pole.A, Pole.B)]
    decided = [pole for pole in poles if pole is not None]
    if len(decided) < 2:
        return decided[0] if decided else None
    a, b = decided
    return 0.0 if a + b == 0 else 2 * a * b / (a + b)


def case_score(verdicts: Iterable[Verdict], rule: ScoringRule) -> float | None:
    """0..100 under the scoring rule, or None when no criterion was decided."""
    rows = tuple(verdicts)
    axioms = axiom_scores(rows)
    if not axioms:
        return None
    if any(v.veto and v.value is not None and v.value < PASS_THRESHOLD for v in rows):
        return 0.0
    mean = sum(axioms.values()) / len(axioms)
    tension = balance(rows)
    if tension is None:
        return 100.0 * mean
    return 100.0 * (rule.axioms_weight * mean + rule.balance_weight * tension)


def passed(verdicts: Iterable[Verdict]) -> bool | None:
    """Whether every decided criterion holds; None when none was decided."""
    values = [verdict.value for verdict in verdicts if verdict.value is not None]
    return all(value >= PASS_THRESHOLD for value in values) if values else None


class Scorecard(Noun):
    """A pair's exam: every case score under one contract; only equal contracts compare."""

    contract: str
    pair: str
    half: Half
    scores: tuple[CaseScore, ...]

    def environments(self) -> tuple[str, ...]:
        """The environments examined, sorted."""
        return tuple(sorted({score.task.environment for score in self.scores}))

    def mean(self, environment: str | None = None, *, unscored_as_zero: bool = False) -> float | None:
        """Macro-average: cases within a group, groups within an environment, environments."""
        names = (environment,) if environment else self.environments()
        means = [_macro(self._of(name), unscored_as_zero) for name in names]
        decided = [mean for mean in means if mean is not None]
        return sum(decided) / len(decided) if decided else None

    def coverage(self) -> float:
        """Share of cases that could be scored, in [0, 1]; 0 for an empty card."""
        return sum(s.score is not None for s in self.scores) / len(self.scores) if self.scores else 0.0

    def axiom_means(self) -> dict[str, float]:
        """Mean over the cases where the axiom was decided, 0..100, by axiom."""
        groups: dict[str, list[float]] = defaultdict(list)
        for score in self.scores:
            for axiom, value in score.axioms.items():
                groups[axiom].append(100.0 * value)
        return {axiom: sum(values) / len(values) for axiom, values in sorted(groups.items())}

    def matrix(self) -> dict[str, dict[str, float]]:
        """Mean of each axiom, 0..100, by scenario (or skill environment)."""
        groups: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for score in self.scores:
            for axiom, value in score.axioms.items():
                groups[score.task.group][axiom].append(100.0 * value)
        return {
            group: {axiom: sum(values) / len(values) for axiom, values in sorted(axioms.items())}
            for group, axioms in sorted(groups.items())
        }

    def pass_rate(self, environment: str, level: int | None = None) -> float | None:
        """Share of decided cases in which every criterion holds."""
        rows = [s for s in self._of(environment) if level in (None, s.task.level) and s.passed is not None]
        return sum(bool(s.passed) for s in rows) / len(rows) if rows else None

    def _of(self, environment: str) -> tuple[CaseScore, ...]:
        return tuple(score for score in self.scores if score.task.environment == environment)


def _macro(scores: tuple[CaseScore, ...], unscored_as_zero: bool) -> float | None:
    groups: dict[str, list[float]] = defaultdict(list)
    for score in scores:
        if score.score is not None:
            groups[score.task.group].append(score.score)
        elif unscored_as_zero:
            groups[score.task.group].append(0.0)
    means = [sum(values) / len(values) for values in groups.values() if values]
    return sum(means) / len(means) if means else None
