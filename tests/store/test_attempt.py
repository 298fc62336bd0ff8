from __future__ import annotations

import random
import signal
import time
from pathlib import Path

import pytest

from loop.core.budget import Budget
from loop.core.episode import EpisodeShard
from loop.core.errors import StageFailed, StoreConflict, TornBlob
from loop.core.generation import Generation
from loop.core.plan import Plan
from loop.core.results import TaskList
from loop.core.score import ScoreShard
from loop.core.stage import Stage
from loop.core.training_set import Curve, TrainingSet
from loop.ports import Attempt, Trained
from loop.store.blobs import FsBlobs
from loop.store.sql import SqlStore
from tests.store import children, lineage

FAMILY = lineage.FAMILY


@pytest.fixture
def root(store: SqlStore) -> Generation:
    generation = lineage.root()
    store.register(generation, None)
    return generation


@pytest.fixture
def attempt(store: SqlStore, root: Generation) -> Attempt:
    return store.begin(FAMILY, root, lineage.plan())


def _trained(wall: float) -> Trained:
    return Trained(
        adapter=lineage.adapter("new"),
        curve=Curve(losses=(2.0,), learning_rates=(0.1,), grad_norms=(1.0,)),
        steps_planned=1,
        steps_done=1,
        trained_tokens=40,
        response_tokens=20,
        rows_trained=("r",),
        budget=Budget(trained_tokens=40, wall_seconds=wall, device_seconds=0.5),
    )


def test_a_recorded_step_is_found_as_it_was(attempt: Attempt) -> None:
    assert attempt.find(Stage.COLLECT, EpisodeShard, "s0") is None
    attempt.record(Stage.COLLECT, lineage.shard(), Budget(generated_tokens=5), "s0")
    assert repr(attempt.find(Stage.COLLECT, EpisodeShard, "s0")) == repr(lineage.shard())
    assert attempt.find(Stage.COLLECT, EpisodeShard, "s1") is None
    assert attempt.find(Stage.EXAMINE, EpisodeShard, "s0") is None


def test_an_equal_job_of_another_attempt_is_found_with_its_cost(
    store: SqlStore, blobs: FsBlobs, root: Generation, attempt: Attempt
) -> None:
    attempt.record(Stage.COLLECT, lineage.shard(), Budget(generated_tokens=5, wall_seconds=2), "s0", "the job")
    assert attempt.elsewhere("the job", EpisodeShard) is None  # its own steps are found by their keys
    other = store.begin(FAMILY, root, lineage.plan(), fresh=True)
    found = other.elsewhere("the job", EpisodeShard)
    assert found is not None
    assert (found[0].digest, found[1]) == (lineage.shard().digest, Budget(generated_tokens=5, wall_seconds=2))
    assert other.elsewhere("another job", EpisodeShard) is None
    assert other.elsewhere("the job", ScoreShard) is None


def test_an_equal_job_whose_bytes_are_torn_is_done_again(
    store: SqlStore, blobs: FsBlobs, root: Generation, attempt: Attempt, tmp_path: Path
) -> None:
    attempt.record(Stage.COLLECT, lineage.shard(), Budget(), "s0", "the job")
    for path in (tmp_path / "blobs").rglob("*"):
        if path.is_file():
            path.chmod(0o600)
            path.write_bytes(b"torn")
    assert store.begin(FAMILY, root, lineage.plan(), fresh=True).elsewhere("the job", EpisodeShard) is None


def test_a_step_asked_for_as_another_kind_is_an_error(attempt: Attempt) -> None:
    attempt.record(Stage.COLLECT, lineage.shard(), Budget(), "s0")
    with pytest.raises(TypeError, match="EpisodeShard, not a ScoreShard"):
        attempt.find(Stage.COLLECT, ScoreShard, "s0")


def test_recording_equal_content_again_does_nothing(store: SqlStore, attempt: Attempt) -> None:
    attempt.record(Stage.COLLECT, lineage.shard(), Budget(generated_tokens=5), "s0")
    before = store.table_counts()
    slower = lineage.shard().revise(episodes=tuple(e.revise(seconds=9.0) for e in lineage.shard().episodes))
    attempt.record(Stage.COLLECT, slower, Budget(generated_tokens=5), "s0")
    assert store.table_counts() == before
    assert attempt.budget() == {Stage.COLLECT: Budget(generated_tokens=5)}


