"""`nightly` as a timer starts it: exit codes, the post-mortem's file, the webhook, signals, one at a time."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from loop.app import open_store
from loop.core.night import Ending, Night
from loop.settings import Settings
from tests.cli import test_damage
from tests.cli.test_bad_input import COMMAND, one_sentence, run
from tests.cli.test_webhook import SECRET, listening
from tests.store import lineage

home = test_damage.home
NIGHTLY = (COMMAND, "nightly", "--json", "--pause", "0")


def clock(hours: float) -> str:
    """The wall-clock time that many hours from now, as people write it."""
    return (datetime.now() + timedelta(hours=hours)).strftime("%H:%M")


def kept(home: Path) -> list[dict[str, Any]]:
    """The post-mortems in the home, in the order of their numbers."""
    files = sorted((home / "nightly").glob("*.json"), key=lambda path: (len(path.name), path.name))
    return [json.loads(file.read_text()) for file in files]


def test_outside_its_window_it_starts_nothing_and_says_when_it_would(tmp_path: Path) -> None:
    window = f"{clock(2)}-{clock(3)}"
    done = run(tmp_path, "nightly", "--window", window, "--webhook", "http://127.0.0.1:9/x")
    assert done.returncode == 13 and window in done.stdout and done.stderr == ""
    assert list(tmp_path.iterdir()) == []
    assert run(tmp_path, "nightly", "--window", window, "--exit-zero").returncode == 0


def test_a_missed_start_is_skipped_and_starts_nothing(tmp_path: Path) -> None:
    start = clock(-2)  # asked once: the minute may turn while the command runs
    done = run(tmp_path, "nightly", "--at", start)
    assert done.returncode == 11 and start in done.stdout and "--misfire run" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--window", "22"), ("22:00-06:00",)),
        (("--at", "25:00"), ("25:00",)),
        (("--timezone", "Berlin"), ("Berlin", "IANA")),
        (("--max-judge-cost", "5"), ("--judge-price",)),
        (("--webhook", "env:NO_SUCH_HOOK"), ("NO_SUCH_HOOK",)),
    ],
)
def test_bad_options_are_refused_in_one_sentence(
    tmp_path: Path, options: tuple[str, ...], words: tuple[str, ...]
) -> None:
    one_sentence(run(tmp_path, "nightly", *options), 2, *words)


def test_a_held_lineage_is_told_of_everywhere_and_the_webhook_changes_no_exit_code(tmp_path: Path) -> None:
    store = open_store(Settings(home=tmp_path))
    with store.lease("main", "a long run"), listening(200) as server:
        told = run(tmp_path, "nightly", "--json", "--webhook", "env:HOOK", HOOK=server.url)
        server.statuses = [404]
        untold = run(tmp_path, "nightly", "--json", "--webhook", "env:HOOK", HOOK=server.url)
    assert [told.returncode, untold.returncode] == [3, 3]
    assert "404" in untold.stderr and "env:HOOK" in untold.stderr
    assert SECRET not in told.stdout + told.stderr + untold.stdout + untold.stderr
    first, second = kept(tmp_path)
    assert first["ending"] == second["ending"] == Ending.HELD and "a long run" in first["text"]
    assert str(os.getpid()) in first["text"] and socket.gethostname() in first["text"]
    (_, message), _ = server.taken
    assert message["night"] == first == json.loads(told.stdout)
    assert str(message["text"]).startswith("macaron-loop main: held by another run.")
    assert store.load(Night, first["digest"]).text == first["text"]


def test_settings_that_changed_under_an_unfinished_attempt_are_told_of(tmp_path: Path) -> None:
    store = open_store(Settings(home=tmp_path))
    root = lineage.root()
    store.register(root, None)
    store.begin(lineage.FAMILY, root, lineage.plan())
    done = run(tmp_path, "nightly", COLUMNS="80")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "unfinished attempt under other settings" in " ".join(done.stdout.split())
    assert max(map(len, done.stdout.splitlines())) <= 80
    (night,) = kept(tmp_path)
    assert night["ending"] == Ending.REFUSED and night["tries"] == 1 and "--fresh" in night["text"]


def start(home: Path, *options: str) -> subprocess.Popen[str]:
    """A night on the tiny model as a process group of its own."""
    environment = os.environ | {"MACARON_HOME": str(home)}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [*NIGHTLY, *options], cwd=home, env=environment, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    )


def reach(process: subprocess.Popen[str], said: Callable[[str], bool]) -> None:
    """Wait until its progress says so."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if said(line):
            return
    raise AssertionError("".join(lines))


@pytest.fixture
def digest(home: Path) -> str:
    """The digest of generation 1 where nothing interferes; ``home`` then holds generation 0 alone."""
    undisturbed = home.parent / "undisturbed"
    shutil.copytree(home, undisturbed)
    done = test_damage.call(undisturbed, *test_damage.RUN)
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["generations"][-1]["digest"])


def test_killed_terminated_and_short_of_budget_the_nights_reach_the_undisturbed_digest(home: Path, digest: str) -> None:
    killed = start(home)
    reach(killed, lambda line: "collect: " in line)
    os.killpg(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL and kept(home) == []

    terminated = start(home)
    reach(terminated, lambda line: "score: " in line)
    terminated.send_signal(signal.SIGTERM)
    out, _ = terminated.communicate(timeout=120)
    assert terminated.returncode == 130 and json.loads(out)["ending"] == Ending.INTERRUPTED

    codes = []
    while not codes or codes[-1] == 12:
        done = test_damage.call(home, *NIGHTLY, "--max-tokens", "1")
        assert "Traceback" not in done.stderr, done.stderr
        codes.append(done.returncode)
    assert codes[:-1] and set(codes[:-1]) == {12} and codes[-1] in (0, 10)
    nights = kept(home)
    assert [night["ending"].exit_code for night in map(_typed, nights)] == [130, *codes]
    assert len({night["attempt"] for night in nights}) == 1
    assert nights[-1]["generation"] == digest


def _typed(night: dict[str, Any]) -> dict[str, Any]:
    return night | {"ending": Ending(night["ending"])}


def test_of_two_that_a_timer_starts_together_exactly_one_runs(home: Path, digest: str) -> None:
    both = [start(home) for _ in range(2)]
    said = [process.communicate(timeout=300) for process in both]
    codes = [process.returncode for process in both]
    assert codes.count(3) == 1 and set(codes) <= {0, 3, 10}, said
    winner = both[1 - codes.index(3)]
    assert f"process {winner.pid}" in json.loads(said[codes.index(3)][0])["text"]
    assert json.loads(said[1 - codes.index(3)][0])["generation"] == digest
