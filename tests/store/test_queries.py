from __future__ import annotations

import os

from loop.core.budget import Budget
from loop.core.episode import EpisodeShard
from loop.core.gate import Standing
from loop.core.manifest import Hardware, Surroundings
from loop.core.stage import Stage
from loop.core.training_set import TrainingSet
from loop.store.sql import SqlStore
from loop.store.views import NoiseFloor
from tests.store import lineage

FAMILY = lineage.FAMILY


def test_the_status_of_an_unknown_lineage_is_empty(store: SqlStore) -> None:
    view = store.status("nothing")
    assert (view.promoted, view.rejected, view.policies, view.lease, view.attempt) == (0, 0, (), None, None)


def test_the_status_shows_who_writes_and_what_is_recorded(store: SqlStore) -> None:
    root = lineage.root()
    store.register(root, None)
    with store.lease(FAMILY, "the night run"):
        attempt = store.begin(FAMILY, root, lineage.plan())
        attempt.record(Stage.COLLECT, lineage.shard(0), Budget(generated_tokens=5), "s0")
        attempt.record(Stage.COLLECT, lineage.shard(3), Budget(generated_tokens=6), "s1")
        attempt.record(Stage.SCORE, lineage.scores(lineage.shard(0)), Budget(judge_calls=3), "s0")
        view = store.status(FAMILY)
    assert (view.promoted, view.rejected) == (1, 0)
    assert view.lease is not None and view.lease.holder == "the night run" and view.lease.pid == os.getpid()
    assert view.attempt is not None and view.attempt.parent_number == 0 and view.attempt.state == "open"
    stages = [(stage.stage, stage.steps, stage.budget) for stage in view.attempt.stages]
    assert stages == [
        ("collect", 2, Budget(generated_tokens=11)),
        ("score", 1, Budget(judge_calls=3)),
    ]
    assert store.plan_steps(FAMILY, 0, lineage.plan()) == {"collect": 2, "score": 1}
    assert store.plan_steps(FAMILY, 0, lineage.plan(seed=2)) == {}
    assert store.plan_steps(FAMILY, 5, lineage.plan()) == {}


def test_attempts_are_listed_with_what_became_of_them(store: SqlStore) -> None:
    root = lineage.root()
    store.register(root, None)
    store.begin(FAMILY, root, lineage.plan())
    second = store.begin(FAMILY, root, lineage.plan(), fresh=True)
    child = lineage.child(root, standing=Standing.REJECTED)
    store.register(child, second)
    store.begin(FAMILY, root, lineage.plan(seed=3))
    found = [(view.trial, view.state, view.generation) for view in store.attempts(FAMILY)]
    assert found == [(0, "replaced", None), (1, "finished", child.digest), (0, "open", None)]


def test_adapters_are_listed_once_with_the_generations_that_use_them(store: SqlStore) -> None:
    root = lineage.root()
    child = lineage.child(root)
    twin = child.revise(seed=2, decision=child.decision.revise(standing=Standing.REJECTED))
    for generation in (root, child, twin):
        store.register(generation, None)
    views = store.adapters(FAMILY)
    assert [view.adapter.blob for view in views] == ["fresh", "trained"]
    assert [view.numbers for view in views] == [(0,), (1, 1)]
    assert views[1].generations == (child.digest, twin.digest)


def test_why_goes_from_the_score_to_rows_episodes_and_verdicts(store: SqlStore) -> None:
    root = lineage.root()
    store.register(root, None)
    attempt = store.begin(FAMILY, root, lineage.plan())
    shard = lineage.shard(0, 5)
    attempt.record(Stage.COLLECT, shard, Budget(generated_tokens=9), "s0")
    attempt.record(Stage.SCORE, lineage.scores(shard), Budget(), "s0")
    # episodes 0, 2 and 4 hold; the set takes them and, with a second turn, episode 0 twice, and odd episode 1
    taken = [lineage.row(shard.episodes[index], score=90.0 - index) for index in (0, 2, 4, 1)]
    rows = TrainingSet(label="L0", rows=(*taken, lineage.row(shard.episodes[0], turn=1, score=90.0)))
    attempt.record(Stage.CURATE, rows, Budget(), "L0")
    store.open_holdout(attempt, root.digest, "exam")
    child = lineage.child(root)
    store.register(child, attempt)

    view = store.why(child)
    assert view.generation == child and view.parent_number == 0
    assert view.attempt is not None and view.attempt.state == "finished"
    assert [opening.why for opening in view.openings] == ["exam"]
    (why,) = view.adapters
    assert why.trained and why.adapter == child.pair.adapters[0]
    # five rows of 3 prompt and 2 response tokens, from four episodes
    assert (why.rows, why.tokens, why.episodes, why.licences) == (5, 25, 4, {"CC0-1.0": 5})
    assert why.training_set == rows.digest
    sources = [(source.case, source.rows, source.episodes, source.mean_score) for source in why.sources]
    assert sources == [("calendar/0", 4, 3, (90 + 88 + 86 + 90) / 4), ("calendar/1", 1, 1, 89.0)]
    criteria = {view.criterion: (view.held, view.breached, view.undecided) for view in why.criteria}
    assert criteria == {"polite": (3, 1, 0), "short": (3, 0, 1)}
    assert why.criteria[0].criterion == "polite"
    best = why.examples[0]
    assert (best.episode, best.rows, best.score, best.position) == (shard.episodes[0].digest, 2, 90.0, 0)
    assert store.blobs.has(best.shard)


