"""An exam played again: equal, within the noise floor, or different; and nothing of it is kept but the opening."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest

from loop.core.base import Base
from loop.core.episode import Completion, Request, Split
from loop.core.errors import StageFailed, UserError
from loop.core.generation import Generation
from loop.core.manifest import Floor, Manifest, ReplayVerdict
from loop.core.noun import Noun, seed_from
from loop.core.pair import Harness
from loop.core.plan import Spec
from loop.pipeline.generation import plant, run_generation
from loop.pipeline.manifest import Examination, examination, manifest
from loop.pipeline.noise import measure_noise, spread
from loop.pipeline.parts import Loop
from loop.pipeline.replay import replay
from loop.ports import Blobs, EngineReport, Follow, Hear
from loop.store.blobs import FsBlobs
from loop.store.migrate import upgrade
from loop.store.sql import SqlStore
from tests import fakes

WIDE = Floor(value=100.0, cases=40)


class Altered(fakes.ScriptedEngine):
    """A scripted engine whose right replies come out wrong at a share, or only when asked for in company."""

    slips: float = 0.0
    shy: bool = False
    nudge: float = 0.0

    def generate(
        self,
        base: Base,
        blobs: Blobs,
        requests: Sequence[tuple[int, Request]],
        follow: Follow,
        hear: Hear | None = None,
    ) -> EngineReport:
        seeds = {key: request.seed for key, request in requests}
        crowded = self.shy and len(requests) > 2

        def altered(key: int, completion: Completion) -> Sequence[tuple[int, Request]]:
            wrong = crowded or seed_from("slip", seeds[key]) / 2**63 < self.slips
            changes = {"text": "0", "token_ids": (0, 2)} if wrong else {}
            logprobs = tuple(value + self.nudge for value in completion.logprobs)
            more = follow(key, completion.revise(logprobs=logprobs, **changes))
            seeds.update({key: request.seed for key, request in more})
            return more

        return super().generate(base, blobs, requests, altered, hear)


class Renaming(Noun):
    """An explorer whose harness differs from the parent's, so that the exam transplants both parts."""

    def explore(self, harness: Harness, *_: object) -> Harness:
        return harness.revise(name=f"{harness.name}+")


@pytest.fixture
def made(tmp_path: Path) -> Loop:
    url = f"sqlite:///{tmp_path / 'loop.db'}"
    upgrade(url)
    blobs = FsBlobs(url=str(tmp_path / "blobs"))
    return fakes.loop(SqlStore(url, blobs), blobs, tmp_path / "scratch")


@pytest.fixture
def child(made: Loop) -> Generation:
    return run_generation(made, plant(made, fakes.pair(), 1), fakes.plan())


def _found(loop: Loop, generation: Generation) -> Examination:
    assert isinstance(loop.store, SqlStore)
    return examination(loop.store, generation, loop.store.origin(generation))


def _with(loop: Loop, **parts: object) -> Loop:
    return Loop(**(vars(loop) | parts))


def test_the_same_machine_gives_equal_digests(made: Loop, child: Generation) -> None:
    found = _found(made, child)
    fakes.CALLS.clear()
    again = replay(made, found, manifest(found, None), None)
    assert again.verdict is ReplayVerdict.EQUAL and again.reasons == ()
    assert (again.episodes, again.changed, again.agreement.moved) == (80, 0, 0)  # 40 cases, parent and child
    assert again.dependencies == ()
    assert fakes.CALLS["generate"] == 2  # it played: two shards of 20 cases
    assert child.exam is not None and again.scores["child"] == (child.exam.score, child.exam.score)


