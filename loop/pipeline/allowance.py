"""Spending an allowance of generated tokens: work in order until it is used up, the last of it cut to fit.

What is played next depends on what the played episodes cost, never on how many workers
there are, so that a run gives the same episodes anywhere.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain as flat
from itertools import zip_longest

from loop.core.episode import EpisodeShard, Task
from loop.core.pair import Pair
from loop.core.stage import Stage
from loop.pipeline.experience import generated
from loop.pipeline.parts import Run
from loop.pipeline.rollouts import PlayJob, play
from loop.pipeline.steps import each

# A wave is planned on the cost of episodes seen so far; this much of what is left is safe to plan at once.
SAFE_SHARE = 0.8


@dataclass(frozen=True)
class Unit:
    """Tasks of one environment, each to be met ``samples`` times from ``first_sample`` on."""

    tasks: tuple[Task, ...]
    samples: int
    first_sample: int = 0

    @property
    def environment(self) -> str:
        """Whose episodes these are: costs differ from one to another."""
        return self.tasks[0].environment


def interleaved(shards: Sequence[tuple[Task, ...]]) -> list[tuple[Task, ...]]:
    """Shards in turn from each environment, so that what is cut off at the end is a bit of each."""
    groups: dict[str, list[tuple[Task, ...]]] = {}
    for shard in shards:
        groups.setdefault(shard[0].environment, []).append(shard)
    return [shard for shard in flat.from_iterable(zip_longest(*groups.values())) if shard is not None]


def spend(
    run: Run, stage: Stage, purpose: str, units: Sequence[Unit], pair: Pair, temperature: float | None, tokens: int
) -> dict[str, EpisodeShard]:
    """Play units in order until ``tokens`` are generated, to within half a task's samples.

    Fewer where the units are used up first. Keys are ``<purpose>/000`` and on.
    """
    queue = deque(units)
    played: dict[str, EpisodeShard] = {}
    while wave := next_wave(queue, rates(played), tokens - _tokens(played)):
        jobs = {
            f"{purpose}/{len(played) + index:03d}": lambda unit=unit: _job(run, unit, pair, temperature)
            for index, unit in enumerate(wave)
        }
        played |= each(run, stage, EpisodeShard, jobs, play, generated)
    return played


def next_wave(queue: deque[Unit], rates: Mapping[str, float], left: float) -> list[Unit]:
    """Take from the queue what is surely to be played next; empty when nothing more fits.

    One unit of each environment whose cost is not known yet, else all units within the safe
    share of what is left, else the next one, cut to the tasks that fit.
    """
    if not queue or left <= 0:
        return []
    unknown = {unit.environment: unit for unit in reversed(queue) if unit.environment not in rates}
    if unknown:
        for unit in unknown.values():
            queue.remove(unit)
        return [unknown[name] for name in sorted(unknown)]
    wave, planned = [], 0.0
    while queue and planned + _cost(queue[0], rates) <= SAFE_SHARE * left:
        planned += _cost(queue[0], rates)
        wave.append(queue.popleft())
    if wave:
        return wave
    unit = queue.popleft()
    fitting = int(left / (rates[unit.environment] * unit.samples) + 0.5)
    if fitting >= len(unit.tasks):
        return [unit]
    if fitting == 0:
        return []
    queue.appendleft(replace(unit, tasks=unit.tasks[fitting:]))
    return [replace(unit, tasks=unit.tasks[:fitting])]


def rates(played: Mapping[str, EpisodeShard]) -> dict[str, float]:
    """Generated tokens an episode, by environment; at least one, so that an end is reached."""
    tokens: dict[str, list[int]] = {}
    for shard in played.values():
        for episode in shard.episodes:
            tokens.setdefault(episode.task.environment, []).append(episode.usage.generated_tokens)
    return {name: max(1.0, sum(counts) / len(counts)) for name, counts in tokens.items()}


def _cost(unit: Unit, rates: Mapping[str, float]) -> float:
    return rates[unit.environment] * unit.samples * len(unit.tasks)


def _tokens(played: Mapping[str, EpisodeShard]) -> int:
    return sum(generated(shard).generated_tokens for shard in played.values())


def _job(run: Run, unit: Unit, pair: Pair, temperature: float | None) -> PlayJob:
    loop = run.loop
    return PlayJob(
        engine=loop.engine,
        blobs=loop.blobs,
        environments=(loop.environment(unit.environment),),
        contract=loop.contract,
        pairs=(pair,),
        tasks=unit.tasks,
        samples=unit.samples,
        temperature=temperature,
        seed=run.plan.seed,
        first_sample=unit.first_sample,
    )
