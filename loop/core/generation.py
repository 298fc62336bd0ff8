"""A generation: a pair with its exam, its parent and the decision on it."""

from __future__ import annotations

from loop.core.budget import Budget
from loop.core.gate import Decision, Interval
from loop.core.noun import Noun
from loop.core.pair import Pair
from loop.core.routing import RoutingExam


class CanaryReport(Noun):
    """How many of the baits (``probes``) parent and child took; ``fired`` are those only the child took."""

    probes: int
    parent: int
    child: int
    fired: tuple[str, ...] = ()


class Exam(Noun):
    """What the examine stage found, small enough to show; the scorecard is a blob by digest.

    Scores are 0..100 on the sealed holdout; gains are child minus parent on the same
    cases and seeds; ``gain_p`` is the one-sided p-value of the total gain (sign flips by
    cluster); ``goodhart`` is the gain on the visible checks less that on the sealed ones.
    ``transplant`` has the effects of adapters, harness and both together, ``shapley`` each
    specialist's and the harness's share; both sum to their ``total``. ``selection`` is what
    choosing among a child's answers cost (best of k). ``matrix`` is the mean of each axiom by
    scenario, ``interference`` each environment's score with each specialist's adapter, 0..100.
    ``earlier`` is the gain on the train tasks of each earlier generation, by its number.
    ``panel`` counts how often the holdout was drawn again, ``anchor`` is the score on the cases
    that are in every panel. ``routing`` is what the two routers did on the routing bank.
    """

    contract: str
    scorecard: str
    parent_scorecard: str | None = None
    score: float | None
    score_unscored_zero: float | None
    coverage: float
    cases: int
    axioms: dict[str, float] = {}
    groups: dict[str, float] = {}
    environments: dict[str, float] = {}
    pass_rates: dict[str, float] = {}
    score_interval: Interval | None = None
    gain: Interval | None = None
    gain_unscored_zero: Interval | None = None
    gain_p: float | None = None
    environment_gains: dict[str, Interval] = {}
    axiom_gains: dict[str, Interval] = {}
    goodhart: Interval | None = None
    matrix: dict[str, dict[str, float]] = {}
    interference: dict[str, dict[str, float]] = {}
    earlier: dict[str, Interval] = {}
    group_gains: dict[str, Interval] = {}
    transplant: dict[str, Interval] = {}
    shapley: dict[str, Interval] = {}
    panel: int = 0
    anchor: Interval | None = None
    selection: Budget = Budget()
    canaries: CanaryReport | None = None
    routing: RoutingExam | None = None
    diversity: dict[str, float] = {}
    alarms: tuple[str, ...] = ()


class Generation(Noun):
    """Generation N of a lineage; ``plan`` and ``parent`` are digests, None for the root.

    ``experience`` is the visible pass rate by ``environment/level`` of the episodes that
    the parent collected to make it: where the next generation's ladder starts. ``stages``
    is the budget by stage.
    """

    number: int
    family: str
    arm: str = "iterated"
    seed: int
    pair: Pair
    parent: str | None = None
    plan: str | None = None
    exam: Exam | None = None
    decision: Decision
    experience: dict[str, float] = {}
    budget: Budget = Budget()
    stages: dict[str, Budget] = {}

    @property
    def learning(self) -> Budget:
        """What was spent to make it, without the exam: what arms of an experiment are matched by."""
        total = self.exam.selection if self.exam else Budget()
        for stage, budget in self.stages.items():
            if stage != "examine":
                total = total.plus(budget)
        return total