def test_a_few_changed_answers_are_noise_under_a_floor_and_a_difference_without_one(
    made: Loop, child: Generation
) -> None:
    found = _found(made, child)
    altered = _with(made, engine=Altered(slips=0.05))
    within = replay(altered, found, manifest(found, WIDE), WIDE)
    assert within.verdict is ReplayVerdict.WITHIN and within.agreement.largest == 100.0
    assert 0 < within.replies <= within.changed < within.episodes
    without = replay(altered, found, manifest(found, None), None)
    assert without.verdict is ReplayVerdict.DIFFERENT and "no noise floor" in without.reasons[0]
    narrow = Floor(value=99.0, cases=40)
    assert replay(altered, found, manifest(found, narrow), narrow).verdict is ReplayVerdict.DIFFERENT


def test_many_answers_changed_one_way_are_different_under_any_floor(made: Loop, child: Generation) -> None:
    found = _found(made, child)
    again = replay(_with(made, engine=Altered(slips=0.9)), found, manifest(found, WIDE), WIDE)
    assert again.verdict is ReplayVerdict.DIFFERENT and "one direction" in again.reasons[0]
    then, now = again.scores["child"]
    assert then is not None and now is not None and now < then


def test_other_log_probabilities_with_equal_scores_need_no_floor(made: Loop, child: Generation) -> None:
    found = _found(made, child)
    again = replay(_with(made, engine=Altered(nudge=1e-6)), found, manifest(found, None), None)
    assert again.verdict is ReplayVerdict.WITHIN
    assert (again.changed, again.replies, again.agreement.largest) == (80, 0, 0.0)


def test_episodes_that_fail_now_are_different_and_counted(made: Loop, child: Generation) -> None:
    found = _found(made, child)
    broken = _with(made, environments=(fakes.TwoTurns(broken_share=0.5),))
    again = replay(broken, found, manifest(found, WIDE), WIDE)
    assert again.verdict is ReplayVerdict.DIFFERENT and again.failed > 0
    # each failed episode is unscored under both halves
    assert again.agreement.undecided == 2 * again.failed


def test_a_replay_leaves_one_row_the_opening_of_the_holdout(made: Loop, child: Generation) -> None:
    store = made.store
    assert isinstance(store, SqlStore)
    found = _found(made, child)
    before, moves = store.table_counts(), store.policy_history("test")
    replay(_with(made, engine=Altered(slips=0.9)), found, manifest(found, None), None)
    after = store.table_counts()
    changed = {name: after[name] - before[name] for name in after if after[name] != before[name]}
    assert changed == {"holdout_openings": 1}
    replay(made, found, manifest(found, None), None)
    opening = next(row for row in store.openings("test") if row.why.startswith("replay"))
    assert (opening.why, opening.times, opening.generation) == (f"replay of {child.short}", 2, child.parent)
    assert store.policy_history("test") == moves


def test_a_manifest_of_another_exam_is_refused_before_the_holdout_is_opened(made: Loop, child: Generation) -> None:
    found = _found(made, child)
    written = manifest(found, None)
    other = written.revise(tasks="0" * 64, sampling=written.sampling.revise(seed=99))
    with pytest.raises(UserError, match="disagree on tasks, sampling"):
        replay(made, found, other, None)
    assert isinstance(made.store, SqlStore)
    assert not any(row.why.startswith("replay") for row in made.store.openings("test"))


def test_a_generation_without_an_exam_has_no_manifest(made: Loop) -> None:
    root = plant(made, fakes.pair(), 1)
    with pytest.raises(UserError, match="never examined"):
        _found(made, root)


def test_an_exam_of_the_best_of_many_answers_is_refused(made: Loop) -> None:
    many = fakes.plan().examine.revise(best_of_tokens=400)
    child = run_generation(made, plant(made, fakes.pair(), 1), fakes.plan(examine=many))
    with pytest.raises(UserError, match="best of many"):
        _found(made, child)


def test_an_identical_successor_that_met_its_own_luck_is_equal_again(made: Loop) -> None:
    plan = fakes.plan()
    same = plan.revise(
        profile=plan.profile.revise(min_rows=10_000), examine=plan.examine.revise(temperature=0.7)
    )  # nothing is trained
    child = run_generation(made, plant(made, fakes.pair(), 1), same)
    found = _found(made, child)
    again = replay(made, found, manifest(found, None), None)
    # 40 cases, twice each: once as the parent, once as the child
    assert (again.verdict, again.episodes, list(again.scores)) == (ReplayVerdict.EQUAL, 80, ["parent and child"])


