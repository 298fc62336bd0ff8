"""Where conversations are kept, as serving needs it."""

from __future__ import annotations

from typing import Protocol

from loop.core.conversation import Exchange, Summed, Timeline


class Conversations(Protocol):
    """Where turns are kept; an owner reaches its own alone (LookupError for any other)."""

    def append(self, owner: str, after: str | None, exchange: Exchange) -> str:
        """Commit a turn and return its id."""
        ...

    def sum_up(self, owner: str, turn: str, summed: Summed) -> None:
        """Keep what was written of a turn after its reply."""
        ...

    def timeline(self, owner: str, turn: str) -> Timeline:
        """All that was said up to and with a turn."""
        ...

    def exchange(self, owner: str, turn: str) -> Exchange:
        """One turn as it was delivered."""
        ...

    def find(self, owner: str, history: str) -> str | None:
        """The turn that a visible history ends with."""
        ...
