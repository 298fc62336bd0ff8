"""An exam from its scorecards: every figure that scores alone decide, whether just played or scored again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from loop.core.contract import Contract, Half
from loop.core.gate import Interval
from loop.core.generation import Exam
from loop.core.plan import Plan
from loop.core.score import Scorecard
from loop.gains.contrasts import CHILD, GOODHART, PARENT, contrast
from loop.gains.intervals import Difference, Value, by_score, interval, of_axiom, paired, score_or_zero, single
from loop.gains.sequential import sign_flip

Ends = Mapping[tuple[str, Half], Scorecard]


def exam_of(contract: Contract, plan: Plan, ends: Ends) -> Exam:
    """The exam of parent and child, each with both halves, under the plan's gate and seed.

    Equal scorecards give an equal exam. Raises ValueError for cards that do not compare.
    """
    before, after = ends[PARENT, Half.SEALED], ends[CHILD, Half.SEALED]

    def gains(value: Value) -> tuple[Difference, ...]:
        return paired(before, after, value)

    names, total = after.environments(), gains(by_score)
    groups = sorted({row.group for row in total})
    return Exam(
        contract=after.contract,
        scorecard=after.digest,
        parent_scorecard=before.digest,
        score=after.mean(),
        score_unscored_zero=after.mean(unscored_as_zero=True),
        coverage=after.coverage(),
        cases=len(after.scores),
        axioms=after.axiom_means(),
        groups=group_means(after),
        matrix=after.matrix(),
        environments={name: mean for name in names if (mean := after.mean(name)) is not None},
        pass_rates=level_rates(before, "parent") | level_rates(after, "child"),
        score_interval=bounds(plan, single(after)),
        gain=bounds(plan, total),
        gain_unscored_zero=bounds(plan, gains(score_or_zero)),
        gain_p=sign_flip(total, draws=plan.gate.flips, seed=plan.seed),
        environment_gains=known(plan, {name: [row for row in total if row.environment == name] for name in names}),
        axiom_gains=known(plan, {axiom.id: gains(of_axiom(axiom.id)) for axiom in contract.axioms}),
        group_gains=known(plan, {group: [row for row in total if row.group == group] for group in groups}),
        goodhart=bounds(plan, contrast(ends, GOODHART)),
    )


def bounds(plan: Plan, rows: Sequence[Difference]) -> Interval | None:
    """The interval of rows at the plan's level; None for no rows."""
    return interval(rows, level=plan.gate.level, draws=plan.gate.draws, seed=plan.seed)


def known(plan: Plan, rows: Mapping[str, Sequence[Difference]]) -> dict[str, Interval]:
    """The intervals of named rows; a name without rows is left out."""
    found = {name: bounds(plan, some) for name, some in rows.items()}
    return {name: made for name, made in found.items() if made is not None}


def group_means(card: Scorecard) -> dict[str, float]:
    """Mean case score by scenario (or skill environment), 0..100."""
    groups: dict[str, list[float]] = defaultdict(list)
    for score in card.scores:
        if score.score is not None:
            groups[score.task.group].append(score.score)
    return {name: sum(values) / len(values) for name, values in sorted(groups.items())}


def level_rates(card: Scorecard, who: str) -> dict[str, float]:
    """Sealed pass rate by ``who/environment/level``, and ``who/environment`` over all levels."""
    rates: dict[str, float] = {}
    for name in card.environments():
        levels = sorted({s.task.level for s in card.scores if s.task.environment == name})
        found = {f"{who}/{name}": card.pass_rate(name)}
        if len(levels) > 1:
            found |= {f"{who}/{name}/{level}": card.pass_rate(name, level) for level in levels}
        rates |= {key: rate for key, rate in found.items() if rate is not None}
    return rates
