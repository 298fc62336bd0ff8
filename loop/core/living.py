"""Live experience: what an owner agreed to, and what was made of conversations under it."""

from __future__ import annotations

from pydantic import Field

from loop.core.conversation import Timeline
from loop.core.episode import Episode
from loop.core.noun import Noun

# The environment that people's conversations are met in again.
LIVING = "living"
# The boundary of an episode whose body was taken away at its owner's wish.
ERASED = "erased"


class Consent(Noun):
    """One decision on whether an owner's conversations may be learned from; ``since`` when it holds.

    ``terms`` names the version that was agreed to, ``who`` entered it. ``since`` is when the owner
    last began to consent: newer terms, agreed to meanwhile, do not move it.
    """

    owner: str
    held: bool
    terms: str
    who: str
    at: str
    since: str | None = None


class Source(Noun):
    """One branch of a conversation that may be exported; ``opening`` and ``turn`` are its first and last turn."""

    owner: str
    opening: str
    turn: str
    timeline: Timeline


class Talk(Noun):
    """A conversation as its owner may list it; times are ISO 8601 in UTC.

    ``covered`` says that the present consent covers it, ``opted_out`` that the owner excluded it
    for good; ``exported`` counts the episodes made of it.
    """

    opening: str
    begun: str
    last: str
    turns: int
    covered: bool
    opted_out: bool
    exported: int


class LivingExport(Noun):
    """Redacted conversations as episodes, without token ids, and how many spans of each class were redacted."""

    episodes: tuple[Episode, ...] = ()
    redacted: dict[str, int] = Field(default={})


class Erasure(Noun):
    """What was taken away: episodes and training rows from stored bodies, episodes from export files.

    ``adapters`` (digests) had learned from them before and stay as they are. ``waiting`` are
    lineages that a run holds, ``unreached`` export files that could not be rewritten.
    """

    episodes: int = 0
    rows: int = 0
    exported: int = 0
    adapters: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    unreached: tuple[str, ...] = ()
