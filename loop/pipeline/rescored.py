"""What a rescored exam has beside scores and gains: facts of the run, and all that its stored episodes decide again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loop.core.contract import Contract, Half
from loop.core.episode import Episode, EpisodeShard, Task
from loop.core.gate import Interval
from loop.core.generation import Exam
from loop.core.pair import Pair
from loop.core.plan import Plan
from loop.core.score import CaseScore, Scorecard, ScoreShard
from loop.gains.contrasts import CHILD, PARENT, Cell
from loop.gains.exam import bounds, known
from loop.gains.intervals import paired, single
from loop.pipeline.cards import CHILD_CELL, PARENT_CELL, by_environment, card_of, cells, only
from loop.pipeline.examine import anchored, attribution, diversity_of
from loop.pipeline.experience import chain


@dataclass(frozen=True)
class Rescored:
    """The stored episodes of an attempt by key, and their new scores by ``score/<half>/<key>``."""

    contract: Contract
    plan: Plan
    parent: Pair
    child: Pair
    shards: Mapping[str, EpisodeShard]
    scores: Mapping[str, ScoreShard]

    def episodes(self, purpose: str) -> tuple[Episode, ...]:
        """The episodes played for a purpose, the part of their keys before a slash, in order."""
        return chain({key: shard for key, shard in self.shards.items() if key.startswith(f"{purpose}/")})

    def rows(self, purpose: str, half: Half) -> tuple[CaseScore, ...]:
        """Their scores under one half, in the same order."""
        keys = sorted(key for key in self.scores if key.startswith(f"score/{half}/{purpose}/"))
        return tuple(row for key in keys for row in self.scores[key].scores)

    def card(self, purpose: str, half: Half, pair: Pair) -> Scorecard:
        """One pair's scorecard, of first samples."""
        episodes, rows = self.episodes(purpose), self.rows(purpose, half)
        return card_of(self.contract.digest, pair, half, episodes, rows, range(self.plan.examine.samples))


def rest_of(
    found: Rescored, ends: Mapping[tuple[str, Half], Scorecard], own: Exam, tasks: tuple[Task, ...]
) -> dict[str, Any]:
    """The fields of the exam that ``exam_of`` leaves at their defaults; ``tasks`` are the exam's, as it met them."""
    plan, parent, child = found.plan, found.parent, found.child
    samples = plan.examine.diversity_samples
    diversity = diversity_of(parent, child, found.episodes("diversity"), found.rows("diversity", Half.VISIBLE), samples)
    return {
        "panel": own.panel,
        "selection": own.selection,
        "canaries": own.canaries,
        "routing": own.routing and own.routing.revise(regret=None),
        "anchor": _anchor(plan, ends[CHILD, Half.SEALED], own.panel, tasks),
        "diversity": diversity[0],
        "alarms": diversity[1],
        "interference": by_environment(_crossed(found)),
        "earlier": _earlier(found),
        **attribution(plan, _labels(found), _cells(found, ends), parent, child),
    }


def left_out(plan: Plan, own: Exam) -> tuple[str, ...]:
    """What stored episodes do not decide again, each as a sentence's part."""
    lost = []
    if plan.examine.best_of_tokens is not None:
        lost.append("the best of many answers stays the one that the run's own contract chose")
    if own.routing is not None and own.routing.regret is not None:
        lost.append("the router's regret is not scored again")
    return tuple(lost)


def _anchor(plan: Plan, card: Scorecard, panel: int, tasks: tuple[Task, ...]) -> Interval | None:
    """The score on the cases of every panel; a later panel holds them first, environment by environment."""
    kept: set[str] = set()
    for name in card.environments():
        mine = tuple(task for task in tasks if task.environment == name)
        first = anchored(mine, plan.examine.anchor)
        kept |= {task.digest for task in (mine[: len(first)] if panel else first)}
    return bounds(plan, single(card.revise(scores=tuple(row for row in card.scores if row.task.digest in kept))))


def _cells(found: Rescored, ends: Mapping[tuple[str, Half], Scorecard]) -> dict[Cell, Scorecard]:
    """The sealed cards of the 2 x 2 transplant; nothing for an equal pair, whose samples are told apart elsewhere."""
    if found.child.digest == found.parent.digest:
        return {}
    made = {PARENT_CELL: ends[PARENT, Half.SEALED], CHILD_CELL: ends[CHILD, Half.SEALED]}
    between = cells(found.parent, found.child)
    return {cell: made.get(cell) or found.card("exam", Half.SEALED, pair) for cell, pair in between.items()}


def _labels(found: Rescored) -> dict[str, str]:
    """The specialist that answered in each environment of the exam; "" where every episode broke before it could.

    In a composed system, whose turns are routed, all that changed counts as the imported one's.
    """
    theirs = next((adapter.label for adapter in found.child.adapters if adapter.digest == found.plan.imported), "")
    labels = {episode.task.environment: theirs for episode in found.episodes("exam")}
    for episode in found.episodes("exam"):
        answered = (turn.label for turn in episode.turns if turn.role == "assistant")
        labels[episode.task.environment] = labels[episode.task.environment] or next(answered, "")
    return labels


def _crossed(found: Rescored) -> dict[str, Scorecard]:
    """The sealed card of each specialist's adapter in the place of every other."""
    players = {episode.pair for episode in found.episodes("interference")}
    pairs = {adapter.label: only(found.child, adapter.label) for adapter in found.child.adapters}
    return {
        label: found.card("interference", Half.SEALED, pair) for label, pair in pairs.items() if pair.digest in players
    }


def _earlier(found: Rescored) -> dict[str, Interval]:
    """Child less parent on the train tasks of earlier generations, by number."""
    numbers = sorted({key.split("/")[1] for key in found.shards if key.startswith("earlier/")}, key=int)
    rows = {}
    for number in numbers:
        before, after = (found.card(f"earlier/{number}", Half.VISIBLE, pair) for pair in (found.parent, found.child))
        rows[number] = paired(before, after)
    return known(found.plan, rows)
