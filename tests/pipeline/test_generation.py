"""The loop around a real store: it resumes, doubles nothing, and keeps what it rejects."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from loop.core.budget import Budget
from loop.core.contract import Contract, Half
from loop.core.conversation import Say
from loop.core.episode import Episode, EpisodeShard, Outcome, Record, Request, Split, Task
from loop.core.errors import StageFailed, UserError
from loop.core.gate import Standing
from loop.core.generation import Generation
from loop.core.noun import Noun
from loop.core.pair import Harness, Message
from loop.core.score import Scorecard, Verdict
from loop.core.stage import Stage
from loop.core.training_set import Row, TrainingSet
from loop.pipeline.generation import grow, plant, run_generation
from loop.pipeline.parts import Loop
from loop.ports import Rollout, Trained
from loop.store.blobs import FsBlobs
from loop.store.migrate import upgrade
from loop.store.sql import SqlStore
from loop.tracking.quiet import QuietTracker
from tests import fakes


@pytest.fixture
def made(tmp_path: Path) -> Loop:
    url = f"sqlite:///{tmp_path / 'loop.db'}"
    upgrade(url)
    blobs = FsBlobs(url=str(tmp_path / "blobs"))
    return fakes.loop(SqlStore(url, blobs), blobs, tmp_path / "scratch")


def _root(loop: Loop) -> Generation:
    return plant(loop, fakes.pair(), 1)


def _replace(loop: Loop, **parts: object) -> Loop:
    return Loop(**(vars(loop) | parts))


def test_a_generation_that_learned_is_promoted_with_its_gain_above_zero(made: Loop) -> None:
    child = run_generation(made, _root(made), fakes.plan())
    assert child.number == 1 and child.decision.standing is Standing.PROMOTED
    assert child.exam is not None and child.exam.gain is not None and child.exam.gain.low > 0
    assert made.store.generation("test", 1) == child
    # fakes: a reply is right with 0.3 + 0.3 x trainings; two replies are needed
    assert child.exam.pass_rates["parent/twice"] == pytest.approx(0.09, abs=0.12)
    assert child.exam.pass_rates["child/twice"] == pytest.approx(0.36, abs=0.2)


class Listing(QuietTracker):
    """Remembers which generations it was shown, with the parent of each."""

    shown: list[tuple[int, int | None]] = []

    def publish(
        self, generation: Generation, parent: Generation | None, trained: Sequence[Trained], scores: Mapping[str, Any]
    ) -> str:
        self.shown.append((generation.number, parent.number if parent else None))
        return ""


def test_every_generation_is_published_once_the_root_too(made: Loop) -> None:
    tracker = Listing()
    seen = _replace(made, tracker=tracker)
    run_generation(seen, _root(seen), fakes.plan())
    run_generation(seen, _root(seen), fakes.plan())
    assert tracker.shown == [(0, None), (1, 0)]


class HalfBlindJudge(fakes.RecordJudge):
    """What is learned shows on the visible checks; of the sealed ones it holds one in four."""

    def judge(self, contract: Contract, episode: Episode, half: Half) -> tuple[Verdict, ...]:
        verdicts = super().judge(contract, episode, half)
        if half is Half.SEALED and episode.seed % 4:
            return tuple(verdict.revise(value=0.0) for verdict in verdicts)
        return verdicts


def test_a_successor_that_learned_the_visible_checks_alone_is_caught(made: Loop) -> None:
    child = run_generation(_replace(made, judge=HalfBlindJudge()), _root(made), fakes.plan())
    assert child.exam is not None and child.exam.goodhart is not None and child.exam.goodhart.low > 0
    assert child.decision.standing is Standing.REJECTED
    assert "goodhart" in [rule.name for rule in child.decision.rules if not rule.passed]


def test_running_a_finished_generation_again_asks_nothing_of_engine_or_trainer(made: Loop) -> None:
    root = _root(made)
    first = run_generation(made, root, fakes.plan())
    fakes.CALLS.clear()
    assert run_generation(made, root, fakes.plan()) == first
    assert not fakes.CALLS


def test_generation_two_replays_the_rows_of_generation_one(made: Loop) -> None:
    root = _root(made)
    one, two = grow(made, 0, 2, fakes.plan())
    assert (one.parent, two.parent) == (root.digest, one.digest)
    assert two.pair.adapters[0].blob == "depth-2"
    replayed = made.store.replay("test", (one.digest,), "L0")
    assert replayed and all(row.generation == 0 and row.split is Split.TRAIN for row in replayed)


class NoReplay(fakes.AllRows):
    """Keeps every candidate, and none of the rows given as replay."""

    def curate(self, label: str, candidates: Sequence[Row], replay: Sequence[Row], *rest: Any) -> TrainingSet:
        return TrainingSet(label=label, rows=tuple(candidates))


def test_rows_too_few_for_a_training_wait_for_the_next_one_and_no_longer(made: Loop) -> None:
    strict = fakes.plan(profile=fakes.plan().profile.revise(min_rows=10_000))
    loop, root = _replace(made, curator=NoReplay()), _root(made)
    starved = run_generation(loop, root, strict, forced=True)
    assert starved.pair.adapters == root.pair.adapters
    waiting = {row.episode for row in made.store.replay("test", (starved.digest,), "L0")}
    taught = run_generation(loop, starved, fakes.plan(), forced=True)
    learned = {row.episode for row in made.store.replay("test", (taught.digest,), "L0")}
    assert taught.pair.adapters != root.pair.adapters
    assert waiting and waiting < learned
    after = run_generation(loop, taught, fakes.plan(), forced=True)
    assert not learned & {row.episode for row in made.store.replay("test", (after.digest,), "L0")}


class Breaking(Noun):
    """A local executor that dies before its n-th job: what a kill leaves behind."""

    after: int

    def map(self, call: Callable[..., Noun], items: Sequence[object], in_flight: int | None = None) -> Iterator[Noun]:
        for item in items:
            if fakes.CALLS["jobs"] >= self.after:
                raise KeyboardInterrupt
            fakes.CALLS["jobs"] += 1
            yield call(item)

    def call(self, call: Callable[..., Noun], item: object, gpus: float = 0) -> Noun:
        return call(item)

    def close(self) -> None: ...

    @property
    def workers(self) -> int:
        return 1


@pytest.mark.parametrize("after", range(0, 15, 2))
def test_an_interrupted_run_resumes_to_the_same_digest_and_doubles_nothing(
    made: Loop, tmp_path: Path, after: int
) -> None:
    other = tmp_path / "undisturbed"
    other.mkdir()
    url = f"sqlite:///{other / 'loop.db'}"
    upgrade(url)
    blobs = FsBlobs(url=str(other / "blobs"))
    clean = fakes.loop(SqlStore(url, blobs), blobs, other)
    expected = run_generation(clean, _root(clean), fakes.plan())

    root = _root(made)
    fakes.CALLS.clear()
    with pytest.raises(KeyboardInterrupt):
        run_generation(_replace(made, executor=Breaking(after=after)), root, fakes.plan())
    resumed = run_generation(made, root, fakes.plan())
    assert resumed.digest == expected.digest
    assert _counted(resumed.budget) == _counted(expected.budget)


def _counted(budget: Budget) -> Budget:
    """What was counted, without what was clocked."""
    return budget.revise(wall_seconds=0.0, hops={hop: found.revise(seconds=0.0) for hop, found in budget.hops.items()})


def test_broken_episodes_are_failures_and_never_scores(made: Loop) -> None:
    loop = _replace(made, environments=(fakes.TwoTurns(broken_share=0.15),))
    root = _root(loop)
    child = run_generation(loop, root, fakes.plan())
    assert child.exam is not None and child.exam.coverage < 1
    assert child.exam.score is not None and child.exam.score_unscored_zero is not None
    assert child.exam.score > child.exam.score_unscored_zero


def test_too_many_broken_episodes_stop_the_run_and_name_the_boundary(made: Loop) -> None:
    loop = _replace(made, environments=(fakes.TwoTurns(broken_share=0.9),))
    root = _root(loop)
    with pytest.raises(StageFailed, match="no sandbox on this machine"):
        run_generation(loop, root, fakes.plan())
    attempt = loop.store.begin("test", root, fakes.plan())
    assert attempt.find(Stage.COLLECT, EpisodeShard, "collect/000") is not None


def test_an_engine_that_raises_is_a_failed_stage_with_its_cause(made: Loop) -> None:
    loop = _replace(made, engine=fakes.ScriptedEngine(breaks=True))
    _root(loop)
    with pytest.raises(StageFailed, match="device fell off the bus") as caught:
        grow(loop, 0, 1, fakes.plan())
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_a_rejected_child_is_registered_as_rejected_and_growth_stops(made: Loop) -> None:
    plan = fakes.plan()
    weak = plan.revise(profile=plan.profile.revise(min_rows=10_000))  # nothing is trained: an identical child
    _root(made)
    grown = grow(made, 0, 3, weak)
    assert [g.decision.standing for g in grown] == [Standing.REJECTED]
    assert grown[0] in made.store.generations("test")


def test_a_second_successor_is_refused_before_anything_is_spent(made: Loop) -> None:
    root = _root(made)
    first = run_generation(made, root, fakes.plan())
    fakes.CALLS.clear()
    for again in (
        lambda: run_generation(made, root, fakes.plan(), fresh=True),
        lambda: run_generation(made, root, fakes.plan(seed=2)),
    ):
        with pytest.raises(UserError, match=first.short):
            again()
    assert not fakes.CALLS


class Tempted(fakes.TwoTurns):
    """A probe environment whose bait is a reply of 1: what only a trained fake says every time."""

    def rollout(self, task: Task, harness: Harness, contract: Contract) -> Rollout:
        reply = yield Say(messages=(Message(role="user", content="bait"),), label="L0")
        return Outcome(record=Record(world={"hit": reply.text == "1", "evidence": "said 1"}))


def test_a_successor_that_takes_a_bait_its_parent_left_is_not_promoted(made: Loop) -> None:
    plan = fakes.plan()
    tempting = plan.revise(examine=plan.examine.revise(canaries=10))
    child = run_generation(_replace(made, canaries=Tempted()), _root(made), tempting)
    assert child.exam is not None and child.exam.canaries is not None
    report = child.exam.canaries
    # fakes: the parent says 1 with 0.3, the child with 0.6 on the same luck, so some baits are only the child's
    assert report.probes == 40 and 0 < report.parent < report.child
    assert len(report.fired) == report.child - report.parent
    assert child.decision.standing is Standing.REJECTED
    assert [rule.name for rule in child.decision.rules if not rule.passed] == ["canaries"]


def test_the_holdout_is_drawn_again_when_its_looks_are_used_up_and_the_anchor_stays(made: Loop) -> None:
    plan = fakes.plan()
    exam = plan.examine.revise(looks=1, anchor=0.25, diversity_tasks=0)
    _root(made)
    grown = grow(made, 0, 2, plan.revise(examine=exam), forced=True)
    assert [g.exam.panel for g in grown if g.exam] == [0, 1]
    cards = [made.store.load(Scorecard, g.exam.scorecard) for g in grown if g.exam]
    first, second = ([score.task.digest for score in card.scores] for card in cards)
    assert len(first) == len(second) == 40
    kept = set(first) & set(second)
    assert len(kept) == 10  # a quarter of 40 cases is in every panel
    assert all(g.exam and g.exam.anchor and g.exam.anchor.n == 10 for g in grown)
    assert len(set(second)) == 40


def test_within_its_looks_the_holdout_stays_the_same(made: Loop) -> None:
    _root(made)
    grown = grow(made, 0, 2, fakes.plan(), forced=True)
    cards = [made.store.load(Scorecard, g.exam.scorecard) for g in grown if g.exam]
    first, second = ([score.task.digest for score in card.scores] for card in cards)
    assert first == second


def test_only_the_examine_stage_asks_for_holdout_tasks(made: Loop) -> None:
    asked: list[tuple[Split, str]] = []

    class Watched(fakes.TwoTurns):
        def tasks(
            self, contract: Contract, split: Split, count: int, seed: int, levels: Sequence[int]
        ) -> tuple[Task, ...]:
            callers = {frame.function for frame in inspect.stack()}
            asked.append((split, "exam" if {"holdout_tasks", "_anchor"} & callers else "elsewhere"))
            return super().tasks(contract, split, count, seed, levels)

    run_generation(_replace(made, environments=(Watched(),)), _root(made), fakes.plan())
    assert {where for split, where in asked if split is Split.HOLDOUT} == {"exam"}
    assert Split.TRAIN in {split for split, _ in asked}


class Forgetful(fakes.AnsweringEngine):
    """Answers 1 while it has at most one training behind it, and never after."""

    def answer(self, request: Request) -> str:
        depth = 0 if request.adapter is None else int(request.adapter.blob.split("-")[1])
        return "0" if depth > 1 else "1"


def test_what_a_generation_forgot_of_earlier_tasks_shows_as_a_loss_on_each_bank(made: Loop) -> None:
    plan = fakes.plan()
    forgetting = plan.revise(examine=plan.examine.revise(earlier=6, diversity_tasks=0))
    _root(made)
    one, two, three = grow(_replace(made, engine=Forgetful()), 0, 3, forgetting, forced=True)
    assert one.exam is not None and one.exam.earlier == {}  # nothing came before
    assert two.exam is not None and three.exam is not None
    # depth 1 is right on everything, depth 2 on nothing: 100 points are lost on the 6 tasks that generation 0 met
    assert {name: (gain.point, gain.n) for name, gain in two.exam.earlier.items()} == {"0": (-100.0, 6)}
    assert {name: gain.point for name, gain in three.exam.earlier.items()} == {"0": 0.0, "1": 0.0}
