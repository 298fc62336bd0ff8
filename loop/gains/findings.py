"""What an experiment's arms came to: gains over generation 0, compounding, and what a point cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from loop.core.budget import Budget
from loop.core.experiment import Arm, ArmResult, Findings, Point
from loop.core.experiment_record import ExperimentRecord, LineageRecord
from loop.core.gate import Interval
from loop.core.score import Scorecard
from loop.gains.contrasts import contrast
from loop.gains.intervals import interval
from loop.gains.records import cards_of

STANDARD = Arm.ITERATED


@dataclass(frozen=True)
class Grown:
    """A lineage with the scorecards of its generations, generation 0's first."""

    record: LineageRecord
    cards: tuple[Scorecard, ...]


def findings(record: ExperimentRecord, *, draws: int = 2000) -> Findings | None:
    """Compare the arms of a record, from a store or from files; None while no generation is examined.

    Arms are compared over the seeds that both have finished. Raises ValueError for exams of
    different contracts or cases.
    """
    if not record.lineages:
        return None
    ends: dict[Arm, dict[int, Grown]] = {}
    for line in sorted(record.lineages, key=lambda line: (list(Arm).index(line.arm), line.seed)):
        ends.setdefault(line.arm, {})[line.seed] = Grown(line, cards_of(record, line))
    results = [_arm(arm, seeds, ends.get(STANDARD, {}), draws) for arm, seeds in ends.items()]
    contrasts, by_seed = {}, {}
    for arm, seeds in ends.items():
        if arm in (STANDARD, Arm.NULL) or STANDARD not in ends:
            continue  # the null arm answers with sampled luck, the others greedily: no contrast between them
        both = sorted(seeds.keys() & ends[STANDARD].keys())
        pairs = {seed: (ends[STANDARD][seed].cards[-1], seeds[seed].cards[-1]) for seed in both}
        if found := _difference(pairs, draws):
            contrasts[arm.value] = found
            by_seed[arm.value] = _by_seed(pairs)
    contract = next(iter(next(iter(ends.values())).values())).record.contract
    return Findings(
        name=record.name,
        contract=contract,
        arms=tuple(results),
        contrasts=contrasts,
        by_seed=by_seed,
        over_seeds={arm: over_seeds(list(found.values())) for arm, found in by_seed.items() if len(found) > 1},
    )


def over_seeds(differences: Sequence[float]) -> Interval:
    """Student's t interval (95 %) of the mean of two or more seeds' differences, in points."""
    mean, error = float(np.mean(differences)), float(stats.sem(differences))
    half = float(stats.t.ppf(0.975, len(differences) - 1)) * error
    return Interval(point=mean, low=mean - half, high=mean + half, n=len(differences), clusters=len(differences))


def _arm(arm: Arm, seeds: Mapping[int, Grown], standard: Mapping[int, Grown], draws: int) -> ArmResult:
    grown = [generation for lineage in seeds.values() for generation in lineage.record.generations]
    reached = sorted({generation.number for generation in grown})
    pairs = {seed: (lineage.cards[-1], lineage.cards[0]) for seed, lineage in seeds.items()}
    return ArmResult(
        arm=arm,
        seeds=tuple(sorted(seeds)),
        points=tuple(_point(number, seeds, draws) for number in reached),
        slope=_slope(seeds, draws),
        by_seed={str(seed): value for seed, value in _by_seed(pairs).items()},
        budget=_mean_budget(seeds),
        ratio=_ratio(seeds, standard),
        passed=sum(generation.passed for generation in grown),
        examined=len(grown),
    )


def _slope(seeds: Mapping[int, Grown], draws: int) -> Interval | None:
    """Least squares over generations 0, 1, ..., case by case; the mean of the seeds. None below two generations."""
    long = {seed: lineage.cards for seed, lineage in seeds.items() if len(lineage.cards) > 2}
    if not long:
        return None
    found: dict[tuple[int, int], Scorecard] = {}
    weights: dict[tuple[int, int], float] = {}
    for seed, cards in long.items():
        middle = (len(cards) - 1) / 2
        squares = sum((place - middle) ** 2 for place in range(len(cards)))
        for place, card in enumerate(cards):
            found[seed, place] = card
            weights[seed, place] = (place - middle) / squares / len(long)
    return interval(contrast(found, weights), draws=draws)


def _point(number: int, seeds: Mapping[int, Grown], draws: int) -> Point:
    """The seeds that have reached this generation, against their own generation 0."""
    pairs = {seed: (grown.cards[number], grown.cards[0]) for seed, grown in seeds.items() if len(grown.cards) > number}
    known = [score for card, _ in pairs.values() if (score := card.mean()) is not None]
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


def spent(lineage: LineageRecord) -> Budget:
    """What a lineage spent on learning; best of k draws the samples of its last generation only once."""
    if lineage.arm is Arm.BEST_OF_K:
        return lineage.generations[-1].learning
    total = Budget()
    for generation in lineage.generations:
        total = total.plus(generation.learning)
    return total


def _mean_budget(seeds: Mapping[int, Grown]) -> Budget:
    spents = [spent(lineage.record) for lineage in seeds.values()]
    sums = {name: sum(each.figures[name] for each in spents) / len(spents) for name in Budget().figures}
    return Budget(**{name: value if "seconds" in name else round(value) for name, value in sums.items()})


def _ratio(seeds: Mapping[int, Grown], standard: Mapping[int, Grown]) -> float | None:
    """Tokens over those of the standard arm, over the seeds that both have."""
    both = seeds.keys() & standard.keys()
    mine = sum(_tokens(spent(seeds[seed].record)) for seed in both)
    theirs = sum(_tokens(spent(standard[seed].record)) for seed in both)
    return mine / theirs if theirs else None


def _tokens(budget: Budget) -> int:
    return budget.generated_tokens + budget.trained_tokens
