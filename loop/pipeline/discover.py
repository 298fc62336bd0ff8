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
    tasks: list[Task] = []
    levels: dict[str, tuple[int, ...]] = {}
    for environment in run.loop.environments:
        name = environment.name
        count = run.plan.collect.tasks.get(name, 0)
        if count == 0:
            continue
        levels[name] = frontier(name, environment.levels, run.parent.experience)
        seed = seed_from("discover", *run.seed, name)
        tasks.extend(environment.tasks(run.loop.contract, Split.TRAIN, count, seed, levels[name]))
    return TaskList(tasks=tuple(tasks), levels=levels)


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
