"""Score a generation's stored episodes again under another contract version, without running a model.

What a case is under the other version: its scenario and persona must stand there, and the
record must hold every slot that the version's criteria name. Then the criteria are drawn
from contract, task and record as they were in the run. An episode that is no such case is
unscored, with the reason, and never zero.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from loop.core.case import (
    CONVERSATIONS,
    case_slots,
    criteria_for,
    opening,
    persona_of,
    scenario_of,
    transcript_of,
)
from loop.core.contract import Contract, Half
from loop.core.episode import Episode, EpisodeShard, Failure, Task
from loop.core.errors import LoopError, StageFailed, UserError
from loop.core.generation import Exam, Generation
from loop.core.noun import Noun
from loop.core.plan import Plan, Spec
from loop.core.rescore import Rescore
from loop.core.results import TaskList
from loop.core.score import CaseScore, Scorecard, ScoreShard
from loop.core.stage import Stage
from loop.gains.contrasts import CHILD, PARENT
from loop.gains.exam import exam_of
from loop.pipeline.experience import ScoreJob, judge_episodes, judged, pass_rates
from loop.pipeline.rescored import Rescored, left_out, rest_of
from loop.ports import Attempt, Executor, Judge, Progress, Store

NounT = TypeVar("NounT", bound=Noun)
Cards = Mapping[tuple[str, Half], Scorecard]

SUMMARY = "rescore"
CONTRACT_BOUNDARY = "contract"
COLLECTED = "collect"
# The halves that a run scores the episodes of each purpose under; train episodes never meet a sealed check.
SCORED: Mapping[str, tuple[Half, ...]] = {
    COLLECTED: (Half.VISIBLE,),
    "exam": (Half.SEALED, Half.VISIBLE),
    "best": (Half.SEALED, Half.VISIBLE),
    "diversity": (Half.VISIBLE,),
    "earlier": (Half.VISIBLE,),
    "interference": (Half.SEALED,),
}


class Rescoring(Protocol):
    """The recorded steps of scoring one generation again under one contract and judge."""

    def find(self, kind: type[NounT], key: str) -> NounT | None:
        """The recorded result of a step, or None."""
        ...

    def record(self, result: Noun, key: str) -> None:
        """Record a step durably; equal content again does nothing, other content raises StoreConflict."""
        ...


class Archive(Store, Protocol):
    """A store that gives back what was played."""

    def made_by(self, generation: Generation) -> tuple[Attempt, Plan]:
        """The attempt that registered a generation, with its plan; UserError for a root."""
        ...

    def played(self, attempt: Attempt) -> tuple[tuple[Stage, str], ...]:
        """The steps of an attempt that hold episodes, as (stage, key), in order."""
        ...

    def rescoring(self, generation: Generation, contract: str, judge: str) -> Rescoring:
        """What is recorded of scoring a generation again under a contract and judge (digests)."""
        ...


@dataclass(frozen=True)
class Bench:
    """All that scoring again needs; ``spec`` is what the judge was made from."""

    archive: Archive
    contract: Contract
    judge: Judge
    spec: Spec
    executor: Executor
    progress: Progress


def rescore(bench: Bench, generation: Generation) -> Rescore:
    """The generation's stored episodes under the bench's contract, from its record where there is one.

    Each shard is recorded as it is scored: kill it anywhere, and the same call goes on. The
    sealed half of exam episodes is opened, which is a row of the holdout's ledger. UserError
    for a root and for an exam that kept no scorecards; TornBlob when they are gone.
    """
    archive, contract = bench.archive, bench.contract
    found = recorded(archive, contract, bench.spec, generation)
    if found is not None:
        return found
    archive.save(contract)
    steps = archive.rescoring(generation, contract.digest, bench.spec.digest)
    attempt, plan = archive.made_by(generation)
    own = _own_cards(archive, generation)
    shards = dict(_shards(archive, attempt, own))
    why = f"rescore of generation {generation.number} under contract {contract.version} ({contract.short})"
    archive.open_holdout(attempt, str(generation.parent), why)
    try:
        scores = _score(bench, steps, shards)
    except (LoopError, KeyboardInterrupt):
        raise
    except Exception as error:
        raise StageFailed(
            f"scoring generation {generation.number} again broke: {type(error).__name__}: {error}. "
            "What was scored is kept; run the same command to go on."
        ) from error
    met = attempt.find(Stage.EXAMINE, TaskList, "tasks")
    tasks = met.tasks if met is not None else ()
    result = _summary(bench, generation, plan, _cards(contract, own, scores), scores, shards, tasks)
    steps.record(result, SUMMARY)
    return result


def recorded(archive: Archive, contract: Contract, spec: Spec, generation: Generation) -> Rescore | None:
    """The finished rescore of a generation under this contract and judge, or None; asks no judge."""
    return archive.rescoring(generation, contract.digest, spec.digest).find(Rescore, SUMMARY)


def _own_cards(archive: Archive, generation: Generation) -> dict[str, Scorecard]:
    """The exam's own scorecards: which episodes, in which order, are the parent's and the child's."""
    exam = generation.exam
    if exam is None or exam.parent_scorecard is None:
        raise UserError(
            f"generation {generation.number} ({generation.short}) kept no scorecards of its exam, so its episodes "
            "cannot be told apart: examine it under the new contract instead"
        )
    digests = {PARENT: exam.parent_scorecard, CHILD: exam.scorecard}
    return {who: archive.load(Scorecard, digest) for who, digest in digests.items()}


