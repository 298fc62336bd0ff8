from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import text

from loop.core.errors import UserError
from loop.store import migrate
from loop.store.blobs import FsBlobs
from loop.store.database import engine_for, writing
from loop.store.sql import SqlStore
from tests.store import children

ROOT = Path(__file__).parents[2]


def test_a_first_use_makes_the_schema_and_a_second_changes_nothing(empty_url: str) -> None:
    assert migrate.current(empty_url) is None
    migrate.upgrade(empty_url)
    assert migrate.current(empty_url) == migrate.head()
    migrate.upgrade(empty_url)
    migrate.check(empty_url)


def test_the_migrations_make_exactly_the_tables_of_the_code(url: str) -> None:
    assert migrate.differences(url) == ()


def test_a_missing_column_is_found_by_check(url: str) -> None:
    with writing(url) as session:
        session.connection().execute(text("ALTER TABLE noise_floors DROP COLUMN cases"))
    with pytest.raises(UserError, match="cases"):
        migrate.check(url)


def test_check_of_a_database_without_tables_says_what_to_run(empty_url: str) -> None:
    with pytest.raises(UserError, match="db upgrade"):
        migrate.check(empty_url)


def test_a_newer_schema_is_refused_in_one_sentence_and_left_alone(url: str, blobs: FsBlobs) -> None:
    with writing(url) as session:
        session.connection().execute(text("UPDATE alembic_version SET version_num = '9999'"))
    for use in (lambda: SqlStore(url, blobs), lambda: migrate.upgrade(url), lambda: migrate.check(url)):
        with pytest.raises(UserError, match=r"newer macaron-loop \(revision 9999, this one knows \w+\).*nothing was"):
            use()
    assert migrate.current(url) == "9999"


def test_first_uses_at_the_same_moment_all_succeed(empty_url: str) -> None:
    processes = [children.start("migrate", empty_url) for _ in range(4)]
    outcomes = [children.finish(process) for process in processes]
    assert [outcome.code for outcome in outcomes] == [0] * 4, outcomes
    migrate.check(empty_url)


def test_a_migration_that_breaks_leaves_no_half_made_schema(empty_url: str) -> None:
    with engine_for(empty_url).execution_options(write=True).begin() as connection:
        connection.execute(text("CREATE TABLE training_rows (x INTEGER)"))
    with pytest.raises(Exception, match="training_rows"):
        migrate.upgrade(empty_url)
    assert migrate.current(empty_url) is None
    with engine_for(empty_url).execution_options(write=True).begin() as connection:
        connection.execute(text("DROP TABLE training_rows"))
    migrate.upgrade(empty_url)
    migrate.check(empty_url)


def test_alembic_check_on_the_command_line_finds_no_difference(url: str) -> None:
    environment = os.environ | {"MACARON_DATABASE_URL": url}
    command = [sys.executable, "-m", "alembic", "check"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "No new upgrade operations detected" in done.stdout


def test_an_sqlite_database_is_in_wal_mode_however_it_was_made(tmp_path: Path) -> None:
    by_code, by_command = tmp_path / "code.db", tmp_path / "command.db"
    migrate.upgrade(f"sqlite:///{by_code}")
    environment = os.environ | {"MACARON_DATABASE_URL": f"sqlite:///{by_command}"}
    command = [sys.executable, "-m", "alembic", "upgrade", "head"]
    subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, check=True, timeout=120)
    for path in (by_code, by_command):
        migrate.check(f"sqlite:///{path}")
        with engine_for(f"sqlite:///{path}").connect() as connection:
            modes = [connection.exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("journal_mode", "foreign_keys")]
            assert modes == ["wal", 1]
            # FULL is 2: a commit reaches the disk
            assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2


def test_the_partial_index_lets_many_rejected_and_one_promoted_share_a_number(url: str) -> None:
    with engine_for(url).connect() as connection:
        query = (
            "SELECT sql FROM sqlite_master WHERE name = 'uq_generations_promoted'"
            if url.startswith("sqlite")
            else "SELECT indexdef FROM pg_indexes WHERE indexname = 'uq_generations_promoted'"
        )
        definition = connection.execute(text(query)).scalar_one()
    assert "UNIQUE" in definition and "WHERE" in definition and "rejected" in definition


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("mysql://u:secret@h/d", "not supported"),
        ("nonsense", "cannot be read"),
        ("sqlite://", "not supported"),
        ("sqlite:////proc/none/loop.db", "cannot make the folder"),
        ("postgresql://u:secret@127.0.0.1:1/d", "cannot open the database"),
    ],
)
def test_a_database_url_that_cannot_work_is_one_sentence_without_the_password(bad: str, says: str) -> None:
    with pytest.raises(UserError, match=says) as error:
        migrate.upgrade(bad)
    assert "secret" not in str(error.value) and "\n" not in str(error.value)


def test_a_file_that_is_no_database_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "loop.db"
    path.write_text("hello " * 1000)
    with pytest.raises(UserError, match="not an SQLite database"):
        migrate.upgrade(f"sqlite:///{path}")
    assert path.read_text() == "hello " * 1000
