"""Who may ask what: keys of owners, their scopes, and how much they may spend."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from pydantic import Field

from loop.core.errors import LoopError
from loop.core.noun import Noun

OPEN = "open"  # in place of a key's id, where none is kept


class Scope(StrEnum):
    """What a key opens: conversations, the figures of the server, or the owner's keys and consent."""

    CHAT = "chat"
    METRICS = "metrics"
    OWNER = "owner"


class Quota(Noun):
    """What a key may spend; None is no limit. Tokens are prompt and generated, hidden hops included."""

    requests_per_minute: int | None = Field(default=None, ge=1)
    tokens_per_day: int | None = Field(default=None, ge=1)


class Grant(Noun):
    """What a presented key allows; ``key`` is its public id, never the secret."""

    key: str
    owner: str
    scopes: tuple[Scope, ...]
    quota: Quota = Quota()


class Key(Noun):
    """A key as its owner may see it: when it was made, ends and was last used (to a minute), and the day's tokens.

    The secret is no part of it: it is shown once, when the key is made. Times are ISO 8601 in UTC, and so is
    the day.
    """

    grant: Grant
    created: str
    expires: str | None = None
    revoked: str | None = None
    used: str | None = None
    tokens_today: int = 0


class Exhausted(LoopError):
    """A quota or rate limit is spent; ``retry_after`` says in how many seconds to try again."""

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Access(Protocol):
    """Keys as a server needs them; several servers may share them."""

    def grant(self, secret: str) -> Grant:
        """What this key allows; raises LookupError for one that is unknown, expired or revoked."""
        ...

    def begin(self, grant: Grant) -> None:
        """Count one request; raises Exhausted when the key's rate or its day's tokens are spent."""
        ...

    def spend(self, grant: Grant, tokens: int) -> None:
        """Count the tokens that a request came to."""
        ...
