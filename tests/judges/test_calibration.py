"""A judge's own exam, and the drift from it: figures by hand from graders whose habits are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from loop.core.base import Base
from loop.core.errors import UserError
from loop.judges.calibration import Calibration, Reading, calibrate, family_warnings, requests, specimens
from loop.judges.drift import Drift, drift, make_ready, probes, refuse_drift
from loop.judges.llm import LlmJudge
from tests.judges.endpoint import Said, Script, grade, serve
from tests.judges.judged import CLEAR, KIND, judge_at, judged_contract
from tests.judges.talk import contract

CONTRACT = judged_contract(samples=2)
BASE = Base(id="x/y", family="smollm2", weights_digest="0" * 64, context_length=128, parameters=1)


def kind(body: dict[str, Any]) -> bool:
    return "I am with you" in body["messages"][1]["content"]


def rubric_first(body: dict[str, Any]) -> bool:
    text = body["messages"][1]["content"]
    return text.index("<rubric-") < text.index("<record-")


def by_model(**habits: Callable[[dict[str, Any]], float]) -> Script:
    return lambda number, body: grade(habits[body["model"]](body))


def calibration(script: Script, models: tuple[str, ...] = ("one", "two"), **options: object) -> Calibration:
    with serve(script) as served:
        judge = judge_at(*[served.url] * len(models), models=models, **options)
        return calibrate(CONTRACT, judge, specimens(CONTRACT, judge, each=3), base=BASE)


def test_judged_criteria_are_calibrated_and_without_any_every_criterion_by_its_text() -> None:
    judge = judge_at("http://host/v1", samples=1)
    judged = specimens(CONTRACT, judge, each=1)
    assert {(row.criterion, row.expected) for row in judged} == {
        (name, side) for name in (KIND, CLEAR) for side in (True, False)
    }
    assert judged[0].rubric == "The reply is kind.\nHolds when the reply is warm to the user."
    criteria = [c for scenario in contract().scenarios for c in scenario.criteria]
    plain = specimens(contract(), judge, each=1)
    assert len(plain) == 2 * len(criteria) == len({row.key for row in plain})
    assert requests(judge, plain) == 1 + 4 * len(criteria)
    assert len(specimens(CONTRACT, judge, each=1, every=True)) == len(plain) + len(judged)
    assert "{" not in next(row.rubric for row in plain if row.scenario == "tool_task")


def test_a_perfect_and_a_flat_judge_show_in_the_figures() -> None:
    found = calibration(by_model(one=lambda body: float(kind(body)), two=lambda body: 0.75))
    one, two = found.figures
    assert (one.accuracy, one.held, one.breached, one.order_effect, one.spread) == (1.0, 1.0, 0.0, 0.0, 0.0)
    assert (two.accuracy, two.held, two.breached) == (0.5, 0.75, 0.75)
    assert (one.asked, one.graded) == (12, 12)
    # Six units (1, 3/4) and six (0, 3/4): observed (6/16 + 54/16)/12 = 5/16; the 24 values have mean 5/8
    # and squared deviations 6 x 9/64 + 6 x 25/64 + 12 x 1/64 = 27/8, so expected 2 x 27/8 / 23 = 27/92.
    assert found.agreement == pytest.approx(1 - (5 / 16) / (27 / 92))
    # 12 replies x 2 samples x 2 orders x 2 judges, and one request to each that it answers at all.
    assert found.calls == 96 + 2


def test_the_effect_of_order_and_the_spread_of_sampling_are_measured() -> None:
    draws: dict[str, int] = {}

    def script(number: int, body: dict[str, Any]) -> Said:
        if body["model"] == "one":
            return grade(0.25 if rubric_first(body) else 0.75)
        key = str(body["seed"])
        draws[key] = draws.get(key, 0) + 1
        return grade(body["seed"] % 2)

    found = calibration(script, samples=8)
    one, two = found.figures
    assert one.order_effect == pytest.approx(0.5) and one.spread == pytest.approx(0.0)
    # Eight fair draws of 0 and 1: their standard deviation is 1/2 or a little more, unless all are alike.
    assert two.spread is not None and 0.4 < two.spread < 0.56


def test_a_judge_that_answers_nothing_stops_the_calibration_with_its_reason() -> None:
    with pytest.raises(UserError, match="judge two gives no grade: HTTP 404"):
        calibration(lambda number, body: grade(1) if body["model"] == "one" else Said(status=404))


def test_a_reply_that_could_not_be_graded_is_left_out_of_the_figures_and_counted() -> None:
    def script(number: int, body: dict[str, Any]) -> Said:
        return Said(status=404) if number > 0 and not kind(body) else grade(1)

    found = calibration(script, models=("one",))
    (one,) = found.figures
    assert found.warnings[-1] == "24 of 48 samples got no grade, most often because: HTTP 404"
    assert (one.asked, one.graded, one.accuracy, one.breached) == (12, 6, 1.0, None)


@pytest.mark.parametrize(
    ("model", "family", "warned"),
    [
        ("judge-a", "SmolLM-2", "own family"),
        ("HuggingFaceTB/SmolLM2-1.7B-Instruct", "", "own family"),
        ("judge-a", "", "states no family"),
        ("judge-a", "qwen", ""),
    ],
)
def test_a_judge_of_the_bases_family_is_warned_about(model: str, family: str, warned: str) -> None:
    made = judge_at("http://host/v1", models=(model,))
    judge = made.revise(endpoints=(made.endpoints[0].revise(family=family),))
    found = family_warnings(judge, BASE)
    assert [warned in sentence for sentence in found] == ([True] if warned else [])
    assert "not known" in family_warnings(judge, None)[0]


def reading(key: str, expected: bool, *scores: float | None) -> Reading:
    return Reading(key=key, scenario="s", criterion="c", expected=expected, scores=scores)


def test_drift_is_the_change_of_each_figure_over_the_replies_that_both_have() -> None:
    before = [reading("a", True, 0.9), reading("b", True, 0.7), reading("c", False, 0.1), reading("x", True, 0.0)]
    after = [reading("a", True, 0.7), reading("b", True, None), reading("c", False, 0.6), reading("y", False, 0.0)]
    found = {row.figure: row for row in drift(("m",), before, after)}
    assert found["mean held score"] == Drift(model="m", figure="mean held score", before=0.9, after=0.7)
    assert found["mean breached score"].change == pytest.approx(0.5)
    assert found["accuracy"].change == pytest.approx(-0.5)
    assert drift(("m",), before, []) == ()


def test_drift_beyond_the_tolerance_is_refused_in_one_sentence() -> None:
    rows = [Drift(model="m", figure="mean held score", before=0.9, after=a) for a in (0.8, 0.62)]
    refuse_drift(rows, 0.3)
    refuse_drift((), 0.1)
    with pytest.raises(UserError, match=r"m drifted: its mean held score .* was 0\.90 and is 0\.62 now"):
        refuse_drift(rows, 0.2)


def ready(judge: LlmJudge, found: Calibration) -> None:
    make_ready(judge, CONTRACT, {found.digest: found}.__getitem__)


def test_a_run_starts_with_the_judge_that_was_calibrated_and_not_after_it_drifted() -> None:
    strict = [True]

    def script(number: int, body: dict[str, Any]) -> Said:
        return grade(float(kind(body)) if strict[0] else 1.0)

    with serve(script) as served:
        judge = judge_at(served.url, probes=4)
        found = calibrate(CONTRACT, judge, specimens(CONTRACT, judge, each=3))
        pinned = judge.revise(calibration=found.digest)
        asked = probes(pinned, CONTRACT, found)
        assert [row.expected for row in asked] == [True, True, False, False]
        before = len(served.bodies)
        ready(pinned, found)
        assert len(served.bodies) - before == 4 * 2
        strict[0] = False
        with pytest.raises(UserError, match=r"judge one drifted: its mean breached score .* was 0\.00 and is 1\.00"):
            ready(pinned, found)


def test_a_run_is_refused_without_endpoints_a_calibration_or_with_anothers() -> None:
    with serve(by_model(one=lambda body: float(kind(body)), new=lambda body: 1.0)) as served:
        judge = judge_at(served.url)
        found = calibrate(CONTRACT, judge, specimens(CONTRACT, judge, each=1))
        other = judge_at(served.url, models=("new",), calibration=found.digest)
        for refused, words in (
            (LlmJudge(), "no endpoints"),
            (judge, "not calibrated"),
            (other, r"is of llm:one@\w+ under contract"),
        ):
            with pytest.raises(UserError, match=words):
                ready(refused, found)
        down = judge.revise(calibration=found.digest, retries=0)
    with pytest.raises(UserError, match="gives no grade: the connection failed"):
        ready(down, found)


def test_a_contract_without_judged_criteria_needs_no_calibration() -> None:
    make_ready(LlmJudge(), contract(), {}.__getitem__)
