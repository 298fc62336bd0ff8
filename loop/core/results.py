"""Results of recorded steps that are lists of nouns."""

from __future__ import annotations

from loop.core.episode import Task
from loop.core.noun import Noun


class TaskList(Noun):
    """The tasks a generation will meet, in order, and the ladder's levels by environment.

    ``reserve`` is met only where an allowance of tokens is not yet spent.
    """

    tasks: tuple[Task, ...]
    reserve: tuple[Task, ...] = ()
    levels: dict[str, tuple[int, ...]] = {}


class Coverage(Noun):
    """Diversity of a pair's samples by ``environment/measure`` (see gains.coverage)."""

    measures: dict[str, float] = {}