def _shards(archive: Archive, attempt: Attempt, own: Mapping[str, Scorecard]) -> Iterator[tuple[str, EpisodeShard]]:
    """The stored shards that are scored, by key; of the many answers of best of k those that its scorecards hold."""
    examined = {row.episode for card in own.values() for row in card.scores}
    for stage, key in archive.played(attempt):
        wanted = stage in (Stage.COLLECT, Stage.EXAMINE) and _purpose(key) in SCORED
        shard = attempt.find(stage, EpisodeShard, key) if wanted else None
        if shard is not None and _purpose(key) == "best":
            shard = EpisodeShard(episodes=tuple(e for e in shard.episodes if e.digest in examined))
        if shard is not None and shard.episodes:
            yield key, shard


def _purpose(key: str) -> str:
    return key.split("/")[0]


def _score(bench: Bench, steps: Rescoring, shards: Mapping[str, EpisodeShard]) -> dict[str, ScoreShard]:
    """The score shards by ``score/<half>/<key>``, as a run names them; recorded ones are taken."""
    cap = bench.judge.generation_calls
    jobs = {
        f"score/{half}/{key}": ScoreJob(bench.judge, bench.contract, shard.episodes, half)
        for key, shard in sorted(shards.items())
        for half in SCORED[_purpose(key)]
    }
    results = {key: found for key in jobs if (found := steps.find(ScoreShard, key)) is not None}
    missing = [key for key in jobs if key not in results]
    bench.progress.stage("rescore", f"{len(results)} of {len(jobs)} recorded")
    for some in [missing] if cap is None else [[key] for key in missing]:
        todo = [jobs[key] for key in some]
        if cap is not None:
            left = max(0, cap - sum(judged(found).judge_calls for found in results.values()))
            todo = [replace(job, judge=bench.judge.within(left)) for job in todo]
        for key, shard in zip(some, bench.executor.map(rescore_episodes, todo), strict=True):
            steps.record(shard, key)
            results[key] = shard
            bench.progress.advance(len(results), len(jobs), key)
    return {key: results[key] for key in jobs}


def rescore_episodes(job: ScoreJob) -> ScoreShard:
    """Case scores in the order of the episodes; the judge sees only those that are cases of the contract."""
    reasons = {episode.digest: outside(job.contract, episode, job.half) for episode in job.episodes}
    inside = tuple(episode for episode in job.episodes if reasons[episode.digest] is None)
    scored = judge_episodes(ScoreJob(job.judge, job.contract, inside, job.half))
    scores = {score.episode: score for score in scored.scores}
    rows = (scores.get(e.digest) or _unscored(e, str(reasons[e.digest])) for e in job.episodes)
    return scored.revise(scores=tuple(rows))


