"""The tables of keys and of what they spent."""

from __future__ import annotations

from sqlalchemy import BigInteger, Index
from sqlmodel import Field

from loop.core.access import Grant
from loop.store.tables import Table, document


class KeyRow(Table, table=True):
    """A key; ``secret`` is the SHA-256 of what its holder presents, which is stored nowhere."""

    __tablename__ = "keys"

    id: str = Field(primary_key=True)
    secret: str = Field(unique=True)
    owner: str = Field(index=True)
    at: str
    expires: str | None = None
    revoked: str | None = None
    used: str | None = None
    document: Grant = Field(sa_column=document(Grant))


class KeyRequestRow(Table, table=True):
    """One request that a key with a rate began, in seconds since 1970; kept while it counts."""

    __tablename__ = "key_requests"
    __table_args__ = (Index("ix_key_requests_key_at", "key", "at"),)

    id: int | None = Field(default=None, primary_key=True)
    key: str = Field(foreign_key="keys.id")
    at: float


class KeyDayRow(Table, table=True):
    """The tokens that a key came to on one day (UTC, ``2026-12-03``)."""

    __tablename__ = "key_days"

    key: str = Field(primary_key=True, foreign_key="keys.id")
    day: str = Field(primary_key=True)
    tokens: int = Field(sa_type=BigInteger)
