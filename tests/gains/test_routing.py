"""Shares with Wilson intervals (scipy's are the oracle), the abstention curve and regret by hand."""

from __future__ import annotations

import pytest
from scipy import stats

from loop.core.contract import Half
from loop.core.episode import Split, Task
from loop.core.routing import ABSTAIN, Route, RouteCase, RouteContext, RouteHow, RouteKind
from loop.core.score import CaseScore, Scorecard
from loop.gains.routing import abstention_curve, router_regret, routing_gain, routing_report, wilson
from tests import fakes


def case(name: str, *wanted: str, kind: RouteKind = RouteKind.PLAIN) -> RouteCase:
    return RouteCase(id=name, kind=kind, context=RouteContext(message=name), wanted=wanted)


def route(first: str, probability: float = 0.9, label: str = "") -> Route:
    if first in ("", ABSTAIN):
        return Route(label="L0", how=RouteHow.ABSTAINED, first=first, probability=probability)
    return Route(label=label or first, how=RouteHow.ROUTED, first=first, probability=probability)


@pytest.mark.parametrize(("right", "cases"), [(0, 7), (7, 7), (1, 3), (60, 83), (6391, 6448)])
@pytest.mark.parametrize("level", [0.9, 0.95])
def test_intervals_are_scipy_s_wilson_intervals(right: int, cases: int, level: float) -> None:
    found = wilson(right, cases, level)
    expected = stats.binomtest(right, cases).proportion_ci(level, method="wilson")
    assert found.low == pytest.approx(100 * expected.low, abs=1e-9)
    assert found.high == pytest.approx(100 * expected.high, abs=1e-9)
    assert found.point == pytest.approx(100 * right / cases)


def test_a_share_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="no case"):
        wilson(0, 0)


def test_a_report_counts_classes_kinds_confusion_and_kept_labels() -> None:
    decided = [
        (case("a", "L0"), route("L0")),
        (case("b", "L0"), route("L1")),
        (case("c", "L1", kind=RouteKind.FOLLOW_UP), route("L1")),
        (case("d", "L1"), route("")),
        (case("e", "L2", "L1", kind=RouteKind.SEVERAL), route("L1")),
        (case("f", "L0"), route(ABSTAIN)),
    ]
    report = routing_report(decided, [(case("t", "L0"), route("L0"))])
    # Right: a, c, e (any of its labels) and f, whose abstention falls back on L0.
    assert report.accuracy.point == pytest.approx(100 * 4 / 6)
    assert report.compliance == pytest.approx(100 * 5 / 6)
    assert {name: found.n for name, found in report.labels.items()} == {"L0": 3, "L1": 2, "L2": 1}
    assert report.labels["L0"].point == pytest.approx(100 * 2 / 3) and report.labels["L2"].point == 100
    assert report.kinds["several"].point == 100 and report.kinds["plain"].n == 4
    assert report.confusion == {"L0": {"L0": 2, "L1": 1}, "L1": {"L0": 1, "L1": 2}}
    assert report.how == {"routed": 4, "abstained": 2}
    assert report.in_distribution is not None and report.in_distribution.n == 1


def test_the_abstention_curve_answers_the_surest_first() -> None:
    # Ten cases, sure in this order; the third and the last two of eight are wrong, two are abstentions.
    rights = [True, True, False, True, True, True, False, False]
    decided = [(case(f"{n}", "L1"), route("L1" if right else "L2", 0.95 - n / 20)) for n, right in enumerate(rights)]
    decided += [(case("8", "L1"), route(ABSTAIN, 1.0)), (case("9", "L1"), route("", 0.0))]
    points = abstention_curve(decided)
    assert [point.coverage for point in points] == [80, 70, 60, 50, 40, 30, 20, 10]
    expected = [5 / 8, 5 / 7, 5 / 6, 4 / 5, 3 / 4, 2 / 3, 1, 1]
    assert [point.accuracy for point in points] == pytest.approx([100 * share for share in expected])
    assert points[0].threshold == pytest.approx(0.6) and points[-1].threshold == pytest.approx(0.95)


def test_equal_probabilities_are_answered_together() -> None:
    decided = [(case(f"{n}", "L1"), route("L1" if n else "L2", 0.5)) for n in range(5)]
    points = abstention_curve(decided)
    assert [(point.coverage, point.accuracy) for point in points] == [(100, 80)]


def test_the_gain_is_paired_and_other_cases_are_refused() -> None:
    cases = [case(f"plain/L0/{n // 2:02d}.{n}", "L0") for n in range(8)]
    before = [(one, route("L1" if n < 4 else "L0")) for n, one in enumerate(cases)]
    after = [(one, route("L1" if n < 1 else "L0")) for n, one in enumerate(cases)]
    gain = routing_gain(fakes.plan(), before, after)
    assert gain is not None and gain.point == pytest.approx(100 * 3 / 8)
    assert (gain.n, gain.clusters) == (8, 4) and gain.low <= gain.point <= gain.high
    with pytest.raises(ValueError, match="same cases"):
        routing_gain(fakes.plan(), before, after[:-1])


def card(*scores: float) -> Scorecard:
    rows = tuple(
        CaseScore(
            episode=f"{n}",
            task=Task(environment="tools", case=f"family{n}", split=Split.HOLDOUT, seed=n),
            sample=0,
            score=score,
            passed=score > 50,
        )
        for n, score in enumerate(scores)
    )
    return Scorecard(contract="c", pair="", half=Half.SEALED, scores=rows)


def test_regret_is_the_oracle_s_score_less_the_chosen_route_s() -> None:
    regret = router_regret(fakes.plan(), card(100, 50, 80, 60), card(100, 0, 80, 70))
    assert regret is not None and regret.point == pytest.approx((0 + 50 + 0 - 10) / 4)
    assert regret.low <= regret.point <= regret.high