def test_why_of_the_root_has_its_pair_and_no_training(store: SqlStore) -> None:
    root = lineage.root()
    store.register(root, None)
    view = store.why(root)
    assert view.parent_number is None and view.attempt is None and view.openings == ()
    assert [(why.trained, why.rows) for why in view.adapters] == [(False, 0)]


def test_a_specialist_that_was_not_trained_is_told_apart(store: SqlStore) -> None:
    root = lineage.root()
    store.register(root, None)
    kept = lineage.child(root).revise(pair=root.pair)
    store.register(kept, store.begin(FAMILY, root, lineage.plan()))
    assert [why.trained for why in store.why(kept).adapters] == [False]


def test_a_noise_floor_is_kept_by_contract_engine_and_base(store: SqlStore) -> None:
    floor = NoiseFloor(contract="c", engine="e", base="b", value=0.25, cases=40)
    store.save_noise_floor(floor)
    store.save_noise_floor(floor.revise(engine="f", value=0.0))
    store.save_noise_floor(floor.revise(value=0.5))
    assert [(found.engine, found.value) for found in store.noise_floors()] == [("e", 0.5), ("f", 0.0)]


def test_the_origin_of_a_generation_is_its_attempt_its_plan_and_its_exams_steps(store: SqlStore) -> None:
    root = lineage.root()
    store.register(root, None)
    replaced = store.begin(FAMILY, root, lineage.plan(seed=3))
    made = store.begin(FAMILY, root, lineage.plan(), fresh=True)
    made.record(Stage.COLLECT, lineage.shard(0), Budget(), "collect/000")
    for key in ("exam/001", "exam/000"):
        made.record(Stage.EXAMINE, lineage.shard(3), Budget(), key)
    made.record(Stage.EXAMINE, _place("here"), Budget(), "surroundings/000")
    child = lineage.child(root)
    store.register(child, made)
    assert store.origin(root) is None
    found = store.origin(child)
    assert found is not None and found[0].digest == made.digest != replaced.digest
    assert found[1:] == (lineage.plan(), ("exam/000", "exam/001", "surroundings/000"), (_place("here"),))
    assert found[0].find(Stage.EXAMINE, EpisodeShard, "exam/000") == lineage.shard(3)


def test_an_exam_taken_from_an_equal_job_was_played_where_that_job_was(store: SqlStore) -> None:
    root = lineage.root()
    store.register(root, None)
    first = store.begin(FAMILY, root, lineage.plan(seed=3))
    first.record(Stage.EXAMINE, lineage.shard(3), Budget(), "exam/000", "a job")
    first.record(Stage.EXAMINE, _place("there"), Budget(), "surroundings/000")
    taker = store.begin(FAMILY, root, lineage.plan(), fresh=True)
    taker.record(Stage.EXAMINE, _place("here"), Budget(), "surroundings/000")
    taker.record(Stage.EXAMINE, lineage.shard(3), Budget(), "exam/000", "a job")
    child = lineage.child(root)
    store.register(child, taker)
    found = store.origin(child)
    assert found is not None and found[3] == (_place("there"),)
    taker.record(Stage.EXAMINE, lineage.shard(0), Budget(), "exam/001", "another job")
    found = store.origin(child)
    assert found is not None and sorted(place.hardware.cpu for place in found[3]) == ["here", "there"]


def _place(cpu: str) -> Surroundings:
    hardware = Hardware(cpu=cpu, cores=2)
    return Surroundings(version="1", code="c", python="p", system="s", packages={}, hardware=hardware)
