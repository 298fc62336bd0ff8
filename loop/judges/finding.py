"""What a check found: a value and the span, number or state that decided it."""

from __future__ import annotations

from pydantic import Field

from loop.core.case import Transcript
from loop.core.noun import Noun
from loop.core.wording import spoken, words


class Finding(Noun):
    """A check's result on one conversation; None is undecided, and the evidence says why."""

    value: float | None = Field(default=None, ge=0, le=1)
    evidence: str


class Said(Noun):
    """What one reply says, and its index from 0."""

    index: int
    text: str


def holds(evidence: str) -> Finding:
    """The criterion holds."""
    return Finding(value=1.0, evidence=evidence)


def breach(evidence: str) -> Finding:
    """The criterion is breached."""
    return Finding(value=0.0, evidence=evidence)


def decided(value: bool, evidence: str) -> Finding:
    """Holds or breached, by a truth value."""
    return holds(evidence) if value else breach(evidence)


def undecided(evidence: str) -> Finding:
    """Neither: coverage counts it, no mean does."""
    return Finding(value=None, evidence=evidence)


def said_in(transcript: Transcript, turn: int | None) -> tuple[Said, ...]:
    """What the replies that a check reads say, tool calls taken out and silent replies left out.

    ``turn`` counts from 1, or from the end as -1; an absent turn gives nothing. Empty
    means: there is nothing that could hold a check.
    """
    count = len(transcript.replies)
    if turn is None:
        chosen = range(count)
    else:
        index = turn - 1 if turn > 0 else count + turn
        chosen = range(index, index + 1) if 0 <= index < count else range(0)
    said = (Said(index=index, text=spoken(transcript.replies[index])) for index in chosen)
    return tuple(one for one in said if words(one.text))


def nothing_said(turn: int | None) -> Finding:
    """The breach of every check that reads replies when there is none to read."""
    where = "the conversation has no reply that says anything" if turn is None else f"reply {turn} says nothing"
    return breach(where)


def span(text: str, limit: int = 80) -> str:
    """A quotation for evidence: at most ``limit`` characters, on one line."""
    flat = " ".join(text.split())
    return repr(flat if len(flat) <= limit else flat[: limit - 3] + "...")