def test_recording_other_content_is_a_conflict_that_changes_nothing(store: SqlStore, attempt: Attempt) -> None:
    attempt.record(Stage.COLLECT, lineage.shard(0), Budget(), "s0")
    before = store.table_counts()
    with pytest.raises(StoreConflict, match="collect/s0"):
        attempt.record(Stage.COLLECT, lineage.shard(1), Budget(), "s0")
    assert store.table_counts() == before
    assert attempt.find(Stage.COLLECT, EpisodeShard, "s0") == lineage.shard(0)


def test_index_rows_come_with_the_step(store: SqlStore, attempt: Attempt) -> None:
    shard = lineage.shard(0, 4)
    attempt.record(Stage.COLLECT, shard, Budget(), "s0")
    attempt.record(Stage.SCORE, lineage.scores(shard), Budget(), "s0")
    attempt.record(Stage.CURATE, lineage.training_set(shard), Budget(), "L0")
    counts = store.table_counts()
    # four episodes with two criteria each; one row per episode
    wanted = {"episodes": 4, "scores": 4, "verdicts": 8, "training_sets": 1, "training_rows": 4, "steps": 3}
    assert {name: counts[name] for name in wanted} == wanted


def test_a_shard_recorded_under_two_keys_never_doubles_episodes(store: SqlStore, attempt: Attempt) -> None:
    attempt.record(Stage.COLLECT, lineage.shard(0, 3), Budget(), "s0")
    attempt.record(Stage.COLLECT, lineage.shard(0, 3), Budget(), "again")
    attempt.record(Stage.COLLECT, lineage.shard(2, 2), Budget(), "overlapping")
    assert store.table_counts()["episodes"] == 4


def test_empty_results_are_results_too(attempt: Attempt) -> None:
    for kind, noun in (
        (EpisodeShard, EpisodeShard(episodes=())),
        (TrainingSet, TrainingSet(label="L0", rows=())),
        (TaskList, TaskList(tasks=())),
    ):
        attempt.record(Stage.DISCOVER, noun, Budget(), kind.__name__)
        assert attempt.find(Stage.DISCOVER, kind, kind.__name__) == noun


def test_once_calls_once_and_measures_the_wall_time(attempt: Attempt) -> None:
    calls = []

    def collect() -> EpisodeShard:
        calls.append(1)
        time.sleep(0.05)
        return lineage.shard()

    first = attempt.once(Stage.COLLECT, EpisodeShard, collect, "s0")
    assert attempt.once(Stage.COLLECT, EpisodeShard, collect, "s0") == first and calls == [1]
    assert 0.05 <= attempt.budget()[Stage.COLLECT].wall_seconds < 2.0


def test_a_result_that_states_its_cost_adds_it_without_counting_time_twice(attempt: Attempt) -> None:
    attempt.once(Stage.TRAIN, Trained, lambda: _trained(wall=1000.0), "L0")
    spent = attempt.budget()[Stage.TRAIN]
    assert (spent.trained_tokens, spent.device_seconds) == (40, 0.5)
    assert spent.wall_seconds < 2.0


def test_the_seconds_of_a_try_that_broke_are_counted(attempt: Attempt) -> None:
    def breaks() -> EpisodeShard:
        time.sleep(0.05)
        raise OSError("no engine")

    with pytest.raises(OSError, match="no engine"):
        attempt.once(Stage.COLLECT, EpisodeShard, breaks)
    attempt.once(Stage.COLLECT, EpisodeShard, lineage.shard)
    assert attempt.budget()[Stage.COLLECT].wall_seconds >= 0.05


def test_once_refuses_a_result_of_the_wrong_kind(attempt: Attempt) -> None:
    with pytest.raises(TypeError, match="gave a Plan, expected a EpisodeShard"):
        attempt.once(Stage.COLLECT, EpisodeShard, lambda: lineage.plan())  # type: ignore[arg-type, return-value]


