"""Collect: the parent's episodes on the train bank, as many as the plan or an allowance says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from loop.core.episode import Episode, EpisodeShard
from loop.core.errors import StageFailed
from loop.core.living import ERASED
from loop.core.results import TaskList
from loop.core.stage import Stage
from loop.pipeline.allowance import Unit, interleaved, spend
from loop.pipeline.experience import chain, generated, play_jobs, split_tasks
from loop.pipeline.parts import Run
from loop.pipeline.rollouts import play
from loop.pipeline.steps import each


def collect(run: Run, tasks: TaskList, routes: Mapping[str, EpisodeShard]) -> dict[str, EpisodeShard]:
    """The parent's episodes, shard by shard; a crash keeps the shards already done.

    An allowance of tokens is for them and for the ``routes`` decided before together.
    Raises StageFailed when more than the plan's share of episodes broke (PEER_BUGS 8).
    """
    plan, allowance = run.plan.collect, run.plan.allowance.collect
    pair, shards = run.parent.pair, split_tasks(tasks.tasks, plan.shard_tasks)
    if allowance is None:
        jobs = play_jobs(run, shards, (pair,), plan.samples, plan.temperature, "collect")
        episodes = each(run, Stage.COLLECT, EpisodeShard, jobs, play, generated)
    else:
        spare = split_tasks(tasks.reserve, plan.shard_tasks)
        units = [Unit(shard, plan.samples) for shard in (*interleaved(shards), *interleaved(spare))]
        spent = sum(generated(shard).generated_tokens for shard in routes.values())
        episodes = spend(run, Stage.COLLECT, "collect", units, pair, plan.temperature, allowance - spent)
    refuse_broken(chain(episodes), plan.failure_share)
    return episodes


def refuse_broken(episodes: Sequence[Episode], share: float) -> None:
    """Stop when too many episodes are Failures: their tasks would silently be missing.

    One that was taken away at its owner's wish did not break.
    """
    broken = [e.failure for e in episodes if e.failure is not None and e.failure.boundary != ERASED]
    if len(broken) > share * len(episodes):
        first = broken[0]
        raise StageFailed(
            f"{len(broken)} of {len(episodes)} episodes failed at a boundary (allowed: {share:.0%}); "
            f"the first: {first.boundary}: {first.message}. The episodes are kept; fix the cause and run with --fresh."
        )
