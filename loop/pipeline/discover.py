"""Discover: which tasks the parent meets, on the rungs it has not yet made its own."""

from __future__ import annotations

from collections.abc import Mapping

from loop.core.episode import Split, Task
from loop.core.noun import seed_from
from loop.core.results import TaskList
from loop.core.stage import Stage
from loop.pipeline.parts import Run

REACHED = 0.05
MASTERED = 0.9
FIRST_LEVELS = (1, 2)


def discover(run: Run) -> TaskList:
    """Fresh train tasks for every environment, spread over its cases and frontier levels."""
    return run.attempt.once(Stage.DISCOVER, TaskList, lambda: _tasks(run))


def _tasks(run: Run) -> TaskList:
    """Round r meets the tasks that the r-th generation after the parent would meet first.

    Where an allowance of tokens is to be spent, one round more stands in reserve: replies
    of other lengths may spend it faster or slower than tasks do.
    """
    names = {e.name: e.levels for e in run.loop.environments if run.plan.collect.tasks.get(e.name, 0)}
    levels = {name: frontier(name, rungs, run.parent.experience) for name, rungs in names.items()}
    tasks = tuple(task for each in range(run.plan.collect.rounds) for task in _round(run, levels, run.seed_of(each)))
    wanted = run.plan.allowance.collect is not None
    reserve = _round(run, levels, (*run.seed, "reserve")) if wanted else ()
    return TaskList(tasks=tasks, reserve=reserve, levels=levels)


def _round(run: Run, levels: Mapping[str, tuple[int, ...]], seed: tuple[object, ...]) -> tuple[Task, ...]:
    contract, counts = run.loop.contract, run.plan.collect.tasks
    return tuple(
        task
        for name, rungs in levels.items()
        for task in run.loop.environment(name).tasks(
            contract, Split.TRAIN, counts[name], seed_from("discover", *seed, name), rungs
        )
    )


def frontier(name: str, rungs: int, experience: Mapping[str, float]) -> tuple[int, ...]:
    """The levels worth meeting: up to one above the highest reached, without the mastered.

    ``experience`` holds the visible pass rate by ``environment/level``. A level is reached
    at 5 % and mastered at 90 %: below there is nothing to learn from, above nothing to learn.
    Rungs under the lowest that was met were left behind as mastered before.
    """
    rates = {level: experience.get(f"{name}/{level}") for level in range(1, rungs + 1)}
    met = {level: value for level, value in rates.items() if value is not None}
    if not met:
        return tuple(level for level in FIRST_LEVELS if level <= rungs)
    reached = max((level for level, value in met.items() if value >= REACHED), default=1)
    top = min(rungs, reached + 1)
    open_levels = tuple(level for level in range(min(met), top + 1) if met.get(level, 0.0) < MASTERED)
    return open_levels or (top,)
