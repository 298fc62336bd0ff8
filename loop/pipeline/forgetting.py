"""Forgetting: parent and child once more on the tasks that earlier generations met (backward transfer)."""

from __future__ import annotations

from loop.core.contract import Half
from loop.core.episode import EpisodeShard, Task
from loop.core.gate import Interval
from loop.core.pair import Pair
from loop.core.stage import Stage
from loop.gains.exam import known
from loop.gains.intervals import Difference, paired
from loop.pipeline.cards import card_of
from loop.pipeline.curate import ancestors
from loop.pipeline.experience import chain, generated, play_jobs, score_shards, split_tasks
from loop.pipeline.parts import Run
from loop.pipeline.rollouts import play
from loop.pipeline.steps import each


def earlier_banks(run: Run, child: Pair) -> dict[str, Interval]:
    """Child less parent, greedy, on the train tasks of each earlier generation, by that generation's number.

    Below zero something learned before was lost again. Visible checks only: the tasks are of
    the train bank. Empty where the plan asks for none and where nothing came before.
    """
    count, parent = run.plan.examine.earlier, run.parent.pair
    if count == 0 or parent.digest == child.digest:
        return {}
    found: dict[str, tuple[Difference, ...]] = {}
    for digest in ancestors(run):
        grown = run.loop.store.by_digest(digest)
        tasks = first_of_each(run.loop.store.tasks_met(grown), count)
        number = str(grown.number - 1)
        shards = split_tasks(tasks, run.plan.examine.shard_tasks)
        jobs = play_jobs(run, shards, (parent, child), 1, 0.0, f"earlier/{number}")
        played = each(run, Stage.EXAMINE, EpisodeShard, jobs, play, generated)
        scores = score_shards(run, Stage.EXAMINE, played, Half.VISIBLE)
        contract, episodes = run.loop.contract.digest, chain(played)
        before, after = (card_of(contract, pair, Half.VISIBLE, episodes, scores, range(1)) for pair in (parent, child))
        found[number] = paired(before, after)
    return known(run.plan, found)


def first_of_each(tasks: tuple[Task, ...], count: int) -> tuple[Task, ...]:
    """The first ``count`` tasks of each environment."""
    taken: dict[str, list[Task]] = {}
    for task in tasks:
        mine = taken.setdefault(task.environment, [])
        if len(mine) < count:
            mine.append(task)
    return tuple(task for mine in taken.values() for task in mine)
