"""Where conversations and responses are kept, as serving needs it."""

from __future__ import annotations

from typing import Protocol

from loop.core.conversation import Exchange, Summed, Timeline
from loop.core.response import KeptResponse


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

    def forget(self, owner: str, turn: str) -> int:
        """Delete the whole conversation of a turn; returns how many turns."""
        ...

    def find(self, owner: str, history: str) -> str | None:
        """The turn that a visible history ends with."""
        ...


class Responses(Protocol):
    """Where responses are kept by their ids; an owner reaches its own alone (LookupError for any other)."""

    def add(self, owner: str, name: str, response: KeptResponse) -> None:
        """Keep a response under its id."""
        ...

    def get(self, owner: str, name: str) -> KeptResponse:
        """A response."""
        ...

    def close(self, owner: str, name: str, response: KeptResponse) -> KeptResponse:
        """Replace one that is still open; returns what stands then: the first end to come stays."""
        ...

    def delete(self, owner: str, name: str) -> str:
        """Delete a response; its turn where no other response of the conversation is left, else empty."""
        ...
