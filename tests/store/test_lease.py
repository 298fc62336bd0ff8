from __future__ import annotations

import os
import socket
import time

import pytest
from sqlmodel import Session, select

from loop.core.budget import Budget
from loop.core.errors import StoreConflict
from loop.core.stage import Stage
from loop.store import lease
from loop.store.blobs import FsBlobs
from loop.store.database import engine_for
from loop.store.sql import SqlStore
from loop.store.tables import LeaseRow
from tests.store import children, lineage

FAMILY = lineage.FAMILY


def _change(store: SqlStore, **changes: object) -> None:
    with Session(engine_for(store.url).execution_options(write=True)) as session:
        row = session.exec(select(LeaseRow)).one()
        for name, value in changes.items():
            setattr(row, name, value)
        session.add(row)
        session.commit()


def test_a_second_holder_is_told_who_holds_it_where_and_since_when(store: SqlStore) -> None:
    with store.lease(FAMILY, "the night run"):
        with pytest.raises(StoreConflict) as error, store.lease(FAMILY, "me"):
            pass
        sentence = str(error.value)
        year = time.strftime("%Y", time.gmtime())
        for part in ("the night run", socket.gethostname(), f"process {os.getpid()}", f"since {year}-"):
            assert part in sentence
        view = store.status(FAMILY).lease
        assert view is not None and (view.holder, view.pid) == ("the night run", os.getpid())


def test_a_lease_ends_with_its_context_also_after_an_error(store: SqlStore) -> None:
    with pytest.raises(ZeroDivisionError), store.lease(FAMILY, "a"):
        raise ZeroDivisionError
    with store.lease(FAMILY, "b"):
        pass
    assert store.status(FAMILY).lease is None


def test_lineages_have_leases_of_their_own(store: SqlStore) -> None:
    with store.lease(FAMILY, "a"), store.lease("other", "b"):
        pass


def test_another_process_is_refused_while_this_one_holds(store: SqlStore, blobs: FsBlobs) -> None:
    with store.lease(FAMILY, "the parent"):
        (outcome,) = children.race(children.start("hold", store.url, blobs.url, FAMILY))
        assert outcome.code == 3 and "the parent" in outcome.error


def test_of_processes_that_race_for_a_lease_exactly_one_wins(store: SqlStore, blobs: FsBlobs) -> None:
    outcomes = children.race(*(children.start("hold", store.url, blobs.url, FAMILY) for _ in range(4)))
    assert sorted(outcome.code for outcome in outcomes) == [0, 3, 3, 3], outcomes
    assert all("the child" in outcome.error for outcome in outcomes if outcome.code == 3)


def test_after_kill_9_the_next_run_goes_on_at_once(store: SqlStore, blobs: FsBlobs) -> None:
    process = children.start("keep", store.url, blobs.url, FAMILY)
    children.wait_for(process, "held")
    with pytest.raises(StoreConflict), store.lease(FAMILY, "too early"):
        pass
    process.kill()
    started = time.monotonic()
    with store.lease(FAMILY, "the next"):
        assert time.monotonic() - started < 2.0


def test_of_processes_that_race_for_a_dead_lease_exactly_one_wins(store: SqlStore, blobs: FsBlobs) -> None:
    process = children.start("keep", store.url, blobs.url, FAMILY)
    children.wait_for(process, "held")
    process.kill()
    outcomes = children.race(*(children.start("hold", store.url, blobs.url, FAMILY) for _ in range(4)))
    assert sorted(outcome.code for outcome in outcomes) == [0, 3, 3, 3], outcomes


def test_a_holder_on_another_machine_is_waited_for_until_its_time_to_live(store: SqlStore) -> None:
    with store.lease(FAMILY, "far away"):
        # process 1 there is not process 1 here
        _change(store, machine="elsewhere", pid=999_999_999)
        with pytest.raises(StoreConflict), store.lease(FAMILY, "me"):
            pass
        _change(store, heartbeat=time.time() - lease.TIME_TO_LIVE - 1)
        with store.lease("unrelated", "me"), Session(engine_for(store.url)) as session:
            assert lease.holder_of(session, FAMILY) is None


def test_a_process_number_used_again_by_another_process_is_not_the_holder(store: SqlStore) -> None:
    with store.lease(FAMILY, "an earlier process of this number"):
        _change(store, process_started=time.time() - 10_000)
        with Session(engine_for(store.url)) as session:
            assert lease.holder_of(session, FAMILY) is None


def test_the_heart_beats(store: SqlStore) -> None:
    with store.lease(FAMILY, "a"):
        _change(store, heartbeat=time.time() - 15)
        time.sleep(lease.BEAT_SECONDS + 1.5)
        view = store.status(FAMILY).lease
        assert view is not None and view.beat_seconds < lease.BEAT_SECONDS + 1.0


def test_a_holder_that_slept_too_long_and_lost_the_lease_writes_nothing_more(store: SqlStore) -> None:
    root = lineage.root()
    store.register(root, None)
    with store.lease(FAMILY, "the sleeper"):
        attempt = store.begin(FAMILY, root, lineage.plan())
        before = store.table_counts()
        _change(store, token="taken", holder="the taker")
        writes = (
            lambda: attempt.record(Stage.COLLECT, lineage.shard(), Budget(), "s0"),
            lambda: store.register(lineage.child(root), attempt),
            lambda: store.begin(FAMILY, root, lineage.plan()),
            lambda: store.open_holdout(attempt, root.digest, "exam"),
        )
        for write in writes:
            with pytest.raises(StoreConflict, match="lost the lease.*the taker"):
                write()
        assert store.table_counts() == before
    # leaving the context does not take the lease from its new holder
    assert store.table_counts()["leases"] == 1
