from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from loop.core.errors import StoreConflict, TornBlob, UserError
from loop.core.gate import Standing
from loop.core.generation import Generation
from loop.core.noun import digest_of
from loop.core.pair import Adapter, Harness
from loop.core.plan import Plan
from loop.core.score import Scorecard
from loop.core.stage import Stage
from loop.core.training_set import TrainingSet
from loop.store.blobs import FsBlobs
from loop.store.database import writing
from loop.store.lease import fence
from loop.store.sql import SqlStore
from tests.store import children, lineage

FAMILY = lineage.FAMILY


@pytest.fixture
def root(store: SqlStore) -> Generation:
    generation = lineage.root()
    store.register(generation, None)
    return generation


def _grown(store: SqlStore, parent: Generation, blob: str, the_plan: Plan) -> Generation:
    """A child registered by an attempt that trained on one set."""
    attempt = store.begin(FAMILY, parent, the_plan)
    start = 10 * parent.number
    rows = lineage.training_set(lineage.shard(start), generation=parent.number)
    attempt.once(Stage.CURATE, TrainingSet, lambda: rows, "L0")
    child = lineage.child(parent, blob, the_plan=the_plan)
    store.register(child, attempt)
    return child


def test_a_generation_reads_back_equal_with_the_order_of_its_keys(store: SqlStore, root: Generation) -> None:
    child = lineage.child(root)
    store.register(child, None)
    assert store.generations(FAMILY) == (root, child)
    back = store.generation(FAMILY, 1)
    assert back.digest == child.digest and repr(back) == repr(child)


def test_registering_an_equal_generation_again_does_nothing(store: SqlStore, root: Generation) -> None:
    attempt = store.begin(FAMILY, root, lineage.plan())
    child = lineage.child(root)
    store.register(child, attempt)
    before = store.table_counts()
    store.register(child, attempt)
    store.register(root, None)
    assert store.table_counts() == before


def test_rejected_generations_are_kept_beside_the_promoted_one(store: SqlStore, root: Generation) -> None:
    first = lineage.child(root, "one", Standing.REJECTED)
    second = lineage.child(root, "two", Standing.REJECTED)
    third = lineage.child(root, "three")
    for generation in (first, second, third):
        store.register(generation, None)
    assert store.generations(FAMILY) == (root, first, second, third)
    assert store.generation(FAMILY, 1) == third


def test_a_second_promoted_generation_of_a_number_is_a_conflict(store: SqlStore, root: Generation) -> None:
    store.register(lineage.child(root, "one"), None)
    before = store.table_counts()
    attempt = store.begin(FAMILY, root, lineage.plan())
    with pytest.raises(StoreConflict, match="already has the promoted generation 1"):
        store.register(lineage.child(root, "two"), attempt)
    after = store.table_counts()
    assert after == before | {"attempts": before["attempts"] + 1}
    # another family is another lineage
    other = lineage.root("other")
    store.register(other, None)
    store.register(lineage.child(other, "two"), None)


def test_a_generation_without_a_registered_parent_is_refused(store: SqlStore) -> None:
    with pytest.raises(UserError, match="register the parent first"):
        store.register(lineage.child(lineage.root()), None)
    assert store.generations(FAMILY) == ()


def test_an_unknown_number_names_those_that_exist(store: SqlStore, root: Generation) -> None:
    store.register(lineage.child(root), None)
    with pytest.raises(UserError, match=r"no promoted generation 7: it has 0, 1"):
        store.generation(FAMILY, 7)
    with pytest.raises(UserError, match="none yet"):
        store.generation("strangers", 0)


def test_a_digest_prefix_finds_its_generation_and_says_why_not(store: SqlStore, root: Generation) -> None:
    assert store.by_digest(root.digest) == root
    assert store.by_digest(root.digest[:6].upper()) == root
    absent = "0" * 6 if not root.digest.startswith("0" * 6) else "1" * 6
    for bad, says in ((root.digest[:5], "at least 6"), ("%%%%%%", "no digest"), (absent, root.digest[:12])):
        with pytest.raises(UserError, match=says):
            store.by_digest(bad)


