"""A conversation as an append-only timeline: what was said, by whom, and what others were told of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import groupby
from typing import ClassVar, Literal

from pydantic import Field

from loop.core.hop import HopRecord as HopRecord
from loop.core.noun import Noun, digest_of
from loop.core.pair import Message
from loop.core.routing import Route


class Say(Noun):
    """What an agent is told next: memory (system), a user's message or a tool's result, in order.

    ``label`` pins the specialist that answers; empty, the router chooses. ``tools`` says whether
    tools are offered in this conversation, None that it makes no difference; the first say decides it.
    """

    messages: tuple[Message, ...] = Field(min_length=1)
    label: str = ""
    tools: bool | None = None

    @property
    def returns(self) -> bool:
        """Whether these are results of tools, which go back to the specialist that called."""
        return self.messages[-1].role == "tool"


class EntryKind(StrEnum):
    """What a line of a timeline is."""

    MEMORY = "memory"
    USER = "user"
    REPLY = "reply"
    TOOL = "tool"
    SUMMARY = "summary"
    DIGEST = "digest"
    WAITING = "waiting"


Made = Literal["model", "verbatim", "extract"]


class Entry(Noun):
    """One line of a timeline; ``turn`` and ``part`` count from 1.

    A turn has one part for each intent that was answered on its own. ``label`` is who
    replied, who called the tool, whose part was summed up, or whose view a digest is for
    (it stands for all that others did up to its turn). ``made`` tells how a summary came about:
    by the model, the reply itself where it is short enough, or its first sentences where
    what the model wrote was not borne out by the turn. A waiting intent stands for its ``label``
    until the tool that an earlier part called has answered; nobody is shown it before.
    """

    turn: int = Field(ge=1)
    part: int = Field(default=1, ge=1)
    kind: EntryKind
    content: str
    label: str = ""
    made: Made = "model"


class Part(Noun):
    """One intent of one turn, from the user's words to the reply, and its summary."""

    turn: int
    part: int
    entries: tuple[Entry, ...]

    @property
    def owner(self) -> str:
        """Who replied; empty while nobody has."""
        return next((entry.label for entry in self.entries if entry.kind is EntryKind.REPLY), "")

    @property
    def summary(self) -> Entry | None:
        """What other specialists are told of it, once it is known; one from before a tool's result is out of date."""
        lines = [entry for entry in self.entries if entry.kind is not EntryKind.USER]
        return lines[-1] if lines and lines[-1].kind is EntryKind.SUMMARY else None

    def texts(self, *kinds: EntryKind) -> tuple[str, ...]:
        """The contents of these kinds in order."""
        return tuple(entry.content for entry in self.entries if entry.kind in kinds)


class Timeline(Noun):
    """A conversation so far; entries are only ever appended."""

    entries: tuple[Entry, ...] = ()
    tools: bool | None = None

    @property
    def turn(self) -> int:
        """The number of the last turn; 0 before the first."""
        return max((entry.turn for entry in self.entries), default=0)

    def parts(self) -> Iterator[Part]:
        """The parts in order; a summary that came later stands with its part, digests with none."""
        lines = [entry for entry in self.entries if entry.kind is not EntryKind.DIGEST]
        ordered = sorted(lines, key=lambda entry: (entry.turn, entry.part))
        for (turn, part), members in groupby(ordered, key=lambda entry: (entry.turn, entry.part)):
            yield Part(turn=turn, part=part, entries=tuple(members))

    def digest_for(self, label: str) -> Entry | None:
        """The last digest made for one specialist's view, or None."""
        mine = [entry for entry in self.entries if entry.kind is EntryKind.DIGEST and entry.label == label]
        return mine[-1] if mine else None

    def then(self, *entries: Entry) -> Timeline:
        """The timeline with these lines at its end."""
        return self.revise(entries=(*self.entries, *entries))


class Reply(Noun):
    """What the user is given at the end of a turn; ``label`` is who wrote the last of its parts.

    ``text`` joins the ``parts``, which are named where there are several.
    """

    undigested: ClassVar[frozenset[str]] = frozenset({"label"})

    text: str
    finish: str = ""
    label: str = ""
    parts: tuple[str, ...] = ()


class Turned(Noun):
    """A turn that was played: commit ``timeline`` once the reply is delivered, else forget it."""

    timeline: Timeline
    reply: Reply
    routes: tuple[Route, ...] = ()
    hops: tuple[HopRecord, ...] = ()


class Exchange(Noun):
    """A delivered turn as it is kept: what it added to the timeline of the turn it follows.

    ``history`` is the digest of every message that client and agent exchanged up to and with
    this reply, by which a client that sends its whole history is recognised.
    """

    added: tuple[Entry, ...] = Field(min_length=1)
    tools: bool | None = None
    reply: Reply
    routes: tuple[Route, ...] = ()
    hops: tuple[HopRecord, ...] = ()
    history: str


class Summed(Noun):
    """What was written of a turn after its reply."""

    entries: tuple[Entry, ...]
    hops: tuple[HopRecord, ...] = ()


def exchange_of(before: Timeline, turned: Turned, history: str) -> Exchange:
    """The turn as it is kept, from the timeline it goes on from; ValueError where it does not."""
    entries, old = turned.timeline.entries, before.entries
    if entries[: len(old)] != old:
        raise ValueError("a turn may only append to its timeline")
    return Exchange(
        added=entries[len(old) :],
        tools=turned.timeline.tools,
        reply=turned.reply,
        routes=turned.routes,
        hops=turned.hops,
        history=history,
    )


def history_of(said: Iterable[Message], since: str = "") -> str:
    """The digest of a visible history, message by message, so that it goes on from an earlier one.

    Memory and system messages count, for they change replies.
    """
    for message in said:
        since = digest_of(["history", since, message.role, message.content])
    return since


def joined(path: Sequence[tuple[Exchange, Summed | None]]) -> Timeline:
    """The timeline along a branch, first turn first.

    A late summary is left out where a later turn could not wait for it and wrote its own:
    every view begins as it began before.
    """
    timeline = Timeline(tools=path[0][0].tools) if path else Timeline()
    for place, (exchange, late) in enumerate(path):
        timeline = timeline.then(*exchange.added)
        if late is not None:
            known = {_summed_part(entry) for later, _ in path[place + 1 :] for entry in later.added}
            timeline = timeline.then(*(entry for entry in late.entries if _summed_part(entry) not in known))
    return timeline


def _summed_part(entry: Entry) -> tuple[int, int] | None:
    return (entry.turn, entry.part) if entry.kind is EntryKind.SUMMARY else None
