"""Collect and score: the parent's episodes on the train bank, under the visible contract."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from loop.core.budget import Budget
from loop.core.contract import Contract, Half
from loop.core.episode import Episode, EpisodeShard, Task
from loop.core.errors import StageFailed
from loop.core.pair import Pair
from loop.core.results import TaskList
from loop.core.score import CaseScore, ScoreShard, Verdict, axiom_scores, case_score, passed
from loop.core.stage import Stage
from loop.pipeline.parts import Run
from loop.pipeline.rollouts import PlayJob, play
from loop.pipeline.steps import each
from loop.ports import Judge


def collect(run: Run, tasks: TaskList) -> dict[str, EpisodeShard]:
    """The parent's episodes, shard by shard; a crash keeps the shards already done.

    Raises StageFailed when more than the plan's share of episodes broke (PEER_BUGS 8).
    """
    plan = run.plan.collect
    shards = split_tasks(tasks.tasks, plan.shard_tasks)
    jobs = play_jobs(run, shards, (run.parent.pair,), plan.samples, plan.temperature, "collect")
    episodes = each(run, Stage.COLLECT, EpisodeShard, jobs, play, generated)
    refuse_broken(chain(episodes), plan.failure_share)
    return episodes


def split_tasks(tasks: Sequence[Task], size: int) -> list[tuple[Task, ...]]:
    """Shards of one environment each, so that a shard's prompts share their prefix."""
    groups: dict[str, list[Task]] = defaultdict(list)
    for task in tasks:
        groups[task.environment].append(task)
    return [tuple(group[i : i + size]) for group in groups.values() for i in range(0, len(group), size)]


def play_jobs(
    run: Run,
    shards: Sequence[tuple[Task, ...]],
    pairs: tuple[Pair, ...],
    samples: int,
    temperature: float | None,
    purpose: str,
) -> dict[str, partial[PlayJob]]:
    """Builders of the jobs that play these shards, keyed ``<purpose>/000`` and on."""
    loop = run.loop
    return {
        f"{purpose}/{index:03d}": partial(
            PlayJob,
            engine=loop.engine,
            blobs=loop.blobs,
            environments=tuple(e for e in loop.environments if e.name == tasks[0].environment),
            contract=loop.contract,
            pairs=pairs,
            tasks=tasks,
            samples=samples,
            temperature=temperature,
            seed=run.plan.seed,
        )
        for index, tasks in enumerate(shards)
    }


def generated(shard: EpisodeShard) -> Budget:
    """The tokens of a shard."""
    usages = [episode.usage for episode in shard.episodes]
    return Budget(
        generated_tokens=sum(usage.generated_tokens for usage in usages),
        prompt_tokens=sum(usage.prompt_tokens - usage.cached_tokens for usage in usages),
    )


def chain(shards: Mapping[str, EpisodeShard]) -> tuple[Episode, ...]:
    """The episodes of all shards in order."""
    return tuple(episode for key in sorted(shards) for episode in shards[key].episodes)


def refuse_broken(episodes: Sequence[Episode], share: float) -> None:
    """Stop when too many episodes are Failures: their tasks would silently be missing."""
    broken = [episode.failure for episode in episodes if episode.failure is not None]
    if len(broken) > share * len(episodes):
        first = broken[0]
        raise StageFailed(
            f"{len(broken)} of {len(episodes)} episodes failed at a boundary (allowed: {share:.0%}); "
            f"the first: {first.boundary}: {first.message}. The episodes are kept; fix the cause and run with --fresh."
        )


@dataclass(frozen=True)
class ScoreJob:
    """Episodes to be judged under one half of a contract."""

    judge: Judge
    contract: Contract
    episodes: tuple[Episode, ...]
    half: Half


def score_shards(run: Run, stage: Stage, shards: Mapping[str, EpisodeShard], half: Half) -> tuple[CaseScore, ...]:
    """Judge every episode under one half; in the order of the shards."""
    loop = run.loop
    jobs = {
        f"score/{half}/{key}": partial(ScoreJob, loop.judge, loop.contract, shard.episodes, half)
        for key, shard in sorted(shards.items())
    }
    found = each(run, stage, ScoreShard, jobs, judge_episodes, judged)
    return tuple(score for key in sorted(found) for score in found[key].scores)


def score(run: Run, shards: Mapping[str, EpisodeShard]) -> tuple[CaseScore, ...]:
    """Score the collected episodes under the visible half: what may select training data."""
    return score_shards(run, Stage.SCORE, shards, Half.VISIBLE)


def judge_episodes(job: ScoreJob) -> ScoreShard:
    """Case scores in the order of the episodes; a Failure is unscored, not zero."""
    whole = [episode for episode in job.episodes if episode.failure is None]
    verdicts = dict(zip((e.digest for e in whole), job.judge.judge_many(job.contract, whole, job.half), strict=True))
    scores = tuple(_case(job, episode, verdicts.get(episode.digest)) for episode in job.episodes)
    return ScoreShard(contract=job.contract.digest, half=job.half, scores=scores)


def _case(job: ScoreJob, episode: Episode, verdicts: tuple[Verdict, ...] | None) -> CaseScore:
    rows = verdicts or ()
    return CaseScore(
        episode=episode.digest,
        task=episode.task,
        sample=episode.sample,
        score=case_score(rows, job.contract.rule),
        passed=passed(rows),
        axioms=axiom_scores(rows),
        verdicts=rows,
        failure=episode.failure,
    )


def judged(shard: ScoreShard) -> Budget:
    """Calls to language-model judges; the rules cost none."""
    calls = sum(verdict.judge != "rules" for score in shard.scores for verdict in score.verdicts)
    return Budget(judge_calls=calls)


def pass_rates(scores: Sequence[CaseScore]) -> dict[str, float]:
    """Share of decided episodes that passed, by ``environment/level``."""
    groups: dict[str, list[bool]] = defaultdict(list)
    for row in scores:
        if row.passed is not None:
            groups[f"{row.task.environment}/{row.task.level}"].append(row.passed)
    return {name: sum(values) / len(values) for name, values in sorted(groups.items())}
