"""The noise floor of an exam in score points: the same cases, played with other batch neighbours."""

from __future__ import annotations

from collections.abc import Sequence

from loop.core.episode import EpisodeShard, Task
from loop.core.errors import StageFailed
from loop.core.manifest import Agreement
from loop.core.pair import Pair
from loop.core.score import CaseScore
from loop.gains.agreement import agreement
from loop.pipeline.experience import split_tasks
from loop.pipeline.manifest import Examination
from loop.pipeline.parts import Loop
from loop.pipeline.replay import judge_all, play_all, play_job


def measure_noise(loop: Loop, found: Examination, cases: int) -> Agreement:
    """Play cases of an exam as it played them, beside the parent, then each alone, and compare the scores.

    Both halves of the contract are scored. The opening of the sealed bank is recorded.
    Raises StageFailed when an episode broke: its case would be missing from the floor.
    """
    tasks = spread(found.tasks.tasks, cases)
    loop.store.open_holdout(found.attempt, found.parent.digest, f"noise floor of {found.generation.short}")
    pair = found.generation.pair
    together = _scores(loop, found, tasks, tuple(found.pairs.values()), found.plan.examine.shard_tasks)
    alone = _scores(loop, found, tasks, (pair,), 1)
    return agreement(together, alone)


def spread(tasks: Sequence[Task], count: int) -> tuple[Task, ...]:
    """``count`` tasks at even steps through the list, so that every environment has its share; all when fewer."""
    wanted = min(count, len(tasks))
    return tuple(tasks[index * len(tasks) // wanted] for index in range(wanted))


def _scores(
    loop: Loop, found: Examination, tasks: Sequence[Task], pairs: tuple[Pair, ...], size: int
) -> tuple[CaseScore, ...]:
    """The generation's case scores under both halves, its episodes played beside those of the other pairs."""
    samples = found.plan.examine.samples
    jobs = [play_job(loop, found, shard, pairs, samples) for shard in split_tasks(tasks, size)]
    own = found.generation.pair.digest
    purpose = "each case alone" if size == 1 else f"cases beside others, {size} at once"
    shards = {
        f"{index:03d}": EpisodeShard(episodes=tuple(e for e in shard.episodes if e.pair == own))
        for index, shard in enumerate(play_all(loop, jobs, "noise", purpose))
    }
    broken = [e.failure for shard in shards.values() for e in shard.episodes if e.failure is not None]
    if broken:
        raise StageFailed(
            f"{len(broken)} episodes failed at a boundary, so the noise floor is not known; the first: "
            f"{broken[0].boundary}: {broken[0].message}. Nothing was kept; mend the cause and run it again."
        )
    judged = judge_all(loop, found, shards, "noise")
    return tuple(score for key in judged for score in judged[key].scores)
