"""The first gate: each rule alone can refuse, and the record keeps its figures."""

from __future__ import annotations

import pytest

from loop.core.gate import Interval, Standing
from loop.core.generation import Exam
from loop.core.routing import RoutingExam, RoutingReport
from loop.gains.gate import decide


def _interval(point: float, half: float) -> Interval:
    return Interval(point=point, low=point - half, high=point + half, n=50, clusters=10)


def _exam(**changes: object) -> Exam:
    good = Exam(
        contract="c",
        scorecard="s",
        score=50.0,
        score_unscored_zero=50.0,
        coverage=1.0,
        cases=50,
        gain=_interval(5.0, 2.0),
        gain_unscored_zero=_interval(5.0, 2.0),
        gain_p=0.004,
        axiom_gains={"honest_counsel": _interval(1.0, 3.0)},
    )
    return good.revise(**changes)


def test_a_clear_gain_without_a_lost_axiom_is_promoted() -> None:
    decision = decide(_exam(), True, margin=2.0)
    assert decision.standing is Standing.PROMOTED and decision.reasons == ()


@pytest.mark.parametrize(
    ("exam", "attested", "rule"),
    [
        (_exam(gain=_interval(5.0, 6.0)), True, "total_gain"),
        (_exam(gain=None), True, "total_gain"),
        (_exam(gain_p=0.031), True, "total_gain"),
        (_exam(gain_p=None), True, "total_gain"),
        (_exam(gain_unscored_zero=_interval(0.5, 1.0)), True, "total_gain"),
        (_exam(axiom_gains={"honest_counsel": _interval(-9.0, 3.0)}), True, "axioms"),
        (_exam(goodhart=_interval(6.0, 4.0)), True, "goodhart"),
        (_exam(), False, "attested"),
    ],
)
def test_each_rule_alone_rejects(exam: Exam, attested: bool, rule: str) -> None:
    decision = decide(exam, attested, margin=2.0)
    assert decision.standing is Standing.REJECTED
    assert [found.name for found in decision.rules if not found.passed] == [rule]


def _routing(compliance: float, gain: Interval) -> RoutingExam:
    accuracy = _interval(80.0, 5.0)
    before = RoutingReport(cases=50, compliance=99.0, accuracy=accuracy)
    return RoutingExam(parent=before, child=before.revise(compliance=compliance), gain=gain)


def test_a_router_that_keeps_fewer_labels_or_is_shown_worse_is_not_promoted() -> None:
    for found in (_routing(98.0, _interval(9.0, 2.0)), _routing(99.0, _interval(-6.0, 3.0))):
        decision = decide(_exam(routing=found), True, margin=2.0)
        assert [rule.name for rule in decision.rules if not rule.passed] == ["routing"]
    for gain in (_interval(-6.0, 7.0), _interval(-1.5, 1.0), _interval(3.0, 1.0)):
        assert decide(_exam(routing=_routing(99.0, gain)), True, margin=2.0).standing is Standing.PROMOTED


def test_a_loss_that_is_within_the_margin_or_not_shown_does_not_reject() -> None:
    small = _exam(axiom_gains={"honest_counsel": _interval(-1.5, 1.0)})
    noisy = _exam(axiom_gains={"honest_counsel": _interval(-4.0, 9.0)})
    assert decide(small, True, margin=2.0).standing is Standing.PROMOTED
    assert decide(noisy, True, margin=2.0).standing is Standing.PROMOTED


def test_a_later_look_needs_a_smaller_p_value() -> None:
    # alpha * 6 / (pi * g)^2 by hand: 0.0304 at the first look, 0.0034 at the third.
    assert decide(_exam(), True, margin=2.0, look=1).standing is Standing.PROMOTED
    third = decide(_exam(), True, margin=2.0, look=3)
    assert third.standing is Standing.REJECTED
    assert third.rules[0].figures["level"] == pytest.approx(0.00338, abs=1e-5)
    assert "0.0034" in third.rules[0].text and "0.004" in third.rules[0].text


def test_a_goodhart_gap_that_is_not_shown_does_not_reject() -> None:
    for gap in (None, _interval(3.0, 3.5), _interval(-6.0, 2.0)):
        assert decide(_exam(goodhart=gap), True, margin=2.0).standing is Standing.PROMOTED


def test_an_override_is_in_the_record_for_ever() -> None:
    decision = decide(_exam(gain=_interval(-5.0, 1.0)), True, margin=2.0, forced=True)
    assert decision.standing is Standing.PROMOTED and decision.forced
    assert decision.reasons == ("the gain's interval does not lie above zero",)


def test_an_identical_successor_is_rejected() -> None:
    same = _interval(0.0, 0.0)
    assert decide(_exam(gain=same, gain_unscored_zero=same), True, margin=2.0).standing is Standing.REJECTED
