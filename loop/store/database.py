"""Connections: one engine per URL and process, and what a database error means to a person."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, NoSuchModuleError, OperationalError
from sqlmodel import Session

from loop.core.errors import StageFailed, StoreConflict, UserError

BUSY_SECONDS = 30
_DISK_FULL = "53100"
_SPARE_BYTES = 1 << 20

_engines: dict[tuple[str, int], Engine] = {}


def now() -> str:
    """The time in UTC as ISO 8601, to the millisecond: sorts as text."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def account() -> str:
    """Who runs this process, by the name of the account."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def who() -> str:
    """The account, machine and process, as the ledgers name them."""
    return f"{account()}@{socket.gethostname()} (process {os.getpid()})"


def parse_url(url: str) -> URL:
    """A database URL with its driver; UserError for what is neither SQLite nor PostgreSQL."""
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise UserError(f"database URL {url!r} cannot be read: expected sqlite:///PATH or postgresql://...") from error
    backend = parsed.get_backend_name()
    if backend not in ("sqlite", "postgresql") or (backend == "sqlite" and not parsed.database):
        raise UserError(
            f"database URL {shown(parsed)} is not supported: expected sqlite:///PATH or postgresql+psycopg://..."
        )
    return parsed.set(drivername="postgresql+psycopg") if backend == "postgresql" else parsed


def shown(url: URL | str) -> str:
    """A database URL without its password."""
    return make_url(url).render_as_string(hide_password=True)


def sqlite_path(url: str) -> Path | None:
    """The file of an SQLite URL; None for PostgreSQL."""
    parsed = parse_url(url)
    return Path(str(parsed.database)).absolute() if parsed.get_backend_name() == "sqlite" else None


def engine_for(url: str) -> Engine:
    """The engine of this process; a forked child gets its own connections."""
    key = (url, os.getpid())
    if key not in _engines:
        _engines[key] = _make_engine(url)
    return _engines[key]


def _make_engine(url: str) -> Engine:
    parsed, path = parse_url(url), sqlite_path(url)
    if path is None:
        arguments: dict[str, Any] = {"connect_timeout": 10, "application_name": "macaron-loop"}
    else:
        arguments = {"timeout": BUSY_SECONDS, "check_same_thread": False}
    try:
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        engine = create_engine(parsed, pool_pre_ping=True, connect_args=arguments)
    except (NoSuchModuleError, ImportError) as error:
        raise UserError(f"no driver for {shown(parsed)}: install psycopg[binary]") from error
    except OSError as error:
        raise UserError(f"cannot make the folder of {shown(parsed)} ({error.strerror}): choose another path") from error
    if path is not None:
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, record: object) -> None:
    """Transactions begin where we say (the driver would begin them late); commits reach the disk.

    What is deleted is overwritten: people ask for that.
    """
    connection.isolation_level = None
    for pragma in (f"busy_timeout={BUSY_SECONDS * 1000}", "foreign_keys=ON", "synchronous=FULL", "secure_delete=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: Connection) -> None:
    """A writer takes the lock at once: upgrading a read transaction later could only fail."""
    write = connection.get_execution_options().get("write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


@contextmanager
def reading(url: str) -> Iterator[Session]:
    """A session that reads one consistent state."""
    with explained(url), Session(engine_for(url), expire_on_commit=False) as session, session.begin():
        yield session


@contextmanager
def writing(url: str) -> Iterator[Session]:
    """One transaction: all of it is durable at the end, or none of it after an error."""
    engine = engine_for(url).execution_options(write=True)
    with explained(url), Session(engine, expire_on_commit=False) as session, session.begin():
        yield session


@contextmanager
def explained(url: str) -> Iterator[None]:
    """Database failures as sentences: full disk, held lock, no server; others pass as they are."""
    try:
        yield
    except OperationalError as error:
        text = str(error.orig)
        if _is_full(url, error, text):
            where = sqlite_path(url) or shown(parse_url(url))
            raise StageFailed(f"disk full at {where}: free space and run again, nothing was lost") from error
        if "database is locked" in text:
            raise StoreConflict(
                f"database {sqlite_path(url)} was locked by another process for {BUSY_SECONDS} s: "
                "wait for it to end and run again"
            ) from error
        if error.statement is None:
            raise UserError(
                f"cannot open the database {shown(parse_url(url))} ({' '.join(text.split())}): "
                "check the URL and that the server runs"
            ) from error
        if "readonly database" in text:
            raise UserError(f"database {sqlite_path(url)} is read-only: make it writable or choose another") from error
        raise
    except DatabaseError as error:
        if "not a database" not in str(error.orig):
            raise
        raise UserError(f"{sqlite_path(url)} is not an SQLite database: choose another path") from error


def _is_full(url: str, error: OperationalError, text: str) -> bool:
    if getattr(error.orig, "sqlstate", None) == _DISK_FULL or "disk is full" in text:
        return True
    # On a full disk SQLite may fail on its own side files, and then names only the symptom.
    path = sqlite_path(url)
    symptom = "disk I/O error" in text or "unable to open" in text
    return path is not None and symptom and shutil.disk_usage(path.parent).free < _SPARE_BYTES


def empty_log(url: str) -> None:
    """Bring an SQLite database's write-ahead log into its file, so that nothing deleted is left in it.

    Other connections may hold it up; PostgreSQL overwrites what was deleted as its own VACUUM comes to it.
    """
    if sqlite_path(url) is not None:
        with engine_for(url).connect() as connection:
            raw = connection.connection.dbapi_connection
            assert raw is not None
            raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def dispose(url: str) -> None:
    """Close this process's connections to a database; the next use opens new ones."""
    engine = _engines.pop((url, os.getpid()), None)
    if engine is not None:
        engine.dispose()
