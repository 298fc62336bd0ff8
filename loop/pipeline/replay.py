"""Play an exam again from the stored blobs and say whether it gives the same result.

Nothing is recorded as the exam's: a replay registers, promotes and moves nothing. The one
row it leaves is the opening of the sealed bank, in the ledger.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import TypeVar

from loop.core.contract import Half
from loop.core.episode import Episode, EpisodeShard, Task
from loop.core.errors import UserError
from loop.core.manifest import Floor, Manifest, Replay, ReplayVerdict, Surroundings
from loop.core.noun import digest_of
from loop.core.pair import Pair
from loop.core.score import CaseScore, Scorecard, ScoreShard
from loop.gains.agreement import agreement, disagreements
from loop.pipeline.cards import HALVES
from loop.pipeline.experience import ScoreJob, judge_episodes
from loop.pipeline.manifest import Examination, manifest
from loop.pipeline.parts import Loop
from loop.pipeline.placed import routed
from loop.pipeline.rollouts import PlayJob, play
from loop.pipeline.surroundings import differences, surroundings

Job = TypeVar("Job")
Result = TypeVar("Result")
Scores = Mapping[tuple[Half, str], ScoreShard]


def replay(loop: Loop, found: Examination, written: Manifest, floor: Floor | None) -> Replay:
    """Play and judge the exam of a manifest again; ``floor`` is what this store measured, if anything.

    Raises UserError when the manifest is not of the exam that the store holds.
    """
    refuse_another_exam(found, written)
    loop.store.open_holdout(found.attempt, found.parent.digest, f"replay of {found.generation.short}")
    here = surroundings(loop)
    shards = dict(zip(found.shards, play_all(loop, _jobs(loop, found), "replay", "the exam's cases"), strict=True))
    scores = judge_all(loop, found, shards, "replay")
    then, now = _chained(found.scores), _chained(scores)
    agreed = agreement(then, now)
    changed, replies, failed = _episodes(found.shards, shards)
    is_equal = not changed and all(scores[key].digest == found.scores[key].digest for key in found.scores)
    reasons = () if is_equal else disagreements(agreed, floor)
    verdict = ReplayVerdict.EQUAL if is_equal else ReplayVerdict.DIFFERENT if reasons else ReplayVerdict.WITHIN
    return Replay(
        manifest=written.digest,
        generation=found.generation.digest,
        verdict=verdict,
        episodes=sum(len(shard.episodes) for shard in shards.values()),
        changed=changed,
        replies=replies,
        failed=failed,
        agreement=agreed,
        scores={
            role: (_mean(pair, found, found.shards, found.scores), _mean(pair, found, shards, scores))
            for role, pair in found.pairs.items()
        },
        floor=floor,
        dependencies=_dependencies(written.surroundings, here),
        reasons=reasons,
    )


def refuse_another_exam(found: Examination, written: Manifest) -> None:
    """UserError naming what the manifest and the store's own record do not agree on."""
    ours = manifest(found, written.floor).revise(surroundings=written.surroundings)
    names = [
        name for name in Manifest.model_fields if digest_of(getattr(ours, name)) != digest_of(getattr(written, name))
    ]
    if names:
        raise UserError(
            f"the manifest and this store disagree on {', '.join(names)} of generation {found.generation.number} "
            f"({found.generation.short}): replay it where it was examined, or write a new one with "
            f"`macaron-loop manifest {found.generation.short}`"
        )


def play_all(loop: Loop, jobs: Sequence[PlayJob], command: str, purpose: str) -> list[EpisodeShard]:
    """Play jobs on the executor and show how far they are; nothing is recorded."""
    return _all(loop, command, purpose, play, jobs)


def judge_all(
    loop: Loop, found: Examination, shards: Mapping[str, EpisodeShard], command: str
) -> dict[tuple[Half, str], ScoreShard]:
    """Both halves' case scores of shards; nothing is recorded."""
    keys = [(half, key) for half in HALVES for key in shards]
    jobs = [ScoreJob(loop.judge, found.contract, shards[key].episodes, half) for half, key in keys]
    return dict(zip(keys, _all(loop, command, "scores", judge_episodes, jobs), strict=True))


def play_job(loop: Loop, found: Examination, tasks: tuple[Task, ...], pairs: tuple[Pair, ...], samples: int) -> PlayJob:
    """The exam's way to play tasks of one environment: its sampling and its seed, with this machine's parts."""
    plan = found.plan
    known = routed(loop.environments) if plan.imported else loop.environments
    return PlayJob(
        engine=loop.engine,
        blobs=loop.blobs,
        environments=tuple(e for e in known if e.name == tasks[0].environment),
        contract=found.contract,
        pairs=pairs,
        tasks=tasks,
        samples=samples,
        temperature=plan.examine.temperature,
        seed=plan.seed,
    )


def _jobs(loop: Loop, found: Examination) -> list[PlayJob]:
    """A job for each recorded shard, with its tasks and pairs in the order they were played in."""
    pairs = {pair.digest: pair for pair in found.pairs.values()}
    jobs = []
    for shard in found.shards.values():
        tasks = {episode.task.digest: episode.task for episode in shard.episodes}
        players = dict.fromkeys(episode.pair for episode in shard.episodes)
        samples = len({episode.sample for episode in shard.episodes})
        jobs.append(play_job(loop, found, tuple(tasks.values()), tuple(pairs[digest] for digest in players), samples))
    return jobs


def _all(loop: Loop, command: str, purpose: str, call: Callable[[Job], Result], jobs: Sequence[Job]) -> list[Result]:
    results: list[Result] = []
    started = time.monotonic()
    loop.progress.stage(command, f"{purpose}, {len(jobs)} steps")
    for result in loop.executor.map(call, jobs):
        results.append(result)
        loop.progress.advance(len(results), len(jobs), purpose)
    loop.progress.finished(command, f"{purpose}, {len(jobs)} steps", time.monotonic() - started, reused=False)
    return results


def _chained(scores: Scores) -> tuple[CaseScore, ...]:
    return tuple(chain.from_iterable(scores[key].scores for key in sorted(scores)))


def _episodes(then: Mapping[str, EpisodeShard], now: Mapping[str, EpisodeShard]) -> tuple[int, int, int]:
    """How many episodes have another digest, how many of those other tokens, and how many failed now."""
    twice = [both for key in then for both in zip(then[key].episodes, now[key].episodes, strict=True)]
    changed = sum(old.digest != new.digest for old, new in twice)
    replies = sum(_tokens(old) != _tokens(new) for old, new in twice)
    return changed, replies, sum(new.failure is not None for _, new in twice)


def _tokens(episode: Episode) -> list[tuple[int, ...]]:
    return [turn.token_ids for turn in episode.turns]


def _mean(pair: Pair, found: Examination, shards: Mapping[str, EpisodeShard], scores: Scores) -> float | None:
    """The pair's score on the sealed half, 0..100."""
    owned = {e.digest for shard in shards.values() for e in shard.episodes if e.pair == pair.digest}
    rows = tuple(row for (half, _), shard in scores.items() if half is Half.SEALED for row in shard.scores)
    mine = tuple(row for row in rows if row.episode in owned)
    return Scorecard(contract=found.exam.contract, pair=pair.digest, half=Half.SEALED, scores=mine).mean()


def _dependencies(places: tuple[Surroundings, ...], here: Surroundings) -> tuple[str, ...] | None:
    """What differs here from where the exam was played; of several places, from the nearest one."""
    if not places:
        return None
    return min((differences(place, here) for place in places), key=len)
