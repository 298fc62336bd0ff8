"""Consent, and how far forgetting reaches: conversations, cases, shards, scores, training sets."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from loop.core.budget import Budget
from loop.core.episode import Episode, EpisodeShard, Split, Task
from loop.core.errors import TornBlob
from loop.core.gate import Standing
from loop.core.living import LIVING, Source
from loop.core.score import ScoreShard
from loop.core.stage import Stage
from loop.core.training_set import TrainingSet
from loop.store.attempt import SqlAttempt
from loop.store.blobs import FsBlobs
from loop.store.conversations import SqlConversations
from loop.store.erase import erase
from loop.store.living import SqlLiving
from loop.store.sql import SqlStore
from tests.store import lineage
from tests.store.test_conversations import exchange, texts

FILE = "export.json"


@pytest.fixture
def kept(url: str) -> SqlConversations:
    return SqlConversations(url)


@pytest.fixture
def living(url: str) -> SqlLiving:
    return SqlLiving(url)


def agree(living: SqlLiving, owner: str = "ana") -> None:
    living.decide(owner, True, "2026-12", "support")
    time.sleep(0.002)  # the store's times are in milliseconds


def ends(living: SqlLiving, owner: str = "ana") -> list[list[str]]:
    return [texts(source.timeline) for source in living.sources(owner)]


def export(living: SqlLiving, owner: str = "ana") -> dict[str, Source]:
    """Export every source under a case of its own name."""
    named = {f"case of {source.turn}": source for source in living.sources(owner)}
    assert living.exported(owner, FILE, tuple(named.items())) == set(named)
    return named


def test_without_consent_nothing_may_be_exported(kept: SqlConversations, living: SqlLiving) -> None:
    kept.append("ana", None, exchange(1))
    assert living.history("ana") == () and living.sources("ana") == ()
    assert [talk.covered for talk in living.talks("ana")] == [False]


def test_consent_covers_what_begins_while_it_is_held(kept: SqlConversations, living: SqlLiving) -> None:
    before = kept.append("ana", None, exchange(1, "early"))
    time.sleep(0.002)
    agree(living)
    kept.append("ana", before, exchange(2, "late, but of a conversation from before"))
    first = kept.append("ana", None, exchange(1))
    kept.append("ana", first, exchange(2, "one branch"))
    kept.append("ana", first, exchange(2, "another"))
    kept.append("bob", None, exchange(1))
    head = ["request 1", "yes", "request 2"]
    assert sorted(ends(living)) == sorted([[*head, "one branch"], [*head, "another"]])
    assert ends(living, "bob") == []
    assert [(talk.turns, talk.covered) for talk in living.talks("ana")] == [(2, False), (3, True)]


def test_decisions_are_kept_and_the_last_one_holds(kept: SqlConversations, living: SqlLiving) -> None:
    agree(living)
    kept.append("ana", None, exchange(1))
    newer = living.decide("ana", True, "2027-01", "ana")
    assert len(ends(living)) == 1 and newer.since == living.history("ana")[0].at
    assert living.decide("ana", False, "", "ana").since is None and ends(living) == []
    time.sleep(0.002)
    agree(living)
    # what was said under the consent that was withdrawn is not covered by a new one
    assert ends(living) == []
    decisions = [(c.held, c.terms, c.who) for c in living.history("ana")]
    assert decisions == [(True, "2026-12", "support"), (True, "2027-01", "ana"), (False, "", "ana")] + decisions[:1]


@pytest.mark.parametrize("how", ["withdraw", "forget", "opt out"])
def test_what_was_exported_is_forgotten(kept: SqlConversations, living: SqlLiving, how: str) -> None:
    agree(living)
    agree(living, "bob")
    first = kept.append("ana", None, exchange(1))
    kept.append("bob", None, exchange(1))
    (case,), (other,) = export(living), export(living, "bob")
    assert living.forgotten() == frozenset() and [talk.exported for talk in living.talks("ana")] == [1]
    if how == "withdraw":
        living.decide("ana", False, "", "ana")
    elif how == "forget":
        kept.forget("ana", first)
    else:
        assert living.opt_out("ana", first) == first
    assert living.forgotten() == {case} and living.sources("ana") == ()
    assert [talk.exported for talk in living.talks("bob")] == [1] and other not in living.forgotten()
    with pytest.raises(LookupError):
        living.opt_out("bob", first)


def test_an_export_that_meets_a_withdrawal_never_keeps_a_case_of_it(kept: SqlConversations, living: SqlLiving) -> None:
    for number in range(6):
        owner = f"owner{number}"
        agree(living, owner)
        kept.append(owner, None, exchange(1))
        (source,) = living.sources(owner)
        with ThreadPoolExecutor(2) as pool:
            exported = pool.submit(living.exported, owner, FILE, [(owner, source)])
            pool.submit(living.decide, owner, False, "", owner).result()
        assert exported.result() == frozenset() or owner in living.forgotten()
        assert living.talks(owner)[0].exported == 0


def test_deleted_words_are_not_left_in_the_file_of_an_sqlite_database(
    kept: SqlConversations, blobs: FsBlobs, url: str, tmp_path: Path
) -> None:
    if not url.startswith("sqlite"):
        pytest.skip("PostgreSQL overwrites deleted rows when it vacuums")

    def lies_there() -> bool:
        return any(b"a very private matter" in path.read_bytes() for path in tmp_path.glob("loop.db*"))

    first = kept.append("ana", None, exchange(1, "a very private matter"))
    assert lies_there()
    kept.forget("ana", first)
    erase(url, blobs)
    assert not lies_there()


def met(case: str, index: int) -> Episode:
    """An episode of the living environment."""
    task = Task(environment=LIVING, case=case, split=Split.TRAIN, seed=index)
    return lineage.episode(index).revise(task=task)


@pytest.fixture
def learned(store: SqlStore) -> tuple[SqlAttempt, EpisodeShard]:
    """A generation that learned from three episodes: of case a, of a tool, of case b."""
    root = lineage.root()
    store.register(root, None)
    attempt = store.begin(lineage.FAMILY, root, lineage.plan())
    shard = EpisodeShard(episodes=(met("a", 0), lineage.episode(1), met("b", 2)))
    attempt.record(Stage.COLLECT, shard, Budget(), "collect/000")
    attempt.record(Stage.SCORE, lineage.scores(shard), Budget(), "score/000")
    attempt.record(Stage.CURATE, lineage.training_set(shard), Budget(), "L0")
    store.register(lineage.child(root, standing=Standing.PROMOTED), attempt)
    return attempt, shard


def forget(living: SqlLiving, kept: SqlConversations, case: str) -> None:
    agree(living)
    first = kept.append("ana", None, exchange(1))
    (source,) = living.sources("ana")
    living.exported("ana", FILE, [(case, source)])
    kept.forget("ana", first)


def bodies(blobs: FsBlobs) -> set[str]:
    """The digests of all blobs on the disk."""
    return {path.name for path in (Path(blobs.url) / "blobs").rglob("*") if path.is_file()}


def test_forgetting_reaches_bodies_scores_and_rows_and_digests_stay_honest(
    store: SqlStore, kept: SqlConversations, living: SqlLiving, learned: tuple[SqlAttempt, EpisodeShard], blobs: FsBlobs
) -> None:
    attempt, shard = learned
    rows = [row.case for row in store.replay(lineage.FAMILY, [store.generations(lineage.FAMILY)[1].digest], "L0")]
    assert rows == ["a", "calendar/1", "b"]
    stored = bodies(blobs)
    forget(living, kept, "a")
    child = store.generations(lineage.FAMILY)[1]
    # the tombstone alone keeps the row from being taught again
    assert [row.case for row in store.replay(lineage.FAMILY, [child.digest], "L0")] == ["calendar/1", "b"]
    done = erase(store.url, blobs)
    assert (done.episodes, done.rows, done.waiting) == (1, 1, ())
    assert done.adapters == tuple(adapter.digest for adapter in child.pair.adapters)
    found = attempt.find(Stage.COLLECT, EpisodeShard, "collect/000")
    assert found is not None and found.digest != shard.digest
    assert [e.turns == () for e in found.episodes] == [True, False, False] and found.episodes[1:] == shard.episodes[1:]
    scored = attempt.find(Stage.SCORE, ScoreShard, "score/000")
    assert scored is not None and [s.episode for s in scored.scores] == [e.digest for e in found.episodes]
    assert scored.scores[0].score is None and not scored.scores[0].verdicts
    taught = attempt.find(Stage.CURATE, TrainingSet, "L0")
    assert taught is not None and [row.case for row in taught.rows] == ["calendar/1", "b"]
    # the three old bodies are gone from the disk, and under no address do bytes of another content lie
    left = bodies(blobs)
    assert len(stored - left) == 3
    for name in left:
        blobs.get(name)
    for name in stored - left:
        with pytest.raises(TornBlob):
            blobs.get(name)
    assert store.episode(shard.episodes[0].digest).episode.turns == ()
    assert store.episode(shard.episodes[1].digest).episode == shard.episodes[1]


def test_erasing_again_does_nothing_and_another_case_follows(
    store: SqlStore, kept: SqlConversations, living: SqlLiving, learned: tuple[SqlAttempt, EpisodeShard], blobs: FsBlobs
) -> None:
    attempt, shard = learned
    forget(living, kept, "a")
    erase(store.url, blobs)
    assert erase(store.url, blobs).episodes == 0
    forget(living, kept, "b")
    assert erase(store.url, blobs).episodes == 1
    found = attempt.find(Stage.COLLECT, EpisodeShard, "collect/000")
    assert found is not None and [e.turns == () for e in found.episodes] == [True, False, True]
    # what a process still holds of it is not stored again
    store.save(shard)
    assert store.load(EpisodeShard, shard.digest) == found
    assert len(bodies(blobs)) == 3


def test_a_lineage_that_is_being_written_waits(
    store: SqlStore, kept: SqlConversations, living: SqlLiving, learned: tuple[SqlAttempt, EpisodeShard], blobs: FsBlobs
) -> None:
    forget(living, kept, "a")
    with store.lease(lineage.FAMILY, "a nightly run"):
        done = erase(store.url, blobs)
    assert (done.episodes, done.waiting) == (0, (lineage.FAMILY,))
    assert erase(store.url, blobs).episodes == 1