def _unscored(episode: Episode, reason: str) -> CaseScore:
    return CaseScore(
        episode=episode.digest,
        task=episode.task,
        sample=episode.sample,
        score=None,
        passed=None,
        failure=Failure(boundary=CONTRACT_BOUNDARY, message=reason),
    )


def outside(contract: Contract, episode: Episode, half: Half) -> str | None:
    """Why an episode is no case of this contract, or None when it is one (a Failure stays what it is)."""
    task = episode.task
    if episode.failure is not None:
        return None
    try:
        scenario_of(contract, task)
    except KeyError:
        return f"no scenario {task.group}"
    try:
        if task.environment == CONVERSATIONS:
            persona_of(contract, task)
    except KeyError:
        return f"no {task.split} persona {task.case.partition('/')[2]}"
    try:
        criteria_for(contract, task, episode.record, half, transcript_of(episode))
    except KeyError as error:
        return str(error.args[0]).split(";")[0]
    return None


def reworded(contract: Contract, episode: Episode) -> bool:
    """Whether this contract would open the conversation with other words or values than it was held with."""
    task = episode.task
    if task.environment != CONVERSATIONS or episode.failure is not None or outside(contract, episode, Half.SEALED):
        return False
    slots = case_slots(contract, task)
    try:
        first = opening(contract, task, slots)
    except KeyError:
        return True
    said = next((turn.content for turn in episode.turns if turn.role == "user"), "")
    # A scenario with tools names them below the user's words.
    return slots != episode.record.slots or not f"{said}\n".startswith(f"{first}\n")


def _cards(contract: Contract, own: Mapping[str, Scorecard], scores: Mapping[str, ScoreShard]) -> Cards:
    """The exam's scorecards with the new scores of the same episodes in their places."""
    cards = {}
    for half in Half:
        points = {row.episode: row for key, shard in scores.items() if _is_exam(key, half) for row in shard.scores}
        for who, card in own.items():
            rows = tuple(points[row.episode].revise(sample=row.sample) for row in card.scores)
            cards[who, half] = Scorecard(contract=contract.digest, pair=card.pair, half=half, scores=rows)
    return cards


def _is_exam(key: str, half: Half) -> bool:
    return key.startswith((f"score/{half}/exam/", f"score/{half}/best/"))


def _summary(
    bench: Bench,
    generation: Generation,
    plan: Plan,
    cards: Cards,
    scores: Mapping[str, ScoreShard],
    shards: Mapping[str, EpisodeShard],
    tasks: tuple[Task, ...],
) -> Rescore:
    for who in (PARENT, CHILD):
        bench.archive.save(cards[who, Half.SEALED])
    # Parent and child are one pair when nothing was learned: their episodes count once.
    sealed = {row.episode: row for who in (PARENT, CHILD) for row in cards[who, Half.SEALED].scores}
    failures = [row.failure for row in sealed.values() if row.failure is not None]
    lost = [failure.message for failure in failures if failure.boundary == CONTRACT_BOUNDARY]
    held = [episode for shard in shards.values() for episode in shard.episodes if episode.digest in sealed]
    parent, own = bench.archive.by_digest(str(generation.parent)), generation.exam
    assert own is not None
    again = Rescored(bench.contract, plan, parent.pair, generation.pair, shards, scores)
    collected = again.rows(COLLECTED, Half.VISIBLE)
    found = exam_of(bench.contract, plan, cards).revise(**rest_of(again, cards, own, tasks))
    same = own.contract == found.contract and plan.judge == bench.spec
    return Rescore(
        generation=generation.digest,
        judge=bench.spec.digest,
        exam=found,
        equal=_cards_of(own) == _cards_of(found) if same else None,
        outside=dict(sorted(Counter(lost).items())),
        reworded=sum(reworded(bench.contract, episode) for episode in held),
        experience=pass_rates(collected),
        collected=len(collected),
        collected_unscored=sum(row.score is None for row in collected),
        left_out=left_out(plan, own),
        judge_calls=sum(judged(shard).judge_calls for shard in scores.values()),
    )


def _cards_of(exam: Exam) -> tuple[str, str | None]:
    return exam.scorecard, exam.parent_scorecard
