"""The manifest of a generation's exam, built from what its attempt recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from loop.core.contract import Contract, Half
from loop.core.episode import EpisodeShard, Split
from loop.core.errors import UserError
from loop.core.generation import Exam, Generation
from loop.core.manifest import (
    AdapterEntry,
    ContractEntry,
    Figures,
    Floor,
    Manifest,
    PairEntry,
    Played,
    SamplingEntry,
    Surroundings,
)
from loop.core.pair import Pair
from loop.core.plan import Plan
from loop.core.results import TaskList
from loop.core.score import ScoreShard
from loop.core.stage import Stage
from loop.gains.contrasts import CHILD, NEW, OLD, PARENT
from loop.pipeline.cards import CHILD_CELL, HALVES, PARENT_CELL, cells
from loop.pipeline.surroundings import public_spec
from loop.ports import Attempt, Store

EXAM_STEPS = "exam/"
Origin = tuple[Attempt, Plan, tuple[str, ...], tuple[Surroundings, ...]]
ROLES = {
    PARENT_CELL: PARENT,
    CHILD_CELL: CHILD,
    (NEW, OLD): "child's adapters, parent's harness",
    (OLD, NEW): "parent's adapters, child's harness",
}


@dataclass(frozen=True)
class Examination:
    """A generation's exam as its attempt recorded it; ``pairs`` are those that sat it, by role."""

    generation: Generation
    parent: Generation
    plan: Plan
    attempt: Attempt
    contract: Contract
    exam: Exam
    tasks: TaskList
    shards: Mapping[str, EpisodeShard]
    scores: Mapping[tuple[Half, str], ScoreShard]
    pairs: Mapping[str, Pair]
    surroundings: tuple[Surroundings, ...]


def examination(store: Store, generation: Generation, origin: Origin | None) -> Examination:
    """Read an exam back from its recorded steps.

    Raises UserError for a generation that was never examined, or whose steps were recorded
    by a version that kept them otherwise; TornBlob when they are damaged.
    """
    if origin is None or generation.exam is None or generation.parent is None:
        raise UserError(
            f"generation {generation.number} ({generation.short}) was never examined: choose one that `lineage` "
            "lists with a score"
        )
    attempt, plan, keys, places = origin
    if plan.examine.best_of_tokens is not None:
        raise UserError(
            f"generation {generation.number} ({generation.short}) was scored by the best of many answers, which is not "
            "replayed: choose one of another arm"
        )
    parent = store.by_digest(generation.parent)
    tasks = attempt.find(Stage.EXAMINE, TaskList, "tasks")
    shards = {key: attempt.find(Stage.EXAMINE, EpisodeShard, key) for key in keys if key.startswith(EXAM_STEPS)}
    scores = {
        (half, key): attempt.find(Stage.EXAMINE, ScoreShard, f"score/{half}/{key}") for half in HALVES for key in shards
    }
    whole_shards = {key: shard for key, shard in shards.items() if shard is not None}
    whole_scores = {key: shard for key, shard in scores.items() if shard is not None}
    if tasks is None or not shards or (len(whole_shards), len(whole_scores)) != (len(shards), len(scores)):
        raise UserError(
            f"the episodes of the exam of generation {generation.number} ({generation.short}) are not in this store "
            "as this version keeps them: grow it again, or use the version that examined it"
        )
    return Examination(
        generation=generation,
        parent=parent,
        plan=plan,
        attempt=attempt,
        contract=store.load(Contract, generation.exam.contract),
        exam=generation.exam,
        tasks=tasks,
        shards=whole_shards,
        scores=whole_scores,
        pairs=_pairs(parent.pair, generation.pair, whole_shards),
        surroundings=places,
    )


def manifest(found: Examination, floor: Floor | None) -> Manifest:
    """Everything the exam depends on, by digest; nothing in it names a machine's paths or a person."""
    plan, contract = found.plan, found.contract
    return Manifest(
        generation=found.generation.digest,
        number=found.generation.number,
        parent=found.parent.digest,
        plan=plan.digest,
        attempt=found.attempt.digest,
        base=found.generation.pair.base,
        pairs=tuple(_entry(role, pair) for role, pair in found.pairs.items()),
        contract=ContractEntry(
            version=contract.version,
            contract=contract.digest,
            folder=contract.folder_digest,
            holdout=contract.bank(Split.HOLDOUT).digest,
        ),
        tasks=found.tasks.digest,
        counts=dict(Counter(task.environment for task in found.tasks.tasks)),
        judge=public_spec(plan.judge),
        engine=public_spec(plan.engine),
        environments=tuple(public_spec(spec) for spec in plan.environments),
        sampling=SamplingEntry(
            temperature=plan.examine.temperature,
            samples=plan.examine.samples,
            seed=plan.seed,
            task_seed=plan.examine.seed,
        ),
        played=tuple(_played(found, key) for key in sorted(found.shards)),
        figures=_figures(found.exam),
        surroundings=found.surroundings,
        floor=floor,
    )


def _pairs(parent: Pair, child: Pair, shards: Mapping[str, EpisodeShard]) -> dict[str, Pair]:
    """Who sat the exam, by role and in the order of their first episodes; equal pairs are one."""
    made = cells(parent, child)
    roles = {made[cell].digest: role for cell, role in reversed(ROLES.items())}
    if parent.digest == child.digest:
        roles[child.digest] = f"{PARENT} and {CHILD}"
    known = {pair.digest: pair for pair in made.values()}
    players = dict.fromkeys(episode.pair for key in sorted(shards) for episode in shards[key].episodes)
    strangers = [digest[:12] for digest in players if digest not in known]
    if strangers:
        raise UserError(f"pairs {', '.join(strangers)} sat the exam too and are not made of this parent and child")
    return {roles[digest]: known[digest] for digest in players}


def _entry(role: str, pair: Pair) -> PairEntry:
    adapters = tuple(AdapterEntry(label=a.label, adapter=a.digest, blob=a.blob) for a in pair.adapters)
    return PairEntry(role=role, pair=pair.digest, adapters=adapters, harness=pair.harness.digest)


def _played(found: Examination, key: str) -> Played:
    shard = found.shards[key]
    return Played(
        key=key,
        episodes=shard.digest,
        count=len(shard.episodes),
        scores={half.value: found.scores[half, key].digest for half in HALVES},
    )


def _figures(exam: Exam) -> Figures:
    return Figures(
        exam=exam.digest,
        scorecard=exam.scorecard,
        parent_scorecard=exam.parent_scorecard,
        score=exam.score,
        score_interval=exam.score_interval,
        gain=exam.gain,
        coverage=exam.coverage,
        cases=exam.cases,
    )
