"""People's turns: the runtime that plays episodes, on a shared engine, each turn committed whole or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TypeVar

from loop.core.conversation import (
    Entry,
    EntryKind,
    Exchange,
    HopRecord,
    Say,
    Summed,
    Timeline,
    exchange_of,
    history_of,
)
from loop.core.episode import Ask, Completion, Request
from loop.core.errors import UserError
from loop.core.hop import Hop
from loop.core.noun import seed_from
from loop.core.pair import Message, Pair
from loop.core.routing import RouteHow
from loop.mol.route import settled
from loop.mol.runtime import JOINT, sum_up, turn
from loop.serve.hub import Hub
from loop.serve.kept import Conversations

Result = TypeVar("Result")


@dataclass(frozen=True)
class Delivered:
    """A committed turn and its id."""

    id: str
    exchange: Exchange


@dataclass(eq=False)
class _Pieces:
    """A reply as it is told: what is new of each text so far, the answers joined as the runtime joins them."""

    heard: Callable[[str], None]
    before: str = ""
    told: int = 0
    is_closed: bool = False

    def grows(self, text: str) -> None:
        """The text so far of the answer that is being written."""
        piece = f"{self.before}{text}"[self.told :]
        if piece and not self.is_closed:
            self.told += len(piece)
            self.heard(piece)

    def ends(self, text: str) -> None:
        """The whole text of that answer; the next one follows it."""
        self.grows(text)
        self.before += f"{text}{JOINT}"

    def close(self) -> None:
        """Tell nothing more: the turn ended, or nobody listens any longer."""
        self.is_closed = True


@dataclass(eq=False)
class Turns:
    """Plays turns of one pair; a turn is played whole by the pair it began with, though another is set meanwhile.

    ``deliver`` may be cancelled at any moment: the engine gives up what it was answering and
    nothing is committed, or (in the last instant) a branch that no client goes on from.
    ``behind`` are the summaries still being written.
    """

    pair: Pair
    hub: Hub
    kept: Conversations
    seed: int = 0
    behind: set[asyncio.Task[None]] = field(default_factory=set)

    async def deliver(
        self,
        owner: str,
        said: Sequence[Message],
        *,
        after: str | None = None,
        pin: str = "",
        heard: Callable[[str], None] = lambda piece: None,
    ) -> Delivered:
        """Answer what was said and commit the turn.

        ``said`` is what is new after the turn ``after``; without it, the whole visible history as
        a plain client sends it, whose earlier turns are recognised by their digest. ``pin`` names
        the specialist. ``heard`` is told the reply as it grows, piece by piece, on the event loop;
        the last piece comes before the turn is committed.
        Raises UserError for messages that end in no question and for an
        unregistered pin, LookupError for a turn that is not the owner's, Busy.
        """
        if not said or said[-1].role not in ("user", "tool"):
            raise UserError("the last message must be a user's or a tool's: there is nothing to answer")
        pair = self.pair
        if pin:
            settled(pair.harness, pin, RouteHow.PINNED)
        if after is None:
            after, said = await asyncio.to_thread(self._recognised, owner, said)
        known, since = await asyncio.to_thread(self._known, owner, after)
        last = max((place for place, message in enumerate(said, start=1) if message.role == "assistant"), default=0)
        before = told(known, said[:last], pair.harness.routing.fallback)
        asking = turn(pair.harness, before, Say(messages=tuple(said[last:]), label=pin))
        with closing(_Pieces(heard)) as pieces:
            turned = await self._play(pair, asking, pieces)
        reply = Message(role="assistant", content=turned.reply.text)
        exchange = exchange_of(known, turned, history_of((*said, reply), since))
        exchange = exchange.revise(hops=_signed(pair, exchange.hops))
        name = await asyncio.to_thread(self.kept.append, owner, after, exchange)
        task = asyncio.create_task(self._sum_up(pair, owner, name))
        self.behind.add(task)
        task.add_done_callback(self.behind.discard)
        return Delivered(name, exchange)

    async def settle(self) -> None:
        """Wait until the summaries of all delivered turns are written."""
        while self.behind:
            await asyncio.gather(*self.behind, return_exceptions=True)

    def _recognised(self, owner: str, said: Sequence[Message]) -> tuple[str | None, Sequence[Message]]:
        """The turn that a history's last known reply ends, and what was said since; the longest match wins."""
        replies = [place for place, message in enumerate(said, start=1) if message.role == "assistant"]
        for place in reversed(replies):
            found = self.kept.find(owner, history_of(said[:place]))
            if found is not None:
                return found, said[place:]
        return None, said

    def _known(self, owner: str, after: str | None) -> tuple[Timeline, str]:
        """The timeline that the turn goes on from, and its history's digest."""
        if after is None:
            return Timeline(), ""
        return self.kept.timeline(owner, after), self.kept.exchange(owner, after).history

    async def _sum_up(self, pair: Pair, owner: str, name: str) -> None:
        timeline = await asyncio.to_thread(self.kept.timeline, owner, name)
        turned = await self._play(pair, sum_up(pair.harness, timeline))
        fresh = turned.timeline.entries[len(timeline.entries) :]
        if fresh:
            summed = Summed(entries=fresh, hops=_signed(pair, turned.hops))
            await asyncio.to_thread(self.kept.sum_up, owner, name, summed)

    async def _play(
        self, pair: Pair, asking: Generator[Ask, Completion, Result], pieces: _Pieces | None = None
    ) -> Result:
        """Play it on the hub; the answers' texts are told to ``pieces``, those of other hops to nobody."""
        completion: Completion | None = None
        while True:
            try:
                ask = next(asking) if completion is None else asking.send(completion)
            except StopIteration as end:
                result: Result = end.value
                return result
            completion = await self._ask(pair, ask, pieces)

    async def _ask(self, pair: Pair, ask: Ask, pieces: _Pieces | None) -> Completion:
        """One hop on the hub; of an answer ``pieces`` is told while it grows."""
        request = self._request(pair, ask)
        if pieces is None or ask.hop is not Hop.ANSWER:
            return await asyncio.wrap_future(self.hub.ask(request))
        loop = asyncio.get_running_loop()

        def grows(text: str) -> None:
            loop.call_soon_threadsafe(pieces.grows, text)

        completion = await asyncio.wrap_future(self.hub.ask(request, grows))
        pieces.ends(completion.text)
        return completion

    def _request(self, pair: Pair, ask: Ask) -> Request:
        return Request(
            messages=ask.messages,
            adapter=pair.adapter(ask.label),
            sampling=ask.sampling,
            seed=seed_from("serve", self.seed, *((message.role, message.content) for message in ask.messages)),
            choices=ask.choices,
        )


def _signed(pair: Pair, hops: Sequence[HopRecord]) -> tuple[HopRecord, ...]:
    """The ledger with the revision that answered each line; the base alone has none."""
    revisions = {adapter.label: adapter.digest for adapter in pair.adapters}
    return tuple(hop.revise(adapter=revisions.get(hop.label, "")) for hop in hops)


def told(timeline: Timeline, said: Sequence[Message], label: str) -> Timeline:
    """A history that nobody here has played, taken over as the client tells it, its replies as ``label``'s."""
    kinds = {"system": EntryKind.MEMORY, "user": EntryKind.USER, "assistant": EntryKind.REPLY, "tool": EntryKind.TOOL}
    number, answered = timeline.turn, True
    for message in said:
        # Words after a reply begin a turn; a tool's result belongs to the turn that called it.
        if number == 0 or (answered and message.role in ("system", "user")):
            number += 1
        answered = message.role == "assistant"
        owner = label if message.role in ("assistant", "tool") else ""
        entry = Entry(turn=number, kind=kinds[message.role], content=message.content, label=owner)
        timeline = timeline.then(entry)
    return timeline
