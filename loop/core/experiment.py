"""An experiment: the same lineage grown by several arms under several seeds, and what came of it."""

from __future__ import annotations

import re
from enum import StrEnum

from pydantic import Field

from loop.core.budget import Budget
from loop.core.gate import Interval
from loop.core.noun import Noun


class Arm(StrEnum):
    """What changes from generation to generation (GAINS.md, Arms)."""

    ITERATED = "iterated"
    ONE_SHOT = "one_shot"
    WEIGHTS_ONLY = "weights_only"
    HARNESS_ONLY = "harness_only"
    BEST_OF_K = "best_of_k"
    NULL = "null"
    SHAM = "sham"


# How far an arm's tokens may be from the standard's (GAINS.md, Arms).
MATCHED = 0.02

# Arms whose successors are no better than their parents by design: how often the gate lets them pass is measured.
CONTROLS = (Arm.NULL, Arm.SHAM)


class Experiment(Noun):
    """Arms x seeds, ``generations`` long; each is a lineage of its own, named after ``name``.

    The standard is the arm whose budget the others are to spend: ``iterated``.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,31}$")
    arms: tuple[Arm, ...] = Field(min_length=1)
    generations: int = Field(gt=0)
    seeds: tuple[int, ...] = Field(min_length=1)

    def family(self, arm: Arm, seed: int) -> str:
        """The lineage of one arm under one seed."""
        return family_of(self.name, arm, seed)


def family_of(name: str, arm: Arm, seed: int) -> str:
    """The lineage of one arm of an experiment under one seed."""
    return f"{name}.{arm}.s{seed}"


def arm_of(name: str, family: str) -> tuple[Arm, int] | None:
    """The arm and the seed of a lineage of this experiment; None for any other lineage."""
    found = re.fullmatch(rf"{re.escape(name)}\.({'|'.join(Arm)})\.s(\d+)", family)
    return (Arm(found[1]), int(found[2])) if found else None


def experiment_of(family: str) -> str:
    """The experiment that a lineage belongs to; its own name where it is no arm's."""
    found = re.fullmatch(rf"(.+)\.({'|'.join(Arm)})\.s\d+", family)
    return found[1] if found else family


class Point(Noun):
    """One generation of one arm: its mean score over the seeds and its gain over generation 0."""

    number: int
    score: float | None
    gain: Interval | None


class ArmResult(Noun):
    """What one arm came to over its seeds.

    ``budget`` is the mean over the seeds of what its generations spent on learning, exams
    left out; ``ratio`` is its generated and trained tokens over those of the standard arm;
    ``slope`` is the least-squares slope of its scores, in points a generation. ``passed`` of
    ``examined`` successors met every rule of the gate.
    """

    arm: Arm
    seeds: tuple[int, ...]
    points: tuple[Point, ...]
    slope: Interval | None = None
    by_seed: dict[str, float] = {}
    budget: Budget
    ratio: float | None = None
    passed: int = 0
    examined: int = 0

    @property
    def tokens(self) -> int:
        """Generated and trained tokens, the budget's one figure."""
        return self.budget.generated_tokens + self.budget.trained_tokens

    @property
    def per_point(self) -> float | None:
        """Tokens for each point gained over generation 0; None where nothing was gained."""
        last = self.points[-1].gain if self.points else None
        return None if last is None or last.point <= 0 or not self.tokens else self.tokens / last.point


class Findings(Noun):
    """The experiment's result; ``contrasts`` hold the last generation of the standard less each other arm's.

    The one with ``one_shot`` is compounding: positive, with its interval above zero, says that
    gains compound. Intervals are over cases, given these seeds; ``by_seed`` shows the seeds, and
    ``over_seeds`` what they alone say of other seeds (Student's t, from two seeds on).
    """

    name: str
    contract: str
    arms: tuple[ArmResult, ...]
    contrasts: dict[str, Interval] = {}
    by_seed: dict[str, dict[str, float]] = {}
    over_seeds: dict[str, Interval] = {}

    @property
    def false_promotions(self) -> tuple[int, int] | None:
        """Control successors that the gate let pass, of those examined; None without control arms."""
        controls = [result for result in self.arms if result.arm in CONTROLS]
        if not controls:
            return None
        return sum(result.passed for result in controls), sum(result.examined for result in controls)

    @property
    def unmatched(self) -> dict[str, float]:
        """The ratio of each arm whose budget is not within ``MATCHED`` of the standard's; the null arm spends none."""
        ratios = {result.arm.value: result.ratio for result in self.arms if result.arm is not Arm.NULL}
        return {arm: ratio for arm, ratio in ratios.items() if ratio is not None and abs(ratio - 1) > MATCHED}

    @property
    def compounding(self) -> Interval | None:
        """The contrast with the one-shot arm, or None when it is absent."""
        return self.contrasts.get(Arm.ONE_SHOT)