def test_an_ambiguous_prefix_is_refused(store: SqlStore, root: Generation) -> None:
    seen: dict[str, Generation] = {}
    for index in range(20_000):
        generation = root.revise(seed=index + 2, family=f"f{index}")
        twin = seen.setdefault(generation.digest[:6], generation)
        if twin is not generation:
            break
    else:
        pytest.fail("no two of 20,000 digests share six digits: that has a chance of 6e-6")
    store.register(twin, None)
    store.register(generation, None)
    with pytest.raises(UserError, match="fits 2 generations"):
        store.by_digest(twin.digest[:6])
    assert store.by_digest(twin.digest[:20]) == twin


def test_an_attempt_is_its_parent_its_plan_and_its_trial(store: SqlStore, root: Generation) -> None:
    first = store.begin(FAMILY, root, lineage.plan())
    again = store.begin(FAMILY, root, lineage.plan())
    assert (first.digest, first.trial) == (again.digest, again.trial) and first.trial == 0
    assert first.digest == digest_of(["attempt", root.digest, lineage.plan().digest, 0])
    fresh = store.begin(FAMILY, root, lineage.plan(), fresh=True)
    assert fresh.trial == 1 and fresh.digest != first.digest
    assert store.begin(FAMILY, root, lineage.plan()).digest == fresh.digest


def test_resuming_under_changed_settings_is_refused_and_says_what_changed(store: SqlStore, root: Generation) -> None:
    store.begin(FAMILY, root, lineage.plan())
    with pytest.raises(UserError, match=r"collect\.samples: 2 -> 4.*--fresh") as error:
        store.begin(FAMILY, root, lineage.plan(samples=4))
    assert "seed" not in str(error.value)
    fresh = store.begin(FAMILY, root, lineage.plan(samples=4), fresh=True)
    assert fresh.trial == 0
    assert store.begin(FAMILY, root, lineage.plan(samples=4)).digest == fresh.digest


def test_a_replaced_attempt_can_neither_record_nor_register(store: SqlStore, root: Generation) -> None:
    from loop.core.budget import Budget

    old = store.begin(FAMILY, root, lineage.plan())
    store.begin(FAMILY, root, lineage.plan(), fresh=True)
    with pytest.raises(StoreConflict, match="replaced"):
        old.record(Stage.COLLECT, lineage.shard(), Budget(), "s0")
    with pytest.raises(StoreConflict, match="replaced"):
        store.register(lineage.child(root), old)
    assert len(store.generations(FAMILY)) == 1


def test_the_result_of_a_plan_is_what_its_newest_finished_attempt_registered(store: SqlStore, root: Generation) -> None:
    plan = lineage.plan()
    assert store.result(FAMILY, root, plan) is None
    attempt = store.begin(FAMILY, root, plan)
    assert store.result(FAMILY, root, plan) is None
    first = lineage.child(root, "one", Standing.REJECTED)
    store.register(first, attempt)
    assert store.result(FAMILY, root, plan) == first
    assert store.result(FAMILY, root, lineage.plan(seed=2)) is None
    second_try = store.begin(FAMILY, root, plan, fresh=True)
    # an open newer trial is to be resumed, not skipped
    assert store.result(FAMILY, root, plan) is None
    second = lineage.child(root, "two")
    store.register(second, second_try)
    assert store.result(FAMILY, root, plan) == second


def test_after_a_finished_attempt_the_same_plan_begins_another_trial(store: SqlStore, root: Generation) -> None:
    attempt = store.begin(FAMILY, root, lineage.plan())
    store.register(lineage.child(root, standing=Standing.REJECTED), attempt)
    assert store.begin(FAMILY, root, lineage.plan()).trial == 1


def test_another_trial_with_an_equal_outcome_is_finished_too(store: SqlStore, root: Generation) -> None:
    child = lineage.child(root, standing=Standing.REJECTED)
    for trial in range(2):
        attempt = store.begin(FAMILY, root, lineage.plan(), fresh=trial > 0)
        store.register(child, attempt)
    assert len(store.generations(FAMILY)) == 2
    assert store.result(FAMILY, root, lineage.plan()) == child
    assert [view.state for view in store.attempts(FAMILY)] == ["finished", "finished"]


def test_promotion_moves_the_champion_of_each_owner_and_keeps_the_history(store: SqlStore) -> None:
    root = lineage.root().revise(pair=lineage.pair(lineage.adapter(owner="ann"), lineage.adapter("b", "L1", "bob")))
    rejected = lineage.child(root, "no", Standing.REJECTED).revise(pair=root.pair)
    promoted = lineage.child(root, "yes").revise(pair=root.pair)
    for generation in (root, rejected, promoted):
        store.register(generation, None)
    policies = {(view.owner, view.name): view.number for view in store.status(FAMILY).policies}
    assert policies == {("ann", "champion"): 1, ("bob", "champion"): 1}
    moves = [(move.owner, move.number, move.previous) for move in store.policy_history(FAMILY)]
    assert moves == [("ann", 0, None), ("bob", 0, None), ("ann", 1, root.digest), ("bob", 1, root.digest)]


