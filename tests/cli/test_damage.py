"""What a run stands on is damaged or has no room: one sentence, and the same command goes on once it is mended."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from loop.app import first_pair, open_contract, open_loop, open_store
from loop.cli.progress import TerminalProgress
from loop.pipeline.generation import plant
from loop.settings import load_settings
from tests.cli.test_bad_input import COMMAND, one_sentence
from tests.engines.tiny import save_tiny

ROOT = Path(__file__).parents[2]
RUN = (COMMAND, "run", "--generation", "0", "--json")
SETTINGS = """
base = {base}
profile = "small"
tracking_uri = "off"
workers = 1
environments = [{{ use = "tools" }}]
sizes.collect = {{ samples = 2, shard_tasks = 2, tasks = {{ tools = 2 }} }}
sizes.examine = {{ shard_tasks = 5, diversity_tasks = 1, diversity_samples = 2, routes = 4, tasks = {{ tools = 5 }} }}
sizes.gate = {{ draws = 200 }}
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with settings for the smallest plan, on a tiny model with random weights."""
    base = save_tiny(tmp_path / "tiny")
    config = base / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"max_position_embeddings": 4096}))
    home = tmp_path / "home"
    home.mkdir()
    (home / "macaron.toml").write_text(SETTINGS.format(base=json.dumps(str(base))))
    return home


def call(home: Path, *command: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command in ``home`` with its state there."""
    environment = os.environ | {"MACARON_HOME": str(home)} | variables
    return subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, timeout=300)


def ends_with(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    """The exit code, no traceback, and a last line with these words."""
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    last = done.stderr.strip().splitlines()[-1]
    for word in words:
        assert word in last, done.stderr


def flip(file: Path) -> bytes:
    """Change one byte in the middle of a file; what the file held before."""
    before = file.read_bytes()
    file.chmod(0o644)
    middle = len(before) // 2
    file.write_bytes(before[:middle] + bytes([before[middle] ^ 1]) + before[middle + 1 :])
    return before


def attempts(home: Path) -> list[tuple[str, str]]:
    """What is recorded, by stage and key."""
    with sqlite3.connect(home / "loop.db") as database:
        return database.execute("select stage, key from steps order by stage, key").fetchall()


@pytest.mark.parametrize("name", ["model.safetensors", "adapter_model.safetensors"])
def test_a_torn_blob_stops_the_run_and_a_mended_one_lets_it_go_on(home: Path, name: str) -> None:
    settings = load_settings(home / "macaron.toml").model_copy(update={"home": home})
    store = open_store(settings)
    with open_loop(settings, store, open_contract(settings), TerminalProgress(Console(quiet=True))) as parts:
        plant(parts, first_pair(settings, parts), settings.seed)
    file = next((home / "blobs").rglob(name))
    before = flip(file)
    ends_with(call(home, *RUN), 1, file.parent.name[:8])
    kept = attempts(home)
    file.write_bytes(before)
    done = call(home, *RUN)
    assert done.returncode == 0, done.stderr
    assert set(kept) <= set(attempts(home))


def test_an_edited_contract_is_refused_before_anything_runs(home: Path) -> None:
    copy = home / "checkout"
    for folder in ("loop", "contracts", "harnesses"):
        shutil.copytree(ROOT / folder, copy / folder)
    edited = next((copy / "contracts" / "v1").glob("*.toml"))
    edited.write_text(edited.read_text() + "\n# a small change\n")
    command = (sys.executable, "-m", "loop.cli.main", "run", "--generation", "0")
    done = call(home, *command, PYTHONPATH=str(copy))
    one_sentence(done, 2, "v1", edited.name)
    assert not (home / "loop.db").exists() or attempts(home) == []


def test_a_full_disk_stops_the_run_and_room_lets_it_go_on(home: Path) -> None:
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("needs unshare (util-linux) to mount a small tmpfs privately")
    flags = ["--mount"] if os.getuid() == 0 else ["--mount", "--map-root-user"]
    disk = home / "disk"
    disk.mkdir()
    mount = f"mount -t tmpfs -o size=64m tmpfs {disk}"
    if subprocess.run([unshare, *flags, "sh", "-c", mount], capture_output=True).returncode != 0:
        pytest.skip("this machine does not permit mounting a tmpfs privately")
    script = f"""
        {mount} && export MACARON_HOME={disk} && {COMMAND} base prepare > prepared 2>&1 &&
        {COMMAND} db upgrade > upgraded 2>&1 || exit 90
        cat /dev/zero > {disk}/ballast 2>/dev/null
        {" ".join(RUN)} > full.out 2> full.err; echo $? > full.code
        rm {disk}/ballast
        {" ".join(RUN)} > freed.out 2> freed.err; echo $? > freed.code
    """
    done = call(home, unshare, *flags, "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    assert (home / "full.code").read_text().strip() == "1", (home / "full.err").read_text()
    said = (home / "full.err").read_text()
    assert "Traceback" not in said
    assert "disk full at" in said.strip().splitlines()[-1]
    assert (home / "freed.code").read_text().strip() == "0", (home / "freed.err").read_text()
    assert json.loads((home / "freed.out").read_text())["generations"][-1]["number"] == 1
