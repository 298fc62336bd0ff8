"""Examine: parent and child on the same sealed cases, and what the child's samples kept of diversity.

This is the only stage that opens the holdout; each opening is a row in the store.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loop.core.base import Base
from loop.core.budget import Budget
from loop.core.contract import Half
from loop.core.episode import Episode, EpisodeShard, Split, Task
from loop.core.gate import Interval
from loop.core.generation import Exam
from loop.core.noun import Noun, seed_from
from loop.core.pair import Adapter, Pair
from loop.core.plan import Plan
from loop.core.results import Coverage, TaskList
from loop.core.score import CaseScore, Scorecard
from loop.core.stage import Stage
from loop.core.training_set import Fingerprints
from loop.gains.contrasts import (
    CHILD,
    HARNESS,
    PARENT,
    TRANSPLANT,
    Cell,
    coalitions,
    contrast,
    shapley,
    whole,
)
from loop.gains.coverage import collapse_alarms, distinct_share, mean_pass_at_k
from loop.gains.exam import bounds, exam_of, known
from loop.gains.intervals import single
from loop.pipeline.canaries import probe
from loop.pipeline.cards import CHILD_CELL, HALVES, PARENT_CELL, examine_best, examine_cells, interference
from loop.pipeline.experience import chain, generated, play_jobs, score_shards, split_tasks
from loop.pipeline.forgetting import earlier_banks
from loop.pipeline.parts import Run
from loop.pipeline.rollouts import play
from loop.pipeline.routing import examine_routing, sealed_texts
from loop.pipeline.steps import each
from loop.pipeline.surroundings import note_surroundings
from loop.ports import Attestation, Blobs, Engine, Environment

WHO: Mapping[str, Cell] = {PARENT: PARENT_CELL, CHILD: CHILD_CELL}


class Attestations(Noun):
    """What was checked of each adapter that the exam serves."""

    checks: tuple[Attestation, ...]

    @property
    def ok(self) -> bool:
        """Whether every one holds."""
        return all(check.ok for check in self.checks)


@dataclass(frozen=True)
class AttestJob:
    """Adapters to load and check."""

    engine: Engine
    base: Base
    blobs: Blobs
    adapters: tuple[Adapter, ...]


def holdout_tasks(run: Run, why: str) -> tuple[Task, ...]:
    """Open the sealed bank and note it: the same cases and seeds for every generation of a panel.

    A panel is used for the plan's number of looks; the next one keeps the anchor cases and
    draws the rest from fresh seeds, so that what was looked at often is not trusted for ever.
    """
    panel = panel_of(run)
    run.loop.store.open_holdout(run.attempt, run.parent.digest, f"{why}, panel {panel}")
    found: list[Task] = []
    for environment in run.loop.environments:
        first = _drawn(run, environment, 0)
        kept = anchored(first, run.plan.examine.anchor) if panel else first
        known = {task.digest for task in kept}
        fresh = [task for task in _drawn(run, environment, panel) if task.digest not in known] if panel else []
        found += [*kept, *fresh[: len(first) - len(kept)]]
    return tuple(found)


def panel_of(run: Run) -> int:
    """Which drawing of the holdout this attempt meets: it changes when the look budget is used up."""
    exams = sum(known.exam is not None for known in run.loop.store.generations(run.loop.family))
    return exams // run.plan.examine.looks


def anchored(tasks: Sequence[Task], share: float) -> tuple[Task, ...]:
    """The cases that stay in every panel: every so many-th, so that all families and levels are among them."""
    if share == 0:
        return ()
    return tuple(task for index, task in enumerate(tasks) if int((index + 1) * share) > int(index * share))


def _drawn(run: Run, environment: Environment, panel: int) -> tuple[Task, ...]:
    plan = run.plan.examine
    count = plan.tasks.get(environment.name, 0)
    if count == 0:
        return ()
    key = (plan.seed, environment.name, *([panel] if panel else []))
    levels = tuple(range(1, environment.levels + 1))
    return environment.tasks(run.loop.contract, Split.HOLDOUT, count, seed_from("holdout", *key), levels)


def _anchor(run: Run, card: Scorecard) -> Interval | None:
    """The score on the cases of every panel."""
    kept = {t.digest for e in run.loop.environments for t in anchored(_drawn(run, e, 0), run.plan.examine.anchor)}
    rows = tuple(score for score in card.scores if score.task.digest in kept)
    return bounds(run.plan, single(card.revise(scores=rows)))


def fingerprint_holdout(run: Run) -> Fingerprints:
    """All that the curate stage may know of the holdout: hashes and embeddings of its texts."""

    def build() -> Fingerprints:
        tasks = holdout_tasks(run, "fingerprints for the curate stage")
        texts = [run.loop.environment(task.environment).text(task, run.loop.contract) for task in tasks]
        return run.loop.curator.fingerprint([*texts, *sealed_texts(run)], run.loop.embedder)

    return run.attempt.once(Stage.EXAMINE, Fingerprints, build, "fingerprints")


def attest(run: Run, child: Pair) -> Attestations:
    """Load each adapter of the child and check it; raises AttestationFailed on any doubt."""
    job = AttestJob(run.loop.engine, child.base, run.loop.blobs, child.adapters)
    return run.attempt.once(
        Stage.EXAMINE, Attestations, lambda: run.loop.executor.call(attest_all, job), "attestations"
    )


def attest_all(job: AttestJob) -> Attestations:
    """A module-level function, so that a cluster can run it."""
    return Attestations(checks=tuple(job.engine.attest(job.base, job.blobs, a) for a in job.adapters))


def examine(run: Run, child: Pair) -> Exam:
    """The child's exam with its gains over the parent."""
    found = run.attempt.find(Stage.EXAMINE, Exam, "exam")
    return found if found is not None else _exam(run, child)