def test_a_policy_record_can_be_moved_by_hand_and_the_move_is_kept(store: SqlStore, root: Generation) -> None:
    child = lineage.child(root, standing=Standing.REJECTED)
    store.register(child, None)
    store.point(FAMILY, "local", "candidate", child, "second opinion")
    store.point(FAMILY, "local", "candidate", child, "second opinion")
    last = store.policy_history(FAMILY)[-1]
    assert (last.name, last.number, last.why) == ("candidate", 1, "second opinion")
    assert len(store.policy_history(FAMILY)) == 2
    with pytest.raises(UserError, match="no generation of lineage other"):
        store.point("other", "local", "champion", child, "wrong lineage")


def test_every_opening_of_the_holdout_is_a_row_with_who_when_what_and_why(store: SqlStore, root: Generation) -> None:
    attempt = store.begin(FAMILY, root, lineage.plan())
    store.open_holdout(attempt, root.digest, "fingerprints")
    store.open_holdout(attempt, root.digest, "exam")
    store.open_holdout(attempt, root.digest, "exam")
    found = {view.why: view for view in store.openings(FAMILY)}
    assert {why: view.times for why, view in found.items()} == {"fingerprints": 1, "exam": 2}
    assert found["exam"].generation == root.digest and found["exam"].attempt == attempt.digest
    assert "process" in found["exam"].who and found["exam"].at.endswith("Z")


def test_replay_gives_the_rows_of_the_ancestors_attempts_in_order_once(store: SqlStore, root: Generation) -> None:
    one = _grown(store, root, "one", lineage.plan())
    attempt = store.begin(FAMILY, one, lineage.plan())
    replayed = lineage.training_set(lineage.shard(0, 2)).rows
    own = lineage.training_set(lineage.shard(10), generation=1).rows
    rows = TrainingSet(label="L0", rows=(*own, *replayed))
    attempt.once(Stage.CURATE, TrainingSet, lambda: rows, "L0")
    two = lineage.child(one, "two")
    store.register(two, attempt)
    first = lineage.training_set(lineage.shard(0)).rows
    assert store.replay(FAMILY, (one.digest,), "L0") == first
    assert store.replay(FAMILY, (one.digest, two.digest), "L0") == (*first, *own)
    assert store.replay(FAMILY, (two.digest,), "L0") == rows.rows
    assert store.replay(FAMILY, (root.digest,), "L0") == ()
    assert store.replay(FAMILY, (one.digest,), "L1") == ()
    assert store.replay("other", (one.digest,), "L0") == ()


def test_nouns_are_saved_once_and_loaded_by_their_digest(store: SqlStore, root: Generation) -> None:
    card = Scorecard(contract="c", pair="p", half="sealed", scores=lineage.scores(lineage.shard()).scores)
    for noun in (lineage.shard(), lineage.scores(lineage.shard()), lineage.plan(), lineage.contract(), card):
        digest = store.save(noun)
        assert digest == noun.digest == store.save(noun)
        assert repr(store.load(type(noun), digest)) == repr(noun)
    # what a registered generation is made of needs no saving
    assert store.load(Generation, root.digest) == root
    assert store.load(Adapter, root.pair.adapters[0].digest) == root.pair.adapters[0]
    assert store.load(Harness, root.pair.harness.digest) == root.pair.harness


def test_facts_that_are_no_identity_stay_those_of_the_first_save(store: SqlStore) -> None:
    fast = lineage.shard()
    slow = fast.revise(episodes=tuple(episode.revise(seconds=99.0) for episode in fast.episodes))
    assert store.save(fast) == store.save(slow)
    assert [episode.seconds for episode in store.load(type(fast), fast.digest).episodes] == [1.5, 1.5, 1.5]


def test_a_torn_blob_is_one_sentence_and_saving_again_heals_it(store: SqlStore, blobs: FsBlobs) -> None:
    noun = lineage.shard()
    store.save(noun)
    path = next(path for path in Path(blobs.url).rglob("*") if path.is_file())
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(TornBlob, match=f"{path.name}.*does not match its digest"):
        store.load(type(noun), noun.digest)
    store.save(noun)
    assert store.load(type(noun), noun.digest) == noun
    path.unlink()
    with pytest.raises(TornBlob, match="is missing"):
        store.load(type(noun), noun.digest)


