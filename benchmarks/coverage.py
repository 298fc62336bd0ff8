"""Do the intervals cover, and does the promotion test keep its alpha? Simulated lineages with a known truth.

    python benchmarks/coverage.py --sets 2000 --lineages 200 --generations 20

Data sets have the shape of the default exam: a ladder of nine families by five levels
with two cases each, a shorter ladder, and conversations in seven groups. Clusters are
drawn from a population, cases within a cluster are correlated, and a case changes by a
criterion or by the whole score, so that differences are lumpy and skewed as real ones.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time

import numpy as np
from scipy import stats

from loop.gains.intervals import Difference, interval
from loop.gains.sequential import draws_for, share, sign_flip

# Environment, groups, clusters in each group, cases in each cluster.
SHAPE = (("tools", 1, 45, 2), ("coding", 1, 18, 1), ("scenarios", 7, 2, 1))
STEPS = np.array([50.0, 100.0])


def draw(generator: np.random.Generator, gain: float) -> list[Difference]:
    """One paired exam whose expected difference is ``gain`` points in every environment."""
    rows = []
    for environment, groups, clusters, cases in SHAPE:
        for group, cluster in itertools.product(range(groups), range(clusters)):
            # How often this cluster's cases change, and which way: shared by its cases.
            moves, up = generator.beta(0.6, 1.4), generator.beta(1.5, 1.5)
            size_C = generator.choice(STEPS, cases) * (generator.random(cases) < moves)
            name = f"{environment}{group}"
            for value in size_C * np.where(generator.random(cases) < up, 1, -1) + gain:
                place = {"environment": environment, "group": name, "cluster": f"{name}/{cluster}"}
                rows.append(Difference(**place, value=float(value)))
    return rows


def coverage(sets: int, draws: int, gain: float) -> tuple[float, float]:
    """Share of nominal 95 % intervals that hold the truth, and the seconds of one interval."""
    covered, started = 0, time.perf_counter()
    for number in range(sets):
        found = interval(draw(np.random.default_rng([1, number]), gain), draws=draws, seed=number)
        covered += found is not None and found.low <= gain <= found.high
    return covered / sets, (time.perf_counter() - started) / sets


def false_promotions(lineages: int, generations: int, alpha: float) -> tuple[int, int]:
    """Null lineages with a false promotion, under the alpha budget and under a plain 95 % interval."""
    budgeted = plain = 0
    for lineage in range(lineages):
        by_budget = by_interval = False
        for look in range(1, generations + 1):
            rows = draw(np.random.default_rng([2, lineage, look]), 0.0)
            level = share(alpha, look)
            p_value = sign_flip(rows, draws=draws_for(level), seed=look)
            by_budget |= p_value is not None and p_value <= level
            found = interval(rows, draws=500, seed=look)
            by_interval |= found is not None and found.low > 0
        budgeted += by_budget
        plain += by_interval
    return budgeted, plain


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sets", type=int, default=2000)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--lineages", type=int, default=200)
    parser.add_argument("--generations", type=int, default=20)
    parser.add_argument("--alpha", type=float, default=0.05)
    options = parser.parse_args()
    print("| true gain | data sets | covered (nominal 95 %) | 95 % range of that share | ms an interval |")
    print("|---|---|---|---|---|")
    for gain in (0.0, 5.0):
        found, seconds = coverage(options.sets, options.draws, gain)
        low, high = stats.binomtest(round(found * options.sets), options.sets).proportion_ci(method="wilson")
        print(
            f"| {gain:g} | {options.sets} | {found:.1%} | {low:.1%} to {high:.1%} | {1000 * seconds:.0f} |", flush=True
        )
    budgeted, plain = false_promotions(options.lineages, options.generations, options.alpha)
    allowed = options.alpha + 2 * math.sqrt(options.alpha * (1 - options.alpha) / options.lineages)
    print(f"\n{options.lineages} null lineages of {options.generations} generations, with any false promotion:")
    print(f"  alpha budget and sign flips  {budgeted / options.lineages:.1%} (allowed {allowed:.1%})")
    print(f"  a 95 % interval each time    {plain / options.lineages:.1%}")


if __name__ == "__main__":
    main()
