"""Scores under another contract are recorded once, and found beside a generation's own exam."""

from __future__ import annotations

from pathlib import Path

import pytest

from loop.core.budget import Budget
from loop.core.contract import Half
from loop.core.errors import StoreConflict, UserError
from loop.core.gate import Standing
from loop.core.generation import Generation
from loop.core.plan import Spec
from loop.core.rescore import Rescore
from loop.core.score import ScoreShard
from loop.core.stage import Stage
from loop.store.database import writing
from loop.store.sql import SqlStore
from loop.store.tables import LeaseRow
from tests.store import lineage

FAMILY = lineage.FAMILY
RULES = Spec(use="rules").digest
OTHER = Spec(use="llm").digest


@pytest.fixture
def child(store: SqlStore) -> Generation:
    """Generation 1, whose attempt has collected, scored and examined episodes."""
    root = lineage.root()
    store.register(root, None)
    attempt = store.begin(FAMILY, root, lineage.plan())
    for stage, key, start in ((Stage.EXAMINE, "exam/000", 3), (Stage.COLLECT, "collect/000", 0)):
        attempt.record(stage, lineage.shard(start), Budget(), key)
    attempt.record(Stage.SCORE, lineage.scores(lineage.shard(0)), Budget(), "score/visible/collect/000")
    found = lineage.child(root)
    store.register(found, attempt)
    return found


@pytest.fixture
def version_two(store: SqlStore) -> str:
    contract = lineage.contract().revise(version="v2")
    return store.save(contract)


def _rescored(child: Generation, contract: str, judge: str = RULES) -> Rescore:
    return Rescore(generation=child.digest, judge=judge, exam=lineage.exam(50.0).revise(contract=contract))


def test_a_generation_gives_back_the_attempt_the_plan_and_the_episode_steps_that_made_it(
    store: SqlStore, child: Generation
) -> None:
    attempt, plan = store.made_by(child)
    assert plan == lineage.plan() and attempt.trial == 0
    assert store.played(attempt) == ((Stage.COLLECT, "collect/000"), (Stage.EXAMINE, "exam/000"))


def test_a_root_has_no_episodes_and_says_which_generation_to_choose(store: SqlStore, child: Generation) -> None:
    with pytest.raises(UserError, match="first successor"):
        store.made_by(store.generation(FAMILY, 0))


def test_a_step_is_recorded_once_and_read_back_equal(store: SqlStore, child: Generation, version_two: str) -> None:
    shard = lineage.scores(lineage.shard(0), Half.SEALED).revise(contract=version_two)
    steps = store.rescoring(child, version_two, RULES)
    assert steps.find(ScoreShard, "score/sealed/exam/000") is None
    steps.record(shard, "score/sealed/exam/000")
    before = store.table_counts()
    steps.record(shard, "score/sealed/exam/000")
    assert store.table_counts() == before and before["rescores"] == 1
    assert steps.find(ScoreShard, "score/sealed/exam/000") == shard
    assert store.rescoring(child, version_two, OTHER).find(ScoreShard, "score/sealed/exam/000") is None


def test_scores_equal_to_those_of_the_run_are_not_stored_a_second_time(
    store: SqlStore, child: Generation, tmp_path: Path
) -> None:
    contract = lineage.exam().contract
    before, counts = set((tmp_path / "blobs").rglob("*")), store.table_counts()
    shard = lineage.scores(lineage.shard(0))
    store.rescoring(child, contract, RULES).record(shard, "score/visible/collect/000")
    assert set((tmp_path / "blobs").rglob("*")) == before
    assert store.table_counts() == counts | {"rescores": 1}


def test_another_result_for_a_recorded_step_is_a_conflict(store: SqlStore, child: Generation, version_two: str) -> None:
    steps = store.rescoring(child, version_two, RULES)
    steps.record(_rescored(child, version_two), "rescore")
    with pytest.raises(StoreConflict, match="not deterministic"):
        steps.record(_rescored(child, version_two).revise(reworded=1), "rescore")
    assert steps.find(Rescore, "rescore") == _rescored(child, version_two)


def test_a_writer_that_lost_its_lease_records_nothing(store: SqlStore, child: Generation, version_two: str) -> None:
    with store.lease(FAMILY, "macaron-loop rescore"):
        with writing(store.url) as session:
            session.delete(session.get_one(LeaseRow, FAMILY))
        with pytest.raises(StoreConflict, match="lost the lease"):
            store.rescoring(child, version_two, RULES).record(_rescored(child, version_two), "rescore")
    assert store.table_counts()["rescores"] == 0


def test_the_view_of_a_contract_has_own_exams_and_finished_rescores_and_nothing_else(
    store: SqlStore, child: Generation, version_two: str
) -> None:
    own = lineage.exam().contract
    found = store.standpoints(FAMILY, own, RULES)
    assert {digest: (point.exam, point.rescored) for digest, point in found.items()} == {
        child.digest: (child.exam, False)
    }
    assert store.standpoints(FAMILY, version_two, RULES) == {}
    steps = store.rescoring(child, version_two, RULES)
    steps.record(lineage.scores(lineage.shard(0)).revise(contract=version_two), "score/visible/collect/000")
    assert store.standpoints(FAMILY, version_two, RULES) == {}  # begun is not finished
    steps.record(_rescored(child, version_two), "rescore")
    point = store.standpoints(FAMILY, version_two, RULES)[child.digest]
    assert point.rescored and point.exam.score == 50.0 and point.exam.contract == version_two


def test_an_exam_by_another_judge_is_no_score_of_this_one(store: SqlStore, child: Generation) -> None:
    assert lineage.plan().judge.digest == RULES
    assert store.standpoints(FAMILY, lineage.exam().contract, OTHER) == {}


def test_a_rescore_changes_neither_the_generation_nor_its_standing(
    store: SqlStore, child: Generation, version_two: str
) -> None:
    before = store.status(FAMILY)
    store.rescoring(child, version_two, RULES).record(_rescored(child, version_two), "rescore")
    assert store.generation(FAMILY, 1) == child and child.decision.standing is Standing.PROMOTED
    assert store.status(FAMILY) == before


def test_drafts_that_share_a_version_name_are_told_apart(store: SqlStore, version_two: str) -> None:
    assert store.contract_names()[version_two] == "v2"
    edited = store.save(lineage.contract().revise(version="v2", title="edited"))
    assert store.contract_names() == {version_two: f"v2 {version_two[:6]}", edited: f"v2 {edited[:6]}"}
