"""Parts of a gain: against textbook games, permutations by brute force, and the sum they must have."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import combinations, permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loop.core.contract import Half
from loop.core.episode import Split, Task
from loop.core.score import CaseScore, Scorecard
from loop.gains.contrasts import NEW, OLD, TRANSPLANT, Key, coalitions, contrast, shapley, whole
from loop.gains.intervals import interval

SCORES = st.one_of(st.none(), st.floats(0, 100))


def _card(name: str, scores: list[float | None], contract: str = "c", start: int = 0) -> Scorecard:
    rows = tuple(
        CaseScore(
            episode=f"{name}{index}",
            task=Task(environment="tools", case=f"family{index % 3}", split=Split.HOLDOUT, seed=start + index),
            sample=0,
            score=score,
            passed=None if score is None else score > 50,
        )
        for index, score in enumerate(scores)
    )
    return Scorecard(contract=contract, pair=name, half=Half.SEALED, scores=rows)


def _point(cards: Mapping[Key, Scorecard], weights: Mapping[Key, float]) -> float | None:
    found = interval(contrast(cards, weights), draws=100)
    return None if found is None else found.point


def _values(game: Mapping[frozenset[str], float], players: list[str]) -> dict[str, float]:
    return {name: math.fsum(w * game[s] for s, w in weights.items()) for name, weights in shapley(players).items()}


def test_the_glove_game_has_its_textbook_values() -> None:
    # One left glove, two right ones; a pair is worth 1 (Shapley value 2/3, 1/6, 1/6).
    players = ["left", "right", "other right"]
    coalitions = [frozenset(s) for size in range(4) for s in combinations(players, size)]
    game = {s: float("left" in s and len(s) > 1) for s in coalitions}
    assert _values(game, players) == pytest.approx({"left": 2 / 3, "right": 1 / 6, "other right": 1 / 6})


@given(st.lists(st.floats(-100, 100), min_size=16, max_size=16))
def test_shapley_values_are_the_mean_marginal_gains_over_all_orders(worth: list[float]) -> None:
    players = ["L0", "L1", "L2", "harness"]
    coalitions = [frozenset(s) for size in range(5) for s in combinations(players, size)]
    game = dict(zip(coalitions, worth, strict=True))
    found = _values(game, players)
    for player in players:
        marginal = []
        for order in permutations(players):
            before = frozenset(order[: order.index(player)])
            marginal.append(game[before | {player}] - game[before])
        assert found[player] == pytest.approx(math.fsum(marginal) / len(marginal), abs=1e-9)
    whole = game[frozenset(players)] - game[frozenset()]
    assert math.fsum(found.values()) == pytest.approx(whole, abs=1e-9)


@given(st.lists(st.tuples(SCORES, SCORES, SCORES, SCORES), min_size=1, max_size=12))
def test_transplant_effects_sum_to_the_gain_whatever_is_undecided(table: list[tuple[float | None, ...]]) -> None:
    cells = [(OLD, OLD), (NEW, OLD), (OLD, NEW), (NEW, NEW)]
    cards = {cell: _card("-".join(cell), [row[i] for row in table]) for i, cell in enumerate(cells)}
    gain = _point(cards, {(NEW, NEW): 1.0, (OLD, OLD): -1.0})
    effects = [_point(cards, weights) for weights in TRANSPLANT.values()]
    if gain is None:
        assert effects == [None, None, None]
    else:
        assert math.fsum(effect for effect in effects if effect is not None) == pytest.approx(gain, abs=1e-9)


@given(st.lists(st.lists(SCORES, min_size=8, max_size=8), min_size=1, max_size=9))
def test_shapley_values_of_scorecards_sum_to_the_total(table: list[list[float | None]]) -> None:
    players = ["adapters", "harness", "routing"]
    coalitions = [frozenset(s) for size in range(4) for s in combinations(players, size)]
    cards = {s: _card("+".join(sorted(s)), [row[i] for row in table]) for i, s in enumerate(coalitions)}
    total = _point(cards, {frozenset(players): 1.0, frozenset(): -1.0})
    parts = [_point(cards, weights) for weights in shapley(players).values()]
    if total is not None:
        assert math.fsum(part for part in parts if part is not None) == pytest.approx(total, abs=1e-9)


def test_a_transplant_by_hand() -> None:
    # Adapters alone give +10, the harness alone +4, both together +20: they help each other by 6.
    cards = {
        (OLD, OLD): _card("a", [50.0, 50.0]),
        (NEW, OLD): _card("b", [60.0, 60.0]),
        (OLD, NEW): _card("c", [54.0, 54.0]),
        (NEW, NEW): _card("d", [70.0, 70.0]),
    }
    found = {name: _point(cards, weights) for name, weights in TRANSPLANT.items()}
    assert found == pytest.approx({"adapters": 10.0, "harness": 4.0, "interaction": 6.0})


def test_cards_that_do_not_compare_are_refused() -> None:
    one = _card("a", [1.0, 2.0])
    with pytest.raises(ValueError, match="contracts"):
        contrast({"a": one, "b": _card("b", [1.0, 2.0], contract="other")}, {"a": 1.0, "b": -1.0})
    with pytest.raises(ValueError, match="same cases"):
        contrast({"a": one, "b": _card("b", [1.0, 2.0], start=5)}, {"a": 1.0, "b": -1.0})
    with pytest.raises(ValueError, match="twice"):
        shapley(["L0", "L0"])


@given(st.lists(st.tuples(SCORES, SCORES, SCORES, SCORES), min_size=1, max_size=12))
def test_the_parts_of_an_exam_sum_to_its_total(table: list[tuple[float | None, ...]]) -> None:
    order = [(OLD, OLD), (NEW, OLD), (OLD, NEW), (NEW, NEW)]
    cells = {cell: _card(str(cell), [row[at] for row in table]) for at, cell in enumerate(order)}
    players = ["L1", "harness"]
    effects = {name: interval(rows, draws=50) for name, rows in whole(cells, TRANSPLANT).items()}
    made = coalitions(cells, {"tools": "L1"}, players)
    values = {player: _point(made, weights) for player, weights in shapley(players).items()}
    if effects["total"] is None:
        assert set(values.values()) == {None}
        return
    total = effects["total"].point
    parts = [found.point for name, found in effects.items() if name != "total" and found]
    assert math.fsum(parts) == pytest.approx(total, abs=1e-6)
    assert math.fsum(value for value in values.values() if value is not None) == pytest.approx(total, abs=1e-6)


def test_a_coalition_takes_each_environment_from_the_cell_of_its_specialist() -> None:
    scores = {(OLD, OLD): 0.0, (NEW, OLD): 10.0, (OLD, NEW): 20.0, (NEW, NEW): 30.0}
    cells = {cell: _card(str(cell), [points]) for cell, points in scores.items()}
    made = coalitions(cells, {"tools": "L1"}, ["L1", "L2", "harness"])
    found = {tuple(sorted(players)): card.scores[0].score for players, card in made.items()}
    assert found[()] == found[("L2",)] == 0.0  # L2 answers nowhere here
    assert found[("L1",)] == found[("L1", "L2")] == 10.0
    assert found[("harness",)] == 20.0 and found[("L1", "harness")] == 30.0
