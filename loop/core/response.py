"""A response as it is kept for a client that asks for it again, or goes on from it by its id."""

from __future__ import annotations

from pydantic import JsonValue

from loop.core.noun import Noun


class KeptResponse(Noun):
    """The body as its client reads it; ``turn`` is the turn that it ended, empty while there is none."""

    body: dict[str, JsonValue]
    turn: str = ""

    @property
    def is_open(self) -> bool:
        """Whether it is still being answered."""
        return self.body.get("status") in ("queued", "in_progress")
