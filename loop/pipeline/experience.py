"""Episodes in shards: the jobs that play them, and the jobs that score them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

from loop.core.budget import Budget
from loop.core.contract import Contract, Half
from loop.core.episode import Episode, EpisodeShard, Task
from loop.core.hop import ledger
from loop.core.noun import digest_of, seed_from
from loop.core.pair import Pair
from loop.core.score import CaseScore, ScoreShard, Verdict, axiom_scores, case_score, passed
from loop.core.stage import Stage
from loop.pipeline.parts import Run
from loop.pipeline.rollouts import PlayJob
from loop.pipeline.steps import each
from loop.ports import Judge


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
    """The tokens of a shard, and its ledger."""
    usages = [episode.usage for episode in shard.episodes]
    return Budget(
        generated_tokens=sum(usage.generated_tokens for usage in usages),
        prompt_tokens=sum(usage.prompt_tokens - usage.cached_tokens for usage in usages),
        hops=ledger(record for episode in shard.episodes for record in episode.hops),
    )


def chain(shards: Mapping[str, EpisodeShard]) -> tuple[Episode, ...]:
    """The episodes of all shards in order."""
    return tuple(episode for key in sorted(shards) for episode in shards[key].episodes)


@dataclass(frozen=True)
class ScoreJob:
    """Episodes to be judged under one half of a contract."""

    judge: Judge
    contract: Contract
    episodes: tuple[Episode, ...]
    half: Half

    @property
    def identity(self) -> str:
        """The digest of all that the scores depend on."""
        episodes = [episode.digest for episode in self.episodes]
        return digest_of(["score", self.judge, self.contract.digest, episodes, self.half])


def score_shards(run: Run, stage: Stage, shards: Mapping[str, EpisodeShard], half: Half) -> tuple[CaseScore, ...]:
    """Judge every episode under one half; in the order of the shards.

    With a cap on the generation's requests a shard begins when those before it are recorded, and
    has what they left: in flight together they would pass the cap.
    """
    judge, cap = run.loop.judge, run.loop.judge.generation_calls

    def job(judge: Judge, key: str) -> partial[ScoreJob]:
        return partial(ScoreJob, judge, run.loop.contract, shards[key].episodes, half)

    found: dict[str, ScoreShard] = {}
    keys = sorted(shards)
    for some in [keys] if cap is None else [[key] for key in keys]:
        mine = judge if cap is None else judge.within(max(0, cap - run.spent().judge_calls))
        jobs = {f"score/{half}/{key}": job(mine, key) for key in some}
        found |= each(run, stage, ScoreShard, jobs, judge_episodes, judged)
    return tuple(score for key in sorted(found) for score in found[key].scores)


def score(run: Run, shards: Mapping[str, EpisodeShard]) -> tuple[CaseScore, ...]:
    """Score the collected episodes under the visible half: what may select training data."""
    scores = score_shards(run, Stage.SCORE, shards, Half.VISIBLE)
    return dealt_out(scores, seed_from("sham", *run.seed)) if run.plan.shuffle else scores


def dealt_out(scores: Sequence[CaseScore], seed: int) -> tuple[CaseScore, ...]:
    """The same scores on other episodes of the same environment and level: the sham's rewards.

    Every rate by level stays what it was; which episode earned it says nothing any more.
    """
    groups: dict[tuple[str, int], list[int]] = defaultdict(list)
    for index, row in enumerate(scores):
        groups[row.task.environment, row.task.level].append(index)
    dealt = list(scores)
    draw = Random(seed)
    for _, places in sorted(groups.items()):
        for place, source in zip(places, draw.sample(places, len(places)), strict=True):
            dealt[place] = scores[place].revise(score=scores[source].score, passed=scores[source].passed)
    return tuple(dealt)


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
    """Requests to language-model judges, every sample and every retry; the rules cost none."""
    return Budget(judge_calls=sum(verdict.calls for score in shard.scores for verdict in score.verdicts))


def pass_rates(scores: Sequence[CaseScore]) -> dict[str, float]:
    """Share of decided episodes that passed, by ``environment/level``."""
    groups: dict[str, list[bool]] = defaultdict(list)
    for row in scores:
        if row.passed is not None:
            groups[f"{row.task.environment}/{row.task.level}"].append(row.passed)
    return {name: sum(values) / len(values) for name, values in sorted(groups.items())}
