"""Keys at the command line: shown once, listed without their secret, ended."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from loop.app import open_access
from loop.cli.keys import _moment
from loop.core.access import Scope
from loop.settings import Settings
from tests.cli.test_bad_input import one_sentence, run


def test_a_key_is_made_listed_and_revoked(tmp_path: Path) -> None:
    limits = ("--requests-per-minute", "60", "--tokens-per-day", "2000000", "--expires", "30d")
    made = run(tmp_path, "keys", "create", "--owner", "ana@example.org", "--scope", "chat", "--scope", "owner", *limits)
    secret = made.stdout.strip()
    access = open_access(Settings(home=tmp_path))
    grant = access.grant(secret)
    assert (grant.owner, grant.scopes) == ("ana@example.org", (Scope.CHAT, Scope.OWNER))
    access.spend(grant, 1_234_567)
    second = json.loads(run(tmp_path, "keys", "create", "--owner", "bob", "--json").stdout)
    assert access.grant(second["secret"]).key == second["key"]["grant"]["key"]
    shown = run(tmp_path, "keys", "list", COLUMNS="80").stdout
    assert max(map(len, shown.splitlines())) <= 80 and secret not in shown
    for part in (grant.key, "of bob: chat\n", "1,234,567 of 2,000,000 tokens", "chat, owner", "never used"):
        assert part in shown
    ended = run(tmp_path, "keys", "revoke", grant.key)
    assert ended.returncode == 0 and "ana@example.org is revoked since 20" in ended.stdout
    with pytest.raises(LookupError):
        access.grant(secret)
    listed = json.loads(run(tmp_path, "keys", "list", "--owner", "ana@example.org", "--json").stdout)
    assert [key["grant"]["key"] for key in listed] == [grant.key] and listed[0]["revoked"]
    assert secret not in json.dumps(listed)


def test_bad_input_is_one_sentence_and_a_secret_is_not_repeated(tmp_path: Path) -> None:
    for arguments, words in {
        ("create", "--owner", "../ana"): ("--owner", "letters"),
        ("create", "--owner", "ana", "--scope", "all"): ("'all'", "metrics"),
        ("create", "--owner", "ana", "--expires", "2020-01-01"): ("over already",),
        ("create", "--owner", "ana", "--expires", "soon"): ("'soon'", "30d"),
        ("create", "--owner", "ana", "--expires", "99999d9"): ("99999d9",),
        ("revoke", "key_0123456789abcdef"): ("no key 'key_0123456789abcdef'",),
    }.items():
        one_sentence(run(tmp_path, "keys", *arguments), 2, *words)
    done = run(tmp_path, "keys", "revoke", "mcl_secret")
    one_sentence(done, 2, "no key's id")
    assert "mcl_secret" not in done.stderr
    assert run(tmp_path, "keys", "list").stdout.startswith("there is no key")


def test_an_end_without_a_zone_is_in_utc() -> None:
    noon = datetime(2026, 12, 3, 12, tzinfo=UTC)
    assert _moment("2027-01-31", noon) == datetime(2027, 1, 31, tzinfo=UTC)
    assert _moment("2027-01-31T10:00+02:00", noon) == datetime(2027, 1, 31, 8, tzinfo=UTC)
    assert _moment("30d", noon) - noon == timedelta(days=30)
