"""How well a router routes: shares with intervals, confusion, the abstention curve, and what wrong routes cost."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from math import sqrt
from statistics import NormalDist

from loop.core.gate import Interval
from loop.core.plan import Plan
from loop.core.routing import ABSTAIN, AbstentionPoint, Route, RouteCase, RoutingReport
from loop.core.score import Scorecard
from loop.gains.exam import bounds
from loop.gains.intervals import Difference, paired

Decided = tuple[RouteCase, Route]

# Per cent of the cases that the abstention curve lets the router answer.
COVERAGES = tuple(range(100, 0, -10))


def wilson(right: int, cases: int, level: float = 0.95) -> Interval:
    """The share ``right`` of ``cases`` in per cent with its score interval (Wilson 1927); ValueError for no cases."""
    if cases == 0:
        raise ValueError("no case was decided, so there is no share")
    z, share = NormalDist().inv_cdf((1 + level) / 2), right / cases
    middle = (share + z * z / (2 * cases)) / (1 + z * z / cases)
    half = z / (1 + z * z / cases) * sqrt(share * (1 - share) / cases + z * z / (4 * cases * cases))
    low, high = (0.0 if right == 0 else middle - half), (1.0 if right == cases else middle + half)
    return Interval(point=100 * share, low=100 * low, high=100 * high, level=level, n=cases, clusters=cases)


def is_right(case: RouteCase, route: Route) -> bool:
    """Whether the label that answers is one of those wanted."""
    return route.label in case.wanted


def routing_report(
    decided: Sequence[Decided], in_distribution: Sequence[Decided] = (), level: float = 0.95
) -> RoutingReport:
    """The findings over these decisions, and apart from them those on the training bank's own kind of cases.

    ValueError when nothing was decided.
    """
    confusion: dict[str, Counter[str]] = defaultdict(Counter)
    for case, route in decided:
        confusion[route.label if is_right(case, route) else case.label][route.label] += 1
    return RoutingReport(
        cases=len(decided),
        compliance=wilson(sum(bool(route.first) for _, route in decided), len(decided)).point,
        accuracy=_accuracy(decided, level),
        labels=_by(decided, lambda case: case.label, level),
        kinds=_by(decided, lambda case: case.kind.value, level),
        confusion={wanted: dict(sorted(row.items())) for wanted, row in sorted(confusion.items())},
        how=dict(sorted(Counter(route.how.value for _, route in decided).items())),
        curve=abstention_curve(decided),
        in_distribution=_accuracy(in_distribution, level) if in_distribution else None,
    )


def _accuracy(decided: Sequence[Decided], level: float) -> Interval:
    return wilson(sum(is_right(case, route) for case, route in decided), len(decided), level)


def _by(decided: Sequence[Decided], key: Callable[[RouteCase], str], level: float) -> dict[str, Interval]:
    groups: dict[str, list[Decided]] = defaultdict(list)
    for case, route in decided:
        groups[key(case)].append((case, route))
    return {name: _accuracy(group, level) for name, group in sorted(groups.items())}


def abstention_curve(decided: Sequence[Decided]) -> tuple[AbstentionPoint, ...]:
    """The risk-coverage curve (El-Yaniv and Wiener 2010) of the router's own choices, surest first.

    A point answers at least its share of all cases: equal probabilities stay together. Cases
    where the router named no specialist are never answered, so the curve may end early.
    """
    named = [(case, route) for case, route in decided if route.first not in ("", ABSTAIN)]
    surest = sorted(named, key=lambda pair: -pair[1].probability)
    points: dict[int, AbstentionPoint] = {}
    for share in COVERAGES:
        wanted = -(-share * len(decided) // 100)
        if wanted > len(surest):
            continue
        threshold = surest[wanted - 1][1].probability
        answered = [(case, route) for case, route in surest if route.probability >= threshold]
        right = sum(route.first in case.wanted for case, route in answered)
        points[len(answered)] = AbstentionPoint(
            threshold=threshold, coverage=100 * len(answered) / len(decided), accuracy=100 * right / len(answered)
        )
    return tuple(points.values())


def routing_gain(plan: Plan, before: Sequence[Decided], after: Sequence[Decided]) -> Interval | None:
    """Accuracy after less before on the same cases, in points, bootstrapped over the groups they were written in.

    ValueError when the cases differ.
    """
    if [case for case, _ in before] != [case for case, _ in after]:
        raise ValueError("the two routers did not meet the same cases")
    rows = [
        Difference(
            environment="routing",
            group="routing",
            cluster=case.cluster,
            value=100.0 * (is_right(case, new) - is_right(case, old)),
        )
        for (case, old), (_, new) in zip(before, after, strict=True)
    ]
    return bounds(plan, rows)


def router_regret(plan: Plan, oracle: Scorecard, chosen: Scorecard) -> Interval | None:
    """What the chosen routes lose in contract points: each case's score by the oracle's route less by the chosen.

    Paired and clustered as every gain. ValueError for cards that do not compare.
    """
    return bounds(plan, paired(chosen, oracle))
