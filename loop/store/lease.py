"""One writer a lineage: a row with a heartbeat, taken over when its holder is gone."""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import psutil
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlmodel import Session, col, delete, select, update

from loop.core.errors import LoopError, StoreConflict
from loop.store.database import reading, writing
from loop.store.tables import LeaseRow

BEAT_SECONDS = 4.0
TIME_TO_LIVE = 20.0

# Leases this process holds, by (URL, family): what every write is fenced by.
_held: dict[tuple[str, str], str] = {}


@contextmanager
def hold(url: str, family: str, holder: str) -> Iterator[None]:
    """Be the only writer of a lineage while the context is open; raises StoreConflict."""
    token = uuid.uuid4().hex
    _acquire(url, family, holder, token)
    stop = threading.Event()
    thread = threading.Thread(target=_beat, args=(url, family, token, stop), daemon=True, name=f"lease {family}")
    _held[url, family] = token
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        del _held[url, family]
        # What ended the body matters more; a row that stays is stale as soon as this process is gone.
        with suppress(LoopError, SQLAlchemyError):
            _release(url, family, token)


def fence(session: Session, url: str, family: str) -> None:
    """Begin a write to a lineage: one writer at a time, and never one that lost its lease.

    Waits for another transaction that writes the same lineage, so that what follows reads all
    that it committed (PostgreSQL; SQLite has one writer anyway). Raises StoreConflict when this
    process held the lease and lost it (a long stop of the machine).
    """
    alone(session, family)
    token = _held.get((url, family))
    if token is None:
        return
    row = session.exec(select(LeaseRow).where(LeaseRow.family == family).with_for_update(read=True)).one_or_none()
    if row is None or row.token != token:
        taker = "nobody" if row is None else _described(row)
        raise StoreConflict(
            f"this process lost the lease of lineage {family} (its heartbeat stopped for over {TIME_TO_LIVE:.0f} s); "
            f"it is now held by {taker}: run the same command again to resume"
        )


def alone(session: Session, name: str) -> None:
    """Wait until no other transaction is alone under this name (PostgreSQL; SQLite has one writer anyway)."""
    connection = session.connection()
    if connection.dialect.name == "postgresql":
        query = text("SELECT pg_advisory_xact_lock(hashtext('macaron-loop'), hashtext(:name))")
        connection.execute(query, {"name": name})


def holder_of(session: Session, family: str) -> LeaseRow | None:
    """The live lease of a lineage, or None when it is free or stale."""
    row = session.get(LeaseRow, family)
    return row if row is not None and _is_live(row, clock(session)) else None


def _acquire(url: str, family: str, holder: str, token: str) -> None:
    try:
        with writing(url) as session:
            row = session.exec(select(LeaseRow).where(LeaseRow.family == family).with_for_update()).one_or_none()
            seconds = clock(session)
            if row is not None and _is_live(row, seconds):
                raise _conflict(row)
            if row is not None:
                session.delete(row)
                session.flush()
            session.add(_new_row(family, holder, token, seconds))
    except IntegrityError as error:
        # Two inserts raced (PostgreSQL): the other one won.
        with reading(url) as session:
            row = session.get(LeaseRow, family)
        if row is None:
            raise StoreConflict(f"the lease of lineage {family} was taken and released meanwhile: run again") from error
        raise _conflict(row) from error


def _new_row(family: str, holder: str, token: str, seconds: float) -> LeaseRow:
    return LeaseRow(
        family=family,
        token=token,
        holder=holder,
        host=socket.gethostname(),
        machine=_machine(),
        pid=os.getpid(),
        process_started=psutil.Process().create_time(),
        since=seconds,
        heartbeat=seconds,
    )


def _release(url: str, family: str, token: str) -> None:
    with writing(url) as session:
        session.exec(delete(LeaseRow).where(col(LeaseRow.family) == family, col(LeaseRow.token) == token))


def _beat(url: str, family: str, token: str, stop: threading.Event) -> None:
    mine = (col(LeaseRow.family) == family, col(LeaseRow.token) == token)
    while not stop.wait(BEAT_SECONDS):
        # A beat that fails (busy, full disk) is tried again; when all fail, the fence stops the writes.
        with suppress(LoopError, SQLAlchemyError), writing(url) as session:
            session.exec(update(LeaseRow).where(*mine).values(heartbeat=clock(session)))


def clock(session: Session) -> float:
    """Seconds since 1970: the server's on PostgreSQL, so that hosts need not agree."""
    if session.get_bind().dialect.name == "postgresql":
        return float(session.connection().execute(text("SELECT extract(epoch FROM clock_timestamp())")).scalar_one())
    return time.time()


def _is_live(row: LeaseRow, seconds: float) -> bool:
    if seconds - row.heartbeat > TIME_TO_LIVE:
        return False
    return row.machine != _machine() or _runs(row.pid, row.process_started)


def _runs(pid: int, started: float) -> bool:
    """Whether the process that took the lease still runs: same number and same start."""
    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE and abs(process.create_time() - started) < 1.0
    except psutil.NoSuchProcess:
        return False


def _machine() -> str:
    """Where process numbers mean the same: host, its boot and its process namespace."""
    parts = [socket.gethostname()]
    with suppress(OSError):
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    with suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/pid"))
    return "/".join(parts)


def _described(row: LeaseRow) -> str:
    since = datetime.fromtimestamp(row.since, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return f"{row.holder} on {row.host} (process {row.pid}) since {since}"


def _conflict(row: LeaseRow) -> StoreConflict:
    return StoreConflict(
        f"lineage {row.family} is being written by {_described(row)}: wait for it to end, or stop it and run again "
        f"(a lease without a heartbeat for {TIME_TO_LIVE:.0f} s is taken over)"
    )
