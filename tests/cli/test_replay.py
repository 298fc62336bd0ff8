"""Manifest, noise and replay at the command line, on a real tiny model that really plays again."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_bad_input import COMMAND, one_sentence, run
from tests.cli.test_damage import ROOT, RUN, SETTINGS, call
from tests.engines.tiny import save_tiny


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with one examined generation of a tiny model with random weights, and its manifest."""
    folder = tmp_path_factory.mktemp("replay")
    base = save_tiny(folder / "tiny")
    config = base / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"max_position_embeddings": 4096}))
    home = folder / "home"
    home.mkdir()
    (home / "macaron.toml").write_text(SETTINGS.format(base=json.dumps(str(base))))
    grown = call(home, *RUN)
    assert grown.returncode == 0, grown.stderr
    digest = json.loads(grown.stdout)["generations"][0]["digest"]
    written = call(home, COMMAND, "manifest", digest[:12], "--out", "manifest.json")
    assert written.returncode == 0 and digest[:12] in written.stdout, written.stderr
    yield home


def test_an_exam_played_again_here_is_equal_and_in_the_ledger(home: Path) -> None:
    measured = call(home, COMMAND, "noise", "--cases", "3", "--json")
    assert measured.returncode == 0, measured.stderr
    assert json.loads(measured.stdout)["cases"] == 3
    done = call(home, COMMAND, "replay", "manifest.json", COLUMNS="80")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "EQUAL" and max(map(len, lines)) <= 80
    again = json.loads(call(home, COMMAND, "replay", "manifest.json", "--json").stdout)
    # five cases; random weights pass nothing, so nothing is trained and parent and child are one pair
    assert (again["verdict"], again["episodes"], again["dependencies"]) == ("EQUAL", 5, [])
    assert again["floor"]["cases"] == 3
    ledger = json.loads(call(home, COMMAND, "holdout", "ledger", "--json").stdout)
    replays = [row for row in ledger if row["why"].startswith("replay of")]
    assert [row["times"] for row in replays] == [2]
    lineage = json.loads(call(home, COMMAND, "lineage", "--json").stdout)
    assert [row["number"] for row in lineage] == [0, 1]


def test_a_changed_scoring_rule_is_different_exits_1_and_names_the_code(home: Path) -> None:
    copy = home / "checkout"
    for folder in ("loop", "contracts", "harnesses", "migrations"):
        shutil.copytree(ROOT / folder, copy / folder)
    scoring = copy / "loop" / "core" / "score.py"
    before = scoring.read_text()
    scoring.write_text(before.replace("return 100.0 *", "return 50.0 *"))
    assert scoring.read_text() != before
    command = (sys.executable, "-m", "loop.cli.main", "replay", "manifest.json")
    done = call(home, *command, PYTHONPATH=str(copy), COLUMNS="80")
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout.startswith("DIFFERENT") and "code: " in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "Traceback" not in done.stderr


def test_a_manifest_printed_is_the_one_written_and_names_no_path(home: Path) -> None:
    written = json.loads((home / "manifest.json").read_text())
    printed = json.loads(call(home, COMMAND, "manifest", written["generation"][:12]).stdout)
    assert {**printed, "floor": None, "digest": ""} == {**written, "floor": None, "digest": ""}
    assert str(home.parent) not in json.dumps(printed)


def test_what_is_no_manifest_is_one_sentence(home: Path) -> None:
    one_sentence(call(home, COMMAND, "replay", "nowhere.json"), 2, "nowhere.json")
    (home / "list.json").write_text("[1]")
    one_sentence(call(home, COMMAND, "replay", "list.json"), 2, "list.json", "no manifest")
    fields = json.loads((home / "manifest.json").read_text())
    (home / "edited.json").write_text(json.dumps(fields | {"tasks": "0" * 64}))
    one_sentence(call(home, COMMAND, "replay", "edited.json"), 2, "changed after it was written")
    one_sentence(call(home, COMMAND, "manifest", "0"), 2, "never examined")


def test_another_store_does_not_know_the_generation(home: Path, tmp_path: Path) -> None:
    shutil.copy(home / "manifest.json", tmp_path)
    one_sentence(run(tmp_path, "replay", "manifest.json"), 2, "no generation has the digest")
    one_sentence(run(tmp_path, "noise"), 2, "no examined generation")


def test_the_help_of_each_fits_80_columns(home: Path) -> None:
    for command in ("manifest", "replay", "noise"):
        done = call(home, COMMAND, command, "--help", COLUMNS="80")
        assert done.returncode == 0 and max(map(len, done.stdout.splitlines())) <= 80