def test_budgets_add_up_by_stage_in_the_order_of_the_stages(attempt: Attempt) -> None:
    attempt.record(Stage.TRAIN, _trained(0), Budget(trained_tokens=3), "L0")
    attempt.record(Stage.COLLECT, lineage.shard(0), Budget(generated_tokens=5, wall_seconds=1.5), "s0")
    attempt.record(Stage.COLLECT, lineage.shard(3), Budget(generated_tokens=6, wall_seconds=2.0), "s1")
    assert list(attempt.budget().items()) == [
        (Stage.COLLECT, Budget(generated_tokens=11, wall_seconds=3.5)),
        (Stage.TRAIN, Budget(trained_tokens=3)),
    ]


def test_a_torn_result_is_told_and_not_taken_for_missing(attempt: Attempt, blobs: FsBlobs) -> None:
    attempt.record(Stage.COLLECT, lineage.shard(), Budget(), "s0")
    path = next(path for path in Path(blobs.url).rglob("*") if path.is_file())
    path.unlink()
    with pytest.raises(TornBlob, match=path.name):
        attempt.find(Stage.COLLECT, EpisodeShard, "s0")


def test_a_kill_between_blob_and_row_leaves_a_store_that_resumes(
    store: SqlStore, blobs: FsBlobs, root: Generation
) -> None:
    process = children.start("die-before-row", store.url, blobs.url)
    assert children.finish(process).code == -signal.SIGKILL
    with store.lease(FAMILY, "the parent"):
        attempt = store.begin(FAMILY, root, lineage.plan())
        assert attempt.find(Stage.COLLECT, EpisodeShard, "s0") == lineage.shard(0)
        assert attempt.find(Stage.COLLECT, EpisodeShard, "s1") is None
        attempt.record(Stage.COLLECT, lineage.shard(3), Budget(generated_tokens=7), "s1")
    assert store.table_counts()["episodes"] == 6
    assert attempt.budget()[Stage.COLLECT].generated_tokens == 14


def test_processes_that_record_the_same_step_at_once_leave_one(
    store: SqlStore, blobs: FsBlobs, root: Generation, attempt: Attempt
) -> None:
    outcomes = children.race(*(children.start("record", store.url, blobs.url, "0") for _ in range(3)))
    assert [outcome.code for outcome in outcomes] == [0, 0, 0], outcomes
    assert store.table_counts()["episodes"] == 3
    assert attempt.budget()[Stage.COLLECT].generated_tokens == 7


def test_of_other_contents_recorded_at_once_exactly_one_wins(
    store: SqlStore, blobs: FsBlobs, root: Generation, attempt: Attempt
) -> None:
    outcomes = children.race(*(children.start("record", store.url, blobs.url, str(start)) for start in (0, 5, 9)))
    assert sorted(outcome.code for outcome in outcomes) == [0, 3, 3], outcomes
    assert store.table_counts()["episodes"] == 3


def test_a_run_killed_at_random_moments_ends_like_one_that_was_not(
    store: SqlStore, blobs: FsBlobs, root: Generation
) -> None:
    draw = random.Random(11)
    for _ in range(6):
        process = children.start("work", store.url, blobs.url)
        children.wait_for(process, "started")
        time.sleep(draw.uniform(0.0, 0.3))
        process.kill()
    last = children.finish(children.start("work", store.url, blobs.url))
    assert last.code == 0, last
    assert store.result(FAMILY, root, lineage.plan()) == lineage.child(root)
    counts = store.table_counts()
    assert counts["episodes"] == 200 and counts["attempts"] == 1 and counts["generations"] == 2
    attempt = store.begin(FAMILY, store.generation(FAMILY, 1), Plan.model_validate(lineage.plan().model_dump()))
    assert attempt.trial == 0


def test_a_call_that_says_the_disk_is_full_keeps_its_own_words(attempt: Attempt) -> None:
    def full() -> EpisodeShard:
        raise StageFailed("disk full at /x: free space and run again, nothing was lost")

    with pytest.raises(StageFailed, match="nothing was lost"):
        attempt.once(Stage.COLLECT, EpisodeShard, full)
