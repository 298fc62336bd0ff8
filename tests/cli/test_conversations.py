"""Consent, export and deletion at the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loop.app import open_living
from loop.environments.living import read_export
from loop.settings import Settings
from loop.store.living import SqlLiving
from tests.cli.test_bad_input import one_sentence, run
from tests.serve.test_export import said


@pytest.fixture
def living(tmp_path: Path) -> SqlLiving:
    return open_living(Settings(home=tmp_path))


def test_consent_is_recorded_shown_and_withdrawn_with_all_that_was_made_under_it(
    tmp_path: Path, living: SqlLiving
) -> None:
    assert "never agreed" in run(tmp_path, "consent", "show", "--owner", "ana").stdout
    granted = run(tmp_path, "consent", "grant", "--owner", "ana", "--terms", "2026-12", "--who", "support")
    assert granted.returncode == 0 and "to terms 2026-12" in granted.stdout
    kept = said(living.url, "ana", ("Mail ana@example.org", "Done."))
    dropped = said(living.url, "ana", ("A second one", "Yes."))
    file = tmp_path / "export.json"
    shown = run(tmp_path, "conversations", "export", "export.json").stdout
    assert "episodes 2, of owners 1" in shown and "EMAIL 1" in shown
    assert file.stat().st_mode & 0o077 == 0 and "ana@example.org" not in file.read_text()
    listed = run(tmp_path, "conversations", "list", "--owner", "ana", COLUMNS="80").stdout
    assert listed.count("turns 1, covered by consent, exported 1") == 2
    done = run(tmp_path, "conversations", "forget", dropped, "--owner", "ana")
    assert "deleted: turns 1, of ana" in done.stdout and "erased: exported episodes 1" in done.stdout
    (episode,) = read_export(file).episodes
    assert episode.turns[0].content == "Mail [EMAIL_1]"
    ended = json.loads(run(tmp_path, "consent", "withdraw", "--owner", "ana", "--json").stdout)
    assert ended["erased"]["exported"] == 1 and not ended["consent"]["held"]
    assert read_export(file).episodes == () and [talk.opening for talk in living.talks("ana")] == [kept]
    history = run(tmp_path, "consent", "show", "--owner", "ana").stdout.splitlines()
    assert "granted, terms 2026-12, entered by support" in history[0] and "withdrawn" in history[1]


def test_an_opt_out_keeps_the_conversation_and_nothing_of_it_is_exported(tmp_path: Path, living: SqlLiving) -> None:
    living.decide("ana", True, "1", "test")
    turn = said(living.url, "ana", ("Secret plans", "Yes."))
    run(tmp_path, "conversations", "export", "export.json")
    (tmp_path / "export.json").unlink()
    done = run(tmp_path, "conversations", "opt-out", turn, "--owner", "ana")
    assert done.returncode == 0 and "not reached" in done.stdout
    assert "episodes 0," in run(tmp_path, "conversations", "export", "export.json").stdout
    assert "opted out" in run(tmp_path, "conversations", "list", "--owner", "ana").stdout
    everything = run(tmp_path, "conversations", "forget", "--all", "--owner", "ana")
    assert "turns 1" in everything.stdout and living.talks("ana") == ()


def test_bad_input_is_one_sentence(tmp_path: Path, living: SqlLiving) -> None:
    turn = said(living.url, "ana", ("Hello", "Hi."))
    for arguments, words in {
        ("conversations", "export", "e.json", "--owner", "ana"): ("does not consent", "consent grant"),
        ("conversations", "forget", turn, "--owner", "bob"): ("there is no turn", "of bob"),
        ("conversations", "forget", "--owner", "ana"): ("--all",),
        ("conversations", "opt-out", "turn_0", "--owner", "ana"): ("there is no turn",),
        ("conversations", "export", "none/e.json"): ("cannot write", "none/e.json"),
        ("consent", "grant", "--owner", "ana", "--terms", " "): ("--terms",),
        ("consent", "show", "--owner", "../x"): ("--owner",),
    }.items():
        one_sentence(run(tmp_path, *arguments), 2, *words)