def test_transplanted_pairs_are_played_again_beside_parent_and_child(made: Loop) -> None:
    child = run_generation(_with(made, explorer=Renaming()), plant(made, fakes.pair(), 1), fakes.plan())
    found = _found(made, child)
    written = manifest(found, None)
    assert {entry.role for entry in written.pairs} == {
        "parent",
        "child",
        "child's adapters, parent's harness",
        "parent's adapters, child's harness",
    }
    again = replay(made, found, written, None)
    assert (again.verdict, again.episodes) == (ReplayVerdict.EQUAL, 160)  # 40 cases by four pairs
    assert child.exam is not None and again.scores["child"][1] == child.exam.score


def test_an_exam_of_an_older_version_says_that_its_surroundings_are_unknown(
    made: Loop, child: Generation, tmp_path: Path
) -> None:
    with sqlite3.connect(tmp_path / "loop.db") as database:
        database.execute("delete from steps where key like 'surroundings/%'")
    found = _found(made, child)
    assert manifest(found, None).surroundings == ()
    again = replay(made, found, manifest(found, None), None)
    assert again.verdict is ReplayVerdict.EQUAL and again.dependencies is None


def test_a_manifest_holds_the_digests_of_the_exam_and_reads_back_equal(made: Loop, child: Generation) -> None:
    found = _found(made, child)
    written = manifest(found, WIDE)
    assert child.exam is not None
    assert (written.figures.scorecard, written.figures.score) == (child.exam.scorecard, child.exam.score)
    assert [entry.role for entry in written.pairs] == ["parent", "child"]
    assert written.pairs[1].adapters[0].blob == "depth-1"
    assert written.counts == {"twice": 40} and [shard.count for shard in written.played] == [40, 40]
    assert Manifest.model_validate_json(written.model_dump_json()).digest == written.digest


def test_a_manifest_withholds_what_the_plan_says_of_paths_and_secrets(made: Loop) -> None:
    engine = Spec(use="scripted", options={"python": "/srv/ann/python", "api_key": "sk-123"})
    child = run_generation(made, plant(made, fakes.pair(), 1), fakes.plan(engine=engine))
    text = manifest(_found(made, child), None).model_dump_json()
    assert "ann" not in text and "sk-123" not in text and text.count("withheld") == 2


def test_the_noise_floor_is_nothing_when_company_changes_nothing(made: Loop, child: Generation) -> None:
    measured = measure_noise(made, _found(made, child), 6)
    assert (measured.cases, measured.moved, measured.largest) == (12, 0, 0.0)  # 6 cases, two halves
    assert isinstance(made.store, SqlStore)
    assert f"noise floor of {child.short}" in [row.why for row in made.store.openings("test")]


def test_the_noise_floor_is_the_largest_difference_that_company_makes(made: Loop, child: Generation) -> None:
    measured = measure_noise(_with(made, engine=Altered(shy=True)), _found(made, child), 40)
    # wrong in company; alone the child is right twice in about 0.36 of the cases
    assert measured.largest == 100.0
    assert measured.moved / measured.cases == pytest.approx(0.36, abs=0.2)


def test_a_floor_is_not_measured_over_broken_episodes(made: Loop, child: Generation) -> None:
    broken = _with(made, environments=(fakes.TwoTurns(broken_share=1.0),))
    with pytest.raises(StageFailed, match="no sandbox on this machine"):
        measure_noise(broken, _found(made, child), 4)


def test_cases_are_taken_at_even_steps() -> None:
    tasks = fakes.TwoTurns().tasks(fakes.contract(), Split.HOLDOUT, 10, 1, (1,))
    assert spread(tasks, 4) == (tasks[0], tasks[2], tasks[5], tasks[7])
    assert spread(tasks, 99) == tasks
