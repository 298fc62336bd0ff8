"""The scoring rule, worked by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loop.core.case import score_episode
from loop.core.contract import Half, Pole, ScoringRule
from loop.core.episode import Episode, Failure, Record, Split, Task
from loop.core.score import CaseScore, Scorecard, Verdict, axiom_scores, balance, case_score, passed
from loop.library import default_root, load_contract

RULE = ScoringRule(axioms_weight=0.5, balance_weight=0.5, living_need=0.7, living_process=0.3)
TASK = Task(environment="scenarios", case="advice/p", split=Split.TRAIN, seed=0)


def verdict(
    value: float | None, axiom: str = "a", pole: Pole = Pole.NONE, weight: float = 1, **more: object
) -> Verdict:
    fields = {"criterion": "c", "axiom": axiom, "pole": pole, "weight": weight, "value": value, **more}
    return Verdict.model_validate(fields)


def test_a_case_is_half_the_mean_of_axioms_and_half_the_balance() -> None:
    rows = [
        verdict(1.0, "x", Pole.A, 2),
        verdict(0.0, "x", Pole.B, 1),
        verdict(1.0, "y", Pole.B, 3),
        verdict(0.5, "y", Pole.NONE, 1),
    ]
    # x = 2/3; y = 3.5/4 = 0.875; mean 0.7708333; p_A = 1, p_B = 3/4, balance 2*.75/1.75 = 0.8571429
    assert axiom_scores(rows) == pytest.approx({"x": 2 / 3, "y": 0.875})
    assert balance(rows) == pytest.approx(6 / 7)
    assert case_score(rows, RULE) == pytest.approx(50 * 0.7708333333 + 50 * 6 / 7)


def test_trading_one_pole_for_the_other_does_not_pay() -> None:
    one_sided = [verdict(1.0, pole=Pole.A), verdict(0.0, pole=Pole.B)]
    both_half = [verdict(0.5, pole=Pole.A), verdict(0.5, pole=Pole.B)]
    assert balance(one_sided) == 0.0
    assert balance(both_half) == 0.5
    assert case_score(both_half, RULE) == 50.0
    assert case_score(one_sided, RULE) == 25.0


def test_a_breached_veto_makes_the_case_zero_and_an_undecided_one_does_not() -> None:
    good = [verdict(1.0, pole=Pole.A), verdict(1.0, pole=Pole.B)]
    assert case_score([*good, verdict(0.0, veto=True)], RULE) == 0.0
    assert case_score([*good, verdict(0.49, veto=True)], RULE) == 0.0
    assert case_score([*good, verdict(None, veto=True)], RULE) == 100.0


def test_undecided_is_left_out_and_nothing_decided_is_unscored() -> None:
    assert case_score([verdict(1.0), verdict(None)], RULE) == 100.0
    assert case_score([verdict(None), verdict(None)], RULE) is None
    assert passed([verdict(None)]) is None
    assert passed([verdict(1.0), verdict(None)]) is True
    assert passed([verdict(1.0), verdict(0.0)]) is False


def test_with_one_pole_decided_the_balance_is_that_pole_and_with_none_the_axioms_stand_alone() -> None:
    assert balance([verdict(0.25, pole=Pole.B)]) == 0.25
    assert balance([verdict(0.25)]) is None
    assert case_score([verdict(0.25)], RULE) == 25.0


@given(st.lists(st.tuples(st.floats(0, 1), st.sampled_from(list(Pole)), st.floats(0.1, 10)), min_size=1))
def test_a_score_stays_between_0_and_100(rows: list[tuple[float, Pole, float]]) -> None:
    score = case_score([verdict(value, "x", pole, weight) for value, pole, weight in rows], RULE)
    assert score is not None and -1e-9 <= score <= 100 + 1e-9


def row(score: float | None, case: str, environment: str = "scenarios") -> CaseScore:
    task = Task(environment=environment, case=case, split=Split.HOLDOUT, seed=0)
    return CaseScore(episode="e", task=task, sample=0, score=score, passed=None)


def test_means_are_macro_averages_under_both_denominators() -> None:
    rows = (
        row(100.0, "advice/a"),
        row(None, "advice/b"),
        row(40.0, "tool_task/a"),
        row(20.0, "tool_task/b"),
        row(60.0, "tool_task/c"),
        row(10.0, "lookup", "tools"),
    )
    card = Scorecard(contract="k", pair="p", half=Half.SEALED, scores=rows)
    # scenarios: (100 + 40) / 2 = 70 dropped, (50 + 40) / 2 = 45 as zero; tools: 10
    assert card.mean("scenarios") == 70.0
    assert card.mean("scenarios", unscored_as_zero=True) == 45.0
    assert card.mean() == 40.0
    assert card.mean(unscored_as_zero=True) == 27.5
    assert card.coverage() == pytest.approx(5 / 6)


def test_a_failure_is_unscored_and_never_zero() -> None:
    contract = load_contract(default_root())
    broken = Failure(boundary="engine", message="lost")
    episode = Episode(task=TASK, pair="p", sample=0, seed=0, turns=(), record=Record(), failure=broken)
    scored = score_episode(contract, episode, [verdict(1.0)])
    assert (scored.score, scored.passed, scored.verdicts, scored.failure) == (None, None, (), broken)
    whole = score_episode(contract, episode.revise(failure=None), [verdict(1.0)])
    assert (whole.score, whole.passed, whole.axioms) == (100.0, True, {"a": 1.0})