def _exam(run: Run, child: Pair) -> Exam:
    """Its steps are recorded one by one; only the summing up is timed as the exam's own."""
    note_surroundings(run)
    tasks = run.attempt.once(
        Stage.EXAMINE, TaskList, lambda: TaskList(tasks=holdout_tasks(run, "exam of the successor")), "tasks"
    )
    many = run.plan.examine.best_of_tokens
    spent = Budget()
    if many is None:
        cards = examine_cells(run, tasks.tasks, child)
    else:
        cards, spent = examine_best(run, tasks.tasks, many)
    diversity, alarms = _diversity(run, child)
    baits = probe(run, child)
    crossed = interference(run, tasks.tasks, child)
    kept = earlier_banks(run, child)
    routes = examine_routing(run, child, tasks.tasks)

    def summary() -> Exam:
        exam = _summary(run, cards, diversity, alarms)
        return exam.revise(
            selection=spent,
            canaries=baits,
            interference=crossed,
            earlier=kept,
            routing=routes,
            **attribution(run.plan, _labels(run), sealed(cards), run.parent.pair, child),
        )

    return run.attempt.once(Stage.EXAMINE, Exam, summary, "exam")


def _diversity(run: Run, child: Pair) -> tuple[dict[str, float], tuple[str, ...]]:
    """pass@1, pass@k and distinct replies of parent and child on fresh train tasks."""
    plan, parent = run.plan.examine, run.parent.pair
    tasks = [
        task
        for environment in run.loop.environments
        if plan.diversity_tasks and run.plan.collect.tasks.get(environment.name, 0)
        for task in environment.tasks(
            run.loop.contract,
            Split.TRAIN,
            plan.diversity_tasks,
            seed_from("diversity", *run.seed, environment.name),
            (1,),
        )
    ]
    shards = split_tasks(tasks, -(-plan.diversity_tasks // 2) or 1)  # two, so that two workers share it
    temperature = run.plan.collect.temperature
    jobs = play_jobs(run, shards, (parent, child), plan.diversity_samples, temperature, "diversity")
    played = each(run, Stage.EXAMINE, EpisodeShard, jobs, play, generated)
    scores = score_shards(run, Stage.EXAMINE, played, Half.VISIBLE)
    return diversity_of(parent, child, chain(played), scores, plan.diversity_samples)


def diversity_of(
    parent: Pair, child: Pair, episodes: Sequence[Episode], scores: Sequence[CaseScore], k: int
) -> tuple[dict[str, float], tuple[str, ...]]:
    """The measures of both pairs' samples, ``k`` a task, by ``who/environment/measure``, and what has collapsed."""
    before, after = (_measures(pair, episodes, scores, k) for pair in (parent, child))
    figures = {f"parent/{name}": value for name, value in before.items()}
    figures |= {f"child/{name}": value for name, value in after.items()}
    return figures, collapse_alarms(before, after)


def _measures(pair: Pair, episodes: Sequence[Episode], scores: Sequence[CaseScore], k: int) -> dict[str, float]:
    owned = {episode.digest: episode for episode in episodes if episode.pair == pair.digest}
    measures: dict[str, float] = {}
    for name in sorted({episode.task.environment for episode in owned.values()}):
        rows = [s for s in scores if s.episode in owned and s.task.environment == name]
        replies: dict[str, list[str]] = defaultdict(list)
        for episode in owned.values():
            if episode.task.environment == name:
                replies[episode.task.digest].append("\n".join(episode.replies))
        found = {
            "pass@1": mean_pass_at_k(rows, 1),
            "pass@k": mean_pass_at_k(rows, k),
            "distinct": distinct_share(list(replies.values())),
        }
        measures |= {f"{name}/{measure}": value for measure, value in found.items() if value is not None}
    return Coverage(measures=measures).measures


def _summary(
    run: Run, cards: Mapping[tuple[Cell, Half], Scorecard], diversity: dict[str, float], alarms: tuple[str, ...]
) -> Exam:
    ends = {(who, half): cards[cell, half] for who, cell in WHO.items() for half in HALVES}
    for who in WHO:
        run.loop.store.save(ends[who, Half.SEALED])
    exam = exam_of(run.loop.contract, run.plan, ends)
    anchor = _anchor(run, ends[CHILD, Half.SEALED])
    return exam.revise(panel=panel_of(run), anchor=anchor, diversity=diversity, alarms=alarms)


def _labels(run: Run) -> dict[str, str]:
    return {environment.name: environment.label for environment in run.loop.environments}


def sealed(cards: Mapping[tuple[Cell, Half], Scorecard]) -> dict[Cell, Scorecard]:
    """The sealed cards by cell."""
    return {cell: card for (cell, half), card in cards.items() if half is Half.SEALED}


def attribution(
    plan: Plan, labels: Mapping[str, str], cells: Mapping[Cell, Scorecard], parent: Pair, child: Pair
) -> dict[str, dict[str, Interval]]:
    """The transplant's effects and the Shapley value of each part that changed; nothing for an equal pair.

    ``labels`` name the specialist that answers in each environment, ``cells`` are the sealed cards.
    """
    if child.digest == parent.digest:
        return {}
    players = [adapter.label for adapter in child.adapters if adapter != parent.adapter(adapter.label)]
    players += [HARNESS] if child.harness != parent.harness else []
    values = shapley(players)
    together = coalitions(cells, labels, players)
    return {
        "transplant": known(plan, whole(cells, TRANSPLANT)),
        "shapley": known(plan, {player: contrast(together, weights) for player, weights in values.items()}),
    }
