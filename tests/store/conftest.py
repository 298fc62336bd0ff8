"""Each test gets an empty, migrated database: once on SQLite, once on PostgreSQL."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from loop.store.blobs import FsBlobs
from loop.store.database import dispose
from loop.store.migrate import upgrade
from loop.store.sql import SqlStore
from tests.store.server import find_binaries, server

_names = itertools.count()


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of a running server, with ``{name}`` for the database."""
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL server binaries found (apt-get install postgresql)")
    with server(binaries) as url:
        yield url


def _execute(postgres: str, statement: str) -> None:
    host = postgres.split("host=")[1]
    with psycopg.connect(host=host, user="tester", dbname="postgres", autocommit=True) as connection:
        connection.execute(statement)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file to copy: tests start in milliseconds."""
    path = tmp_path_factory.mktemp("template") / "loop.db"
    upgrade(f"sqlite:///{path}")
    dispose(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def postgres_template(postgres: str) -> str:
    """The name of a migrated PostgreSQL database to copy."""
    _execute(postgres, "CREATE DATABASE migrated")
    upgrade(postgres.format(name="migrated"))
    dispose(postgres.format(name="migrated"))
    return "migrated"


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database without tables."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'loop.db'}"
    else:
        postgres, name = request.getfixturevalue("postgres"), f"empty{next(_names)}"
        _execute(postgres, f"CREATE DATABASE {name}")
        url = postgres.format(name=name)
    yield url
    dispose(url)
    if request.param == "postgresql":
        _execute(postgres, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A migrated database."""
    if request.param == "sqlite":
        shutil.copy(request.getfixturevalue("sqlite_template"), tmp_path / "loop.db")
        url = f"sqlite:///{tmp_path / 'loop.db'}"
    else:
        postgres, name = request.getfixturevalue("postgres"), f"copy{next(_names)}"
        _execute(postgres, f"CREATE DATABASE {name} TEMPLATE {request.getfixturevalue('postgres_template')}")
        url = postgres.format(name=name)
    yield url
    dispose(url)
    if request.param == "postgresql":
        _execute(postgres, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def blobs(tmp_path: Path) -> FsBlobs:
    """Blobs in a fresh folder."""
    return FsBlobs(url=str(tmp_path / "blobs"))


@pytest.fixture
def store(url: str, blobs: FsBlobs) -> SqlStore:
    """A store on a fresh database."""
    return SqlStore(url, blobs)