def test_a_blob_that_holds_another_noun_is_torn(store: SqlStore, blobs: FsBlobs) -> None:
    from sqlmodel import Session

    from loop.store.database import engine_for
    from loop.store.parquet import encode
    from loop.store.tables import NounRow

    noun, other = lineage.shard(0), lineage.shard(1)
    store.save(noun)
    with Session(engine_for(store.url).execution_options(write=True)) as session:
        row = session.get_one(NounRow, noun.digest)
        row.blob = blobs.put(encode(other))
        session.commit()
    with pytest.raises(TornBlob, match=f"reads back as {other.short}"):
        store.load(type(noun), noun.digest)


def test_an_unknown_noun_is_one_sentence(store: SqlStore) -> None:
    with pytest.raises(TornBlob, match="not in the store"):
        store.load(Plan, "0" * 64)


def test_a_saved_contract_is_a_version_row(store: SqlStore, root: Generation) -> None:
    contract = lineage.contract()
    child = lineage.child(root)
    assert child.exam is not None
    exam = child.exam.revise(contract=contract.digest)
    store.register(child.revise(exam=exam), None)
    assert store.table_counts()["contracts"] == 1
    store.save(contract)
    assert store.table_counts()["contracts"] == 1
    from sqlmodel import Session

    from loop.store.database import engine_for
    from loop.store.tables import ContractRow

    with Session(engine_for(store.url)) as session:
        row = session.get_one(ContractRow, contract.digest)
        assert row.version == "v1" and row.document == contract


def test_a_store_pickles(store: SqlStore, root: Generation) -> None:
    assert pickle.loads(pickle.dumps(store)).generations(FAMILY) == (root,)


def test_processes_that_begin_at_once_get_one_attempt(store: SqlStore, blobs: FsBlobs, root: Generation) -> None:
    outcomes = children.race(*(children.start("begin", store.url, blobs.url, "1") for _ in range(3)))
    assert [outcome.code for outcome in outcomes] == [0, 0, 0], outcomes
    assert len({outcome.out for outcome in outcomes}) == 1
    assert store.table_counts()["attempts"] == 1


def test_of_processes_that_begin_other_plans_at_once_exactly_one_wins(
    store: SqlStore, blobs: FsBlobs, root: Generation
) -> None:
    outcomes = children.race(*(children.start("begin", store.url, blobs.url, str(seed)) for seed in (1, 2, 3)))
    assert sorted(outcome.code for outcome in outcomes) == [0, 2, 2], outcomes
    assert all("--fresh" in outcome.error for outcome in outcomes if outcome.code == 2)
    assert store.table_counts()["attempts"] == 1


def test_of_promoted_generations_registered_at_once_exactly_one_stands(
    store: SqlStore, blobs: FsBlobs, root: Generation
) -> None:
    outcomes = children.race(*(children.start("register", store.url, blobs.url, name) for name in "abc"))
    assert sorted(outcome.code for outcome in outcomes) == [0, 3, 3], outcomes
    assert [generation.number for generation in store.generations(FAMILY)] == [0, 1]


def test_the_same_generation_registered_at_once_is_one_row(store: SqlStore, blobs: FsBlobs, root: Generation) -> None:
    outcomes = children.race(*(children.start("register", store.url, blobs.url, "a") for _ in range(3)))
    assert [outcome.code for outcome in outcomes] == [0, 0, 0], outcomes
    assert len(store.generations(FAMILY)) == 2 and len(store.policy_history(FAMILY)) == 2


@pytest.mark.parametrize("command", ["register", "begin"])
def test_a_write_waits_for_the_write_before_it_to_the_same_lineage(
    command: str, store: SqlStore, blobs: FsBlobs, root: Generation
) -> None:
    # A writer that looked while another was in the middle would decide on what is no longer so.
    with writing(store.url) as session:
        fence(session, store.url, FAMILY)
        child = children.start(command, store.url, blobs.url, {"register": "a", "begin": "1"}[command])
        children.wait_for(child, "ready")
        child.pipe.send("go")
        assert not child.pipe.poll(0.5), "the child wrote beside an open write"
    outcome = children.finish(child)
    assert outcome.code == 0, outcome
