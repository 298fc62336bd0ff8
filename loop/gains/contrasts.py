"""What a gain is made of: every effect is a weighted sum of scorecards over the same cases.

The 2 x 2 transplant of adapters and harness, and Shapley values over components that can
be switched on and off (Shapley 1953), are both linear in the scores, so one interval
serves them all: weigh the cards case by case, then bootstrap the rows as for a gain.
Taken over the same cases the parts sum to the whole exactly (GAINS.md, Attribution).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from itertools import combinations
from typing import TypeVar

from loop.core.contract import Half
from loop.core.score import Scorecard
from loop.gains.intervals import Difference, Value, by_score

Key = TypeVar("Key", bound=Hashable)
Cell = tuple[str, str]

OLD, NEW = "old", "new"
HARNESS = "harness"
# Cells are (adapters, harness). The gain is new/new - old/old.
TRANSPLANT: Mapping[str, Mapping[Cell, float]] = {
    "adapters": {(NEW, OLD): 1.0, (OLD, OLD): -1.0},
    HARNESS: {(OLD, NEW): 1.0, (OLD, OLD): -1.0},
    "interaction": {(NEW, NEW): 1.0, (NEW, OLD): -1.0, (OLD, NEW): -1.0, (OLD, OLD): 1.0},
}
GAIN: Mapping[Cell, float] = {(NEW, NEW): 1.0, (OLD, OLD): -1.0}

# Cells are (who, half): what the visible checks gained and the sealed ones did not (CONTRACT_V1.md, Goodhart gap).
PARENT, CHILD = "parent", "child"
GOODHART: Mapping[tuple[str, Half], float] = {
    (CHILD, Half.VISIBLE): 1.0,
    (PARENT, Half.VISIBLE): -1.0,
    (CHILD, Half.SEALED): -1.0,
    (PARENT, Half.SEALED): 1.0,
}


def contrast(
    cards: Mapping[Key, Scorecard], weights: Mapping[Key, float], value: Value = by_score
) -> tuple[Difference, ...]:
    """The weighted sum of the cards' values, case by case, where every card decided.

    A case that one card leaves undecided is left out of all effects alike, also of those
    that do not weigh that card: otherwise parts would not sum to their whole. Raises
    ValueError for cards of different contracts, or of different cases.
    """
    if len({card.contract for card in cards.values()}) != 1:
        raise ValueError("scorecards of different contracts do not compare: rescore the ancestors first")
    tables = {key: {(row.task.digest, row.sample): row for row in card.scores} for key, card in cards.items()}
    first = next(iter(tables.values()))
    if any(table.keys() != first.keys() for table in tables.values()):
        raise ValueError("the scorecards did not meet the same cases")
    rows = []
    for case, score in first.items():
        values = {key: value(table[case]) for key, table in tables.items()}
        decided = {key: points for key, points in values.items() if points is not None}
        if len(decided) == len(tables):
            total = math.fsum(weight * decided[key] for key, weight in weights.items())
            task = score.task
            rows.append(Difference(environment=task.environment, group=task.group, cluster=task.cluster, value=total))
    return tuple(rows)


def whole(
    cells: Mapping[Cell, Scorecard], weights: Mapping[str, Mapping[Cell, float]]
) -> dict[str, tuple[Difference, ...]]:
    """The rows of each effect and, as ``total``, of the gain they sum to."""
    return {name: contrast(cells, cell) for name, cell in {**weights, "total": GAIN}.items()}


def coalitions(
    cells: Mapping[Cell, Scorecard], label_of: Mapping[str, str], players: Sequence[str]
) -> dict[frozenset[str], Scorecard]:
    """The card of every coalition of specialists (by label) and ``harness``, from the four transplants.

    ``label_of`` names the one specialist that answers in each environment: its episodes do
    not depend on the other specialists, so no coalition needs to be played.
    """
    first = next(iter(cells.values()))
    tables = {cell: {(row.task.digest, row.sample): row for row in card.scores} for cell, card in cells.items()}
    made = {}
    for found in (frozenset(some) for size in range(len(players) + 1) for some in combinations(players, size)):
        harness = NEW if HARNESS in found else OLD
        rows = tuple(
            tables[NEW if label_of[row.task.environment] in found else OLD, harness][row.task.digest, row.sample]
            for row in first.scores
        )
        made[found] = Scorecard(contract=first.contract, pair="", half=first.half, scores=rows)
    return made


def shapley(players: Sequence[str]) -> dict[str, dict[frozenset[str], float]]:
    """Each player's weights on the coalitions; applied to their scores they give its Shapley value.

    Coalitions are the players switched on; all 2^n must be scored. A player's weight on
    S with it is (|S| - 1)! (n - |S|)! / n!, and on S without it -|S|! (n - |S| - 1)! / n!.
    """
    if len(set(players)) != len(players):
        raise ValueError(f"a player is named twice: {', '.join(players)}")
    count = len(players)
    coalitions = [frozenset(found) for size in range(count + 1) for found in combinations(players, size)]
    return {player: {found: _weight(player, found, count) for found in coalitions} for player in players}


def _weight(player: str, coalition: frozenset[str], count: int) -> float:
    size = len(coalition)
    if player in coalition:
        return math.factorial(size - 1) * math.factorial(count - size) / math.factorial(count)
    return -math.factorial(size) * math.factorial(count - size - 1) / math.factorial(count)
