"""What an experiment's arms came to: gains over generation 0, compounding, and what a point cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from loop.core.budget import Budget
from loop.core.experiment import Arm, ArmResult, Findings, Point
from loop.core.gate import Interval
from loop.core.generation import Generation
from loop.core.score import Scorecard
from loop.gains.contrasts import contrast
from loop.gains.intervals import interval

Lineages = Mapping[Arm, Mapping[int, Sequence[Generation]]]
Cards = Callable[[str], Scorecard]
STANDARD = Arm.ITERATED


def findings(name: str, lineages: Lineages, cards: Cards, *, draws: int = 2000) -> Findings | None:
    """Compare the arms; None while no generation is examined.

    ``lineages`` holds each arm's generations by seed, the root first; ``cards`` loads a
    scorecard by digest. Arms are compared over the seeds that both have finished. Raises
    ValueError for exams of different contracts.
    """
    ends = {arm: {seed: grown for seed, grown in seeds.items() if len(grown) > 1} for arm, seeds in lineages.items()}
    ends = {arm: seeds for arm, seeds in ends.items() if seeds}
    if not ends:
        return None
    results = [_arm(arm, seeds, ends.get(STANDARD, {}), cards, draws) for arm, seeds in ends.items()]
    contrasts, by_seed = {}, {}
    for arm, seeds in ends.items():
        if arm in (STANDARD, Arm.NULL) or STANDARD not in ends:
            continue  # the null arm answers with sampled luck, the others greedily: no contrast between them
        both = sorted(seeds.keys() & ends[STANDARD].keys())
        pairs = {seed: (_last(cards, ends[STANDARD][seed]), _last(cards, seeds[seed])) for seed in both}
        if found := _difference(pairs, draws):
            contrasts[arm.value] = found
            by_seed[arm.value] = _by_seed(pairs)
    contract = next(iter(next(iter(ends.values())).values()))[-1].exam
    assert contract is not None
    return Findings(name=name, contract=contract.contract, arms=tuple(results), contrasts=contrasts, by_seed=by_seed)


def _arm(
    arm: Arm,
    seeds: Mapping[int, Sequence[Generation]],
    standard: Mapping[int, Sequence[Generation]],
    cards: Cards,
    draws: int,
) -> ArmResult:
    reached = sorted({generation.number for grown in seeds.values() for generation in grown[1:]})
    grown = [generation for lineage in seeds.values() for generation in lineage[1:]]
    pairs = {seed: (_last(cards, lineage), _first(cards, lineage)) for seed, lineage in seeds.items()}
    return ArmResult(
        arm=arm,
        seeds=tuple(sorted(seeds)),
        points=tuple(_point(number, seeds, cards, draws) for number in reached),
        slope=_slope(seeds, cards, draws),
        by_seed={str(seed): value for seed, value in _by_seed(pairs).items()},
        budget=_mean_budget(arm, seeds),
        ratio=_ratio(arm, seeds, standard),
        passed=sum(all(rule.passed for rule in generation.decision.rules) for generation in grown),
        examined=len(grown),
    )


def _slope(seeds: Mapping[int, Sequence[Generation]], cards: Cards, draws: int) -> Interval | None:
    """Least squares over generations 0, 1, ..., case by case; the mean of the seeds. None below two generations."""
    long = {seed: lineage for seed, lineage in seeds.items() if len(lineage) > 2}
    if not long:
        return None
    found: dict[tuple[int, int], Scorecard] = {}
    weights: dict[tuple[int, int], float] = {}
    for seed, lineage in long.items():
        middle = (len(lineage) - 1) / 2
        squares = sum((place - middle) ** 2 for place in range(len(lineage)))
        for place in range(len(lineage)):
            found[seed, place] = _last(cards, lineage[: place + 1]) if place else _first(cards, lineage)
            weights[seed, place] = (place - middle) / squares / len(long)
    return interval(contrast(found, weights), draws=draws)


def _point(number: int, seeds: Mapping[int, Sequence[Generation]], cards: Cards, draws: int) -> Point:
    """The seeds that have reached this generation, against their own generation 0."""
    reached = {seed: lineage[: number + 1] for seed, lineage in seeds.items() if len(lineage) > number}
    pairs = {seed: (_last(cards, lineage), _first(cards, lineage)) for seed, lineage in reached.items()}
    scores = [lineage[-1].exam.score for lineage in reached.values() if lineage[-1].exam]
    known = [score for score in scores if score is not None]
    return Point(number=number, score=sum(known) / len(known) if known else None, gain=_difference(pairs, draws))


def _difference(pairs: Mapping[int, tuple[Scorecard, Scorecard]], draws: int) -> Interval | None:
    """Mean over the seeds of (first card less second), case by case."""
    if not pairs:
        return None
    cards: dict[tuple[int, str], Scorecard] = {}
    weights: dict[tuple[int, str], float] = {}
    for seed, (plus, minus) in pairs.items():
        cards |= {(seed, "plus"): plus, (seed, "minus"): minus}
        weights |= {(seed, "plus"): 1.0 / len(pairs), (seed, "minus"): -1.0 / len(pairs)}
    return interval(contrast(cards, weights), draws=draws)


def _by_seed(pairs: Mapping[int, tuple[Scorecard, Scorecard]]) -> dict[str, float]:
    found = {str(seed): _difference({seed: cards}, 1) for seed, cards in sorted(pairs.items())}
    return {seed: bounds.point for seed, bounds in found.items() if bounds is not None}


def _last(cards: Cards, lineage: Sequence[Generation]) -> Scorecard:
    exam = lineage[-1].exam
    assert exam is not None
    return cards(exam.scorecard)


def _first(cards: Cards, lineage: Sequence[Generation]) -> Scorecard:
    """Generation 0's card, from the exam of its first successor."""
    exam = lineage[1].exam
    assert exam is not None and exam.parent_scorecard is not None
    return cards(exam.parent_scorecard)


def spent(arm: Arm, lineage: Sequence[Generation]) -> Budget:
    """What a lineage spent on learning; best of k draws the samples of its last generation only once."""
    if arm is Arm.BEST_OF_K:
        return lineage[-1].learning
    total = Budget()
    for generation in lineage[1:]:
        total = total.plus(generation.learning)
    return total


def _mean_budget(arm: Arm, seeds: Mapping[int, Sequence[Generation]]) -> Budget:
    spents = [spent(arm, lineage) for lineage in seeds.values()]
    sums = {name: sum(getattr(each, name) for each in spents) / len(spents) for name in Budget.model_fields}
    return Budget(**{name: value if "seconds" in name else round(value) for name, value in sums.items()})


def _ratio(
    arm: Arm, seeds: Mapping[int, Sequence[Generation]], standard: Mapping[int, Sequence[Generation]]
) -> float | None:
    """Tokens over those of the standard arm, over the seeds that both have."""
    both = seeds.keys() & standard.keys()
    mine = sum(_tokens(spent(arm, seeds[seed])) for seed in both)
    theirs = sum(_tokens(spent(STANDARD, standard[seed])) for seed in both)
    return mine / theirs if theirs else None


def _tokens(budget: Budget) -> int:
    return budget.generated_tokens + budget.trained_tokens
