"""Schema migrations: the only way tables are made, one process at a time."""

from __future__ import annotations

import fcntl
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

import loop
from loop.core.errors import UserError
from loop.store.database import engine_for, explained, shown, sqlite_path
from loop.store.schema import METADATA

# Any fixed number: it names our advisory lock among those of a PostgreSQL server.
ADVISORY_LOCK = 6_021_340_507
FIRST = "0001_first_tables.py"


def migrations_folder() -> Path:
    """The Alembic folder: what an installed wheel carries, or the one beside ``loop`` in a checkout."""
    package = Path(loop.__file__).resolve().parent
    places = (package / "data", Path(sys.prefix) / "share" / "macaron-loop", package.parent)
    for place in places:
        # Beside an installed package there may be a stranger's folder of this name.
        if (place / "migrations" / "versions" / FIRST).is_file():
            return place / "migrations"
    raise UserError(f"the migrations are missing in {', '.join(map(str, places))}: install macaron-loop again")


def head() -> str:
    """The revision this version of macaron-loop knows as its newest."""
    return str(_scripts().get_current_head())


def current(url: str) -> str | None:
    """The revision a database is at; None before the first migration."""
    with explained(url), engine_for(url).connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def upgrade(url: str) -> None:
    """Bring a database to head under a lock, in one transaction; at head already, one query.

    Raises UserError when it was written by a newer version; then nothing is changed.
    """
    revision = current(url)
    if revision == head():
        return
    _refuse_newer(url, revision)
    with explained(url), locked(url) as connection:
        # Another process may have been quicker: Alembic then finds nothing left to do.
        _refuse_newer(url, MigrationContext.configure(connection).get_current_revision())
        command.upgrade(_config(connection), "head")


def check(url: str) -> None:
    """Raise UserError when the database is not at head or its schema differs from the tables."""
    revision = current(url)
    _refuse_newer(url, revision)
    if revision != head():
        raise UserError(
            f"database {shown(url)} is at revision {revision or 'none'}, expected {head()}: "
            "run `macaron-loop db upgrade`"
        )
    found = differences(url)
    if found:
        raise UserError(
            f"database {shown(url)} differs from this version's tables ({'; '.join(found[:3])}): "
            "restore it, or start a new one"
        )


def differences(url: str) -> tuple[str, ...]:
    """What Alembic's comparison finds between the database and the tables; empty when nothing."""
    with explained(url), engine_for(url).connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        return tuple(str(difference) for difference in compare_metadata(context, METADATA))


def _config(connection: Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())


def _refuse_newer(url: str, revision: str | None) -> None:
    known = {script.revision for script in _scripts().walk_revisions()}
    if revision is not None and revision not in known:
        raise UserError(
            f"database {shown(url)} was written by a newer macaron-loop (revision {revision}, "
            f"this one knows {head()}): upgrade macaron-loop; nothing was changed"
        )


@contextmanager
def locked(url: str) -> Iterator[Connection]:
    """A connection in a write transaction that no other migration can be in at the same time."""
    path = sqlite_path(url)
    engine = engine_for(url).execution_options(write=True)
    if path is None:
        with engine.begin() as connection:
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": ADVISORY_LOCK})
            yield connection
        return
    with open(path.with_name(path.name + ".migrate.lock"), "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # WAL is a property of the file and cannot be set while another connection writes.
        with engine_for(url).connect() as connection:
            raw = connection.connection.dbapi_connection
            assert raw is not None
            raw.execute("PRAGMA journal_mode=WAL")
        with engine.begin() as connection:
            yield connection
