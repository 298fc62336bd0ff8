"""Scores of two contract versions never stand in one series."""

from __future__ import annotations

import pytest

from loop.core.contract import Half
from loop.core.episode import Split, Task
from loop.core.errors import UserError
from loop.core.generation import Generation
from loop.core.plan import GatePlan
from loop.core.score import CaseScore, Scorecard
from loop.gains.comparable import gain_since, refuse_mixed, series
from tests.store import lineage

OLD, NEW = "c" * 64, "d" * 64


def _line(*contracts: str) -> list[Generation]:
    """A root, then one generation after another, each examined under the contract named."""
    found = [lineage.root()]
    for contract in contracts:
        child = lineage.child(found[-1])
        found.append(child.revise(exam=lineage.exam().revise(contract=contract)))
    return found


def _card(points: list[float | None], contract: str = OLD) -> Scorecard:
    scores = tuple(
        CaseScore(
            episode=f"{index}",
            task=Task(environment="tools", case=f"family{index}", split=Split.HOLDOUT, seed=index),
            sample=0,
            score=value,
            passed=None,
        )
        for index, value in enumerate(points)
    )
    return Scorecard(contract=contract, pair="p", half=Half.SEALED, scores=scores)


def test_each_contract_is_a_series_of_its_own_and_a_root_is_in_none() -> None:
    root, one, two, three = _line(OLD, NEW, NEW)
    assert series([root, one, two, three]) == {OLD: (one,), NEW: (two, three)}


def test_generations_under_two_contracts_are_refused_with_the_command_that_mends_it() -> None:
    with pytest.raises(UserError) as caught:
        refuse_mixed(_line(OLD, NEW), {OLD: "v1", NEW: "v2"})
    told = str(caught.value)
    assert "v1: 1; v2: 2" in told and "rescore --contract v2" in told
    refuse_mixed(_line(OLD, OLD), {OLD: "v1"})


def test_the_gain_since_an_ancestor_is_the_mean_of_the_cases_that_both_decided() -> None:
    # By hand: the third case is undecided before, so the gain is ((60 - 50) + (90 - 70)) / 2.
    found = gain_since(_card([50.0, 70.0, None]), _card([60.0, 90.0, 100.0]), GatePlan(draws=200), 1)
    assert found is not None and found.point == pytest.approx(15.0) and found.n == 2


def test_scorecards_of_two_contracts_or_of_other_cases_give_no_gain() -> None:
    with pytest.raises(ValueError, match="rescore"):
        gain_since(_card([50.0], OLD), _card([60.0], NEW), GatePlan(), 1)
    with pytest.raises(ValueError, match="same cases"):
        gain_since(_card([50.0]), _card([60.0, 70.0]), GatePlan(), 1)
