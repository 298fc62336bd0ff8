"""Keys in the store: who may ask what, and what was spent, counted for every server of one database.

A secret holds 256 random bits, so that nobody can guess one, nor find it from its hash: plain
SHA-256 is enough, where a password would need a slow hash that every request would wait for. A
key is looked up by that hash; how long that takes tells of the hash at most, never of the secret.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import delete, func
from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import Session, col, select

from loop.core.access import Exhausted, Grant, Key, Quota, Scope
from loop.store import lease
from loop.store.access_tables import KeyDayRow, KeyRequestRow, KeyRow
from loop.store.database import reading, writing

PREFIX = "mcl_"
MINUTE, DAY = 60.0, 86_400.0


@dataclass(frozen=True)
class SqlAccess:
    """The keys of every owner. ``clock`` is the database's, in seconds since 1970: servers need not agree.

    At most ``requests_per_minute`` begin in any 60 seconds. Tokens are counted when a request
    has ended, so that those in flight may pass ``tokens_per_day`` by what they come to.
    """

    url: str
    clock: Callable[[Session], float] = lease.clock

    def create(
        self, owner: str, scopes: tuple[Scope, ...], quota: Quota, expires: datetime | None = None
    ) -> tuple[str, Key]:
        """A new key and its secret, which cannot be read again; ``expires`` has a zone."""
        secret = PREFIX + secrets.token_urlsafe(32)
        grant = Grant(key=f"key_{secrets.token_hex(8)}", owner=owner, scopes=scopes, quota=quota)
        with writing(self.url) as session:
            row = KeyRow(
                id=grant.key,
                secret=_hashed(secret),
                owner=owner,
                at=_text(self.clock(session)),
                expires=None if expires is None else _text(expires.timestamp()),
                document=grant,
            )
            session.add(row)
            return secret, _key(row, 0)

    def issued(self, owner: str | None = None) -> tuple[Key, ...]:
        """The keys of one owner, or all, oldest first, also those that open nothing any more."""
        with reading(self.url) as session:
            today = _day(self.clock(session))
            wanted = select(KeyRow, KeyDayRow.tokens).outerjoin(
                KeyDayRow, (col(KeyDayRow.key) == KeyRow.id) & (col(KeyDayRow.day) == today)
            )
            if owner is not None:
                wanted = wanted.where(KeyRow.owner == owner)
            rows = session.exec(wanted.order_by(col(KeyRow.at), col(KeyRow.id))).all()
            return tuple(_key(row, tokens or 0) for row, tokens in rows)

    def revoke(self, key: str) -> Key:
        """End a key, from its next request on; a second time changes nothing. LookupError when there is none."""
        with writing(self.url) as session:
            row = _locked(session, key)
            row.revoked = row.revoked or _text(self.clock(session))
            session.add(row)
            return _key(row, _spent(session, key, _day(self.clock(session))))

    def grant(self, secret: str) -> Grant:
        """What this key allows; raises LookupError for one that is unknown, expired or revoked."""
        with reading(self.url) as session:
            row = session.exec(select(KeyRow).where(KeyRow.secret == _hashed(secret))).one_or_none()
            if row is None or row.revoked or (row.expires and row.expires <= _text(self.clock(session))):
                raise LookupError("this key is unknown, expired or revoked")
            return row.document

    def begin(self, grant: Grant) -> None:
        """Count one request; raises Exhausted when the key's rate or its day's tokens are spent."""
        with reading(self.url) as session:
            at = self.clock(session)
            _check_tokens(session, grant, at)
            known = session.get(KeyRow, grant.key)
            # A key without a rate writes once a minute that it was used, not at every request.
            noted = known is not None and known.used is not None and known.used > _text(at - MINUTE)
        if noted and grant.quota.requests_per_minute is None:
            return
        with writing(self.url) as session:
            # Whoever has the row counts alone: two servers cannot both take the last request.
            row = _locked(session, grant.key)
            at = self.clock(session)
            _check_rate(session, grant, at)
            row.used = _text(at)
            session.add(row)

    def spend(self, grant: Grant, tokens: int) -> None:
        """Count the tokens that a request came to."""
        with writing(self.url) as session:
            dialect = postgresql if session.get_bind().dialect.name == "postgresql" else sqlite
            added = dialect.insert(KeyDayRow).values(key=grant.key, day=_day(self.clock(session)), tokens=tokens)
            both = {"tokens": col(KeyDayRow.tokens) + added.excluded.tokens}
            session.execute(added.on_conflict_do_update(index_elements=["key", "day"], set_=both))


def _check_tokens(session: Session, grant: Grant, at: float) -> None:
    most = grant.quota.tokens_per_day
    if most is None:
        return
    spent = _spent(session, grant.key, _day(at))
    if spent >= most:
        raise Exhausted(f"the key's {most:,} tokens a day are spent; the next day begins at 00:00 UTC", DAY - at % DAY)


def _check_rate(session: Session, grant: Grant, at: float) -> None:
    most = grant.quota.requests_per_minute
    if most is None:
        return
    of_key = col(KeyRequestRow.key) == grant.key
    session.exec(delete(KeyRequestRow).where(of_key, col(KeyRequestRow.at) <= at - MINUTE))
    count, oldest = session.exec(
        select(func.count(), func.min(KeyRequestRow.at)).select_from(KeyRequestRow).where(of_key)
    ).one()
    if count >= most:
        raise Exhausted(f"the key's {most} requests a minute are spent", max(0.0, oldest + MINUTE - at))
    session.add(KeyRequestRow(key=grant.key, at=at))


def _locked(session: Session, key: str) -> KeyRow:
    row = session.get(KeyRow, key, with_for_update=True)
    if row is None:
        raise LookupError(f"there is no key {key!r}")
    return row


def _spent(session: Session, key: str, day: str) -> int:
    row = session.get(KeyDayRow, (key, day))
    return 0 if row is None else row.tokens


def _key(row: KeyRow, tokens: int) -> Key:
    return Key(
        grant=row.document,
        created=row.at,
        expires=row.expires,
        revoked=row.revoked,
        used=row.used,
        tokens_today=tokens,
    )


def _hashed(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _text(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _day(at: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(at))
