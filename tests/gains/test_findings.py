"""What arms come to, on cards small enough to add up by hand."""

from __future__ import annotations

import numpy as np
import pytest

from loop.core.budget import Budget
from loop.core.contract import Half
from loop.core.episode import Split, Task
from loop.core.experiment import Arm, Findings
from loop.core.gate import Decision, Rule, Standing
from loop.core.generation import Exam, Generation
from loop.core.score import CaseScore, Scorecard
from loop.gains.findings import findings as compared
from loop.gains.records import Cards, Lineages, record_of
from tests.store import lineage

CARDS: dict[str, Scorecard] = {}


def _card(scores: list[float], contract: str = "c") -> str:
    rows = tuple(
        CaseScore(
            episode=f"{len(CARDS)}-{index}",
            task=Task(environment="tools", case=f"family{index}", split=Split.HOLDOUT, seed=index),
            sample=0,
            score=score,
            passed=score > 50,
        )
        for index, score in enumerate(scores)
    )
    card = Scorecard(contract=contract, pair="p", half=Half.SEALED, scores=rows)
    CARDS[card.digest] = card
    return card.digest


def _lineage(
    curve: list[list[float]], tokens: int = 100, passes: tuple[bool, ...] = (), contract: str = "c"
) -> list[Generation]:
    """A root and a generation for each later entry of the curve of case scores."""
    grown = [lineage.root()]
    for number, scores in enumerate(curve[1:], 1):
        exam = Exam(
            contract=contract,
            scorecard=_card(scores, contract),
            parent_scorecard=_card(curve[number - 1], contract),
            score=sum(scores) / len(scores),
            score_unscored_zero=None,
            coverage=1.0,
            cases=len(scores),
        )
        passed = passes[number - 1] if passes else True
        grown.append(
            Generation(
                number=number,
                family="f",
                seed=1,
                pair=lineage.pair(),
                parent=grown[-1].digest,
                exam=exam,
                decision=Decision(
                    standing=Standing.PROMOTED, rules=(Rule(name="total_gain", passed=passed, text="x"),)
                ),
                stages={
                    "collect": Budget(generated_tokens=tokens),
                    "train": Budget(trained_tokens=tokens),
                    "examine": Budget(generated_tokens=9999),
                },
            )
        )
    return grown


def findings(name: str, lineages: Lineages, cards: Cards) -> Findings | None:
    return compared(record_of(name, lineages, cards, {}))


ITERATED = {
    1: _lineage([[0, 0, 0, 0], [10, 10, 0, 0], [20, 20, 20, 0]]),
    2: _lineage([[0, 0, 0, 0], [10, 0, 0, 0], [40, 20, 0, 0]]),
}
ONE_SHOT = {1: _lineage([[0, 0, 0, 0], [10, 10, 10, 10]], 202), 2: _lineage([[0, 0, 0, 0], [0, 0, 0, 0]], 198)}


def test_compounding_is_the_last_iterated_score_less_the_one_shot_score() -> None:
    found = findings("x", {Arm.ITERATED: ITERATED, Arm.ONE_SHOT: ONE_SHOT}, CARDS.__getitem__)
    assert found is not None and found.compounding is not None
    # seed 1: 15 - 10 = 5; seed 2: 15 - 0 = 15; mean 10
    assert found.compounding.point == pytest.approx(10.0)
    assert found.by_seed["one_shot"] == pytest.approx({"1": 5.0, "2": 15.0})
    # by hand: standard error 5, and t of one degree of freedom is 12.706
    alone = found.over_seeds["one_shot"]
    assert [alone.point, alone.low, alone.high] == pytest.approx([10.0, -53.53, 73.53], abs=0.01)
    iterated = found.arms[0]
    # generation 1: (5 + 2.5) / 2; generation 2: (15 + 15) / 2
    assert [point.gain.point for point in iterated.points if point.gain] == pytest.approx([3.75, 15.0])


def test_a_budget_is_what_learning_cost_and_its_ratio_that_to_the_iterated_arm() -> None:
    found = findings("x", {Arm.ITERATED: ITERATED, Arm.ONE_SHOT: ONE_SHOT}, CARDS.__getitem__)
    assert found is not None
    iterated, one_shot = found.arms
    assert (iterated.tokens, one_shot.tokens) == (400, 400)  # two generations of 200; 404 and 396 for one shot
    assert one_shot.ratio == pytest.approx(1.0)
    assert iterated.per_point == pytest.approx(400 / 15.0)


def test_false_promotions_count_the_controls_that_met_every_rule() -> None:
    null = {1: _lineage([[0.0, 0.0], [1.0, 0.0], [0.0, 0.0]], 0, (True, False))}
    sham = {1: _lineage([[0.0, 0.0], [0.0, 0.0]], 100, (False,))}
    found = findings("x", {Arm.NULL: null, Arm.SHAM: sham}, CARDS.__getitem__)
    assert found is not None and found.false_promotions == (1, 3)
    assert found.compounding is None and not found.contrasts


def test_an_arm_that_has_only_its_root_says_nothing_yet() -> None:
    assert findings("x", {Arm.ITERATED: {1: [lineage.root()]}}, CARDS.__getitem__) is None


def test_arms_under_two_contracts_are_not_compared() -> None:
    other = {1: _lineage([[0.0] * 4, [10.0] * 4], contract="d")}
    with pytest.raises(ValueError, match="different contracts"):
        findings("x", {Arm.ITERATED: {1: ITERATED[1]}, Arm.ONE_SHOT: other}, CARDS.__getitem__)


def test_the_slope_is_that_of_a_line_through_the_generations() -> None:
    # numpy.polyfit([0, 1, 2], [0, 5, 15], 1)[0] = 7.5 and for 0, 2.5, 15 it is 7.5 too
    found = findings("x", {Arm.ITERATED: ITERATED, Arm.ONE_SHOT: ONE_SHOT}, CARDS.__getitem__)
    assert found is not None and found.arms[0].slope is not None
    expected = np.mean([np.polyfit([0, 1, 2], [0, 5, 15], 1)[0], np.polyfit([0, 1, 2], [0, 2.5, 15], 1)[0]])
    assert found.arms[0].slope.point == pytest.approx(expected)
    assert found.arms[1].slope is None  # two points are no trend
