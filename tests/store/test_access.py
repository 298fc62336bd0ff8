"""Keys in the store: hashed, ended, and counted right however many servers share them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text

from loop.core.access import Access, Exhausted, Grant, Quota, Scope
from loop.store.access import SqlAccess
from loop.store.database import reading

NOON = datetime(2026, 12, 3, 12, tzinfo=UTC)
CHAT = (Scope.CHAT,)


@dataclass
class Clock:
    """A clock that stands until it is moved."""

    at: datetime = NOON

    def __call__(self, session: object) -> float:
        return self.at.timestamp()

    def passes(self, **time: float) -> None:
        self.at += timedelta(**time)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def access(url: str, clock: Clock) -> SqlAccess:
    return SqlAccess(url, clock)


def held(access: SqlAccess, quota: Quota | None = None, owner: str = "ana", **until: datetime) -> Grant:
    """The grant of a new key, as a server gets it."""
    secret, _ = access.create(owner, CHAT, quota or Quota(), **until)
    return access.grant(secret)


def refused(attempt: Callable[[], None]) -> float:
    """In how many seconds the refused caller may try again."""
    with pytest.raises(Exhausted) as error:
        attempt()
    return error.value.retry_after


def test_a_key_opens_what_it_was_made_for(access: SqlAccess) -> None:
    server: Access = access
    quota = Quota(requests_per_minute=3, tokens_per_day=100)
    secret, key = access.create("ana", (Scope.CHAT, Scope.OWNER), quota)
    grant = server.grant(secret)
    assert (grant.owner, grant.scopes, grant.quota) == ("ana", (Scope.CHAT, Scope.OWNER), quota)
    assert grant == key.grant and access.issued() == (key,)
    other, _ = access.create("bob", CHAT, Quota())
    assert access.grant(other).owner == "bob" and [k.grant.owner for k in access.issued("ana")] == ["ana"]


def test_the_secret_is_random_and_kept_as_a_hash_alone(access: SqlAccess) -> None:
    made = [access.create("ana", CHAT, Quota()) for _ in range(50)]
    secrets = {secret for secret, _ in made}
    # 43 letters of 64 carry 258 bits
    assert len(secrets) == 50 and all(s.startswith("mcl_") and len(s) == 47 for s in secrets)
    with reading(access.url) as session:
        rows = [tuple(row) for row in session.connection().execute(text("SELECT * FROM keys"))]
    stored = " ".join(str(value) for row in rows for value in row)
    for secret, key in made:
        assert secret.removeprefix("mcl_") not in stored and secret not in repr(key)
        assert hashlib.sha256(secret.encode()).hexdigest() in stored


def test_what_is_unknown_revoked_or_expired_opens_nothing_and_is_not_repeated(access: SqlAccess, clock: Clock) -> None:
    revoked, key = access.create("ana", CHAT, Quota())
    ending, _ = access.create("ana", CHAT, Quota(), NOON + timedelta(days=1))
    assert access.grant(ending).owner == "ana"
    assert access.revoke(key.grant.key).revoked == "2026-12-03T12:00:00.000Z"
    clock.passes(days=1)
    assert access.revoke(key.grant.key).revoked == "2026-12-03T12:00:00.000Z"
    stored = hashlib.sha256(ending.encode()).hexdigest()
    for bad in (revoked, ending, stored, "mcl_", "", "mcl_" + "a" * 43, "' OR 1=1 --", "\x00", "ü" * 9000, "\udc80"):
        with pytest.raises(LookupError, match="unknown, expired or revoked") as error:
            access.grant(bad)
        assert not bad or bad not in str(error.value)
    with pytest.raises(LookupError, match="no key 'key_0'"):
        access.revoke("key_0")


def test_a_rate_holds_in_any_sixty_seconds(access: SqlAccess, clock: Clock) -> None:
    grant = held(access, Quota(requests_per_minute=2))
    access.begin(grant)
    clock.passes(seconds=50)
    access.begin(grant)
    # the first leaves the minute in 10 s: a window that began afresh at 13:00:00 would let two more through
    assert refused(lambda: access.begin(grant)) == pytest.approx(10)
    clock.passes(seconds=10)
    access.begin(grant)
    assert refused(lambda: access.begin(grant)) == pytest.approx(50)


def test_the_days_tokens_end_at_midnight_utc(access: SqlAccess, clock: Clock) -> None:
    grant = held(access, Quota(tokens_per_day=100))
    access.begin(grant)
    access.spend(grant, 99)
    access.begin(grant)
    access.spend(grant, 30)
    assert [key.tokens_today for key in access.issued()] == [129]
    clock.passes(hours=11)
    assert refused(lambda: access.begin(grant)) == pytest.approx(3600)
    clock.passes(hours=1)
    access.begin(grant)
    assert [(key.tokens_today, key.used) for key in access.issued()] == [(0, "2026-12-04T00:00:00.000Z")]


def test_when_a_key_was_last_used_is_right_to_a_minute(access: SqlAccess, clock: Clock) -> None:
    grant = held(access)
    assert access.issued()[0].used is None
    for seconds, used in ((0, "12:00:00"), (59, "12:00:00"), (1, "12:01:00"), (3600, "13:01:00")):
        clock.passes(seconds=seconds)
        access.begin(grant)
        assert access.issued()[0].used == f"2026-12-03T{used}.000Z"


def test_one_key_does_not_spend_anothers(access: SqlAccess) -> None:
    quota = Quota(requests_per_minute=1, tokens_per_day=10)
    mine, other = held(access, quota), held(access, quota, "bob")
    access.begin(mine)
    access.spend(mine, 10)
    refused(lambda: access.begin(mine))
    access.begin(other)


def test_servers_that_count_at_once_let_through_exactly_what_is_allowed(url: str) -> None:
    made = SqlAccess(url)
    grant = held(made, Quota(requests_per_minute=20))

    def ask(number: int) -> bool:
        server = replace(made)
        try:
            server.begin(grant)
        except Exhausted:
            return False
        server.spend(grant, number)
        return True

    with ThreadPoolExecutor(8) as pool:
        through = [number for number, passed in enumerate(pool.map(ask, range(60))) if passed]
    assert len(through) == 20
    assert [key.tokens_today for key in made.issued()] == [sum(through)]
