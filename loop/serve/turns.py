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
    Turned,
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
from loop.mol.runtime import JOINT, make_ready, sum_up, turn
from loop.serve.drawing import AS_IT_STANDS, Drawing
from loop.serve.hub import Hub
from loop.serve.kept import Conversations

Result = TypeVar("Result")


class Overflow(UserError):
    """What a specialist would have to read does not fit into the model's context."""


@dataclass(frozen=True)
class Delivered:
    """A turn, its id (empty where it was not to be kept), and its answers with their tokens, one a part."""

    id: str
    exchange: Exchange
    answers: tuple[Completion, ...] = ()


@dataclass(eq=False)
class _Answers:
    """The answers of a turn, and its reply as it is told: what is new of each text so far, joined as they will be."""

    pair: Pair
    heard: Callable[[str], None]
    ended: list[Completion] = field(default_factory=list)
    before: str = ""
    told: int = 0
    is_closed: bool = False

    def growing(self) -> Callable[[str], None]:
        """What hears of the answer that is being written, on any thread."""
        loop = asyncio.get_running_loop()

        def grows(text: str) -> None:
            loop.call_soon_threadsafe(self.grows, text)

        return grows

    def grows(self, text: str) -> None:
        """The text so far of that answer."""
        piece = f"{self.before}{text}"[self.told :]
        if piece and not self.is_closed:
            self.told += len(piece)
            self.heard(piece)

    def ends(self, completion: Completion) -> None:
        """That answer, whole; the next one follows it. Overflow where not one token of it had room."""
        if not completion.token_ids and completion.finish == "length":
            raise Overflow(
                f"the conversation comes to {len(completion.prompt_ids)} tokens and the model reads at most "
                f"{self.pair.base.context_length}; send less of it, or begin another"
            )
        self.ended.append(completion)
        self.grows(completion.text)
        self.before += f"{completion.text}{JOINT}"

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
        notes: Sequence[Message] = (),
        tools: bool | None = None,
        drawing: Drawing = AS_IT_STANDS,
        shown: Callable[[Turned], str] = lambda turned: turned.reply.text,
        calls: Callable[[str], bool] = lambda text: False,
        keep: bool = True,
    ) -> Delivered:
        """Answer what was said and commit the turn.

        ``said`` is what is new after the turn ``after``; without it, the whole visible history as
        a plain client sends it, whose earlier turns are recognised by their digest. ``pin`` names
        the specialist. ``heard`` is told the reply as it grows, piece by piece, on the event loop;
        the last piece comes before the turn is committed. ``notes`` are told to the specialist and
        are no part of the history; ``tools`` as a Say has it. ``shown`` is the reply as the client
        will send it back; what it raises undoes the turn. ``calls`` as turn() has it. Without
        ``keep`` nothing is committed.
        Raises UserError for messages that end in no question and for an unregistered pin, Overflow,
        LookupError for a turn that is not the owner's, Busy.
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
        say = Say(messages=(*said[last:-1], *notes, said[-1]), label=pin or _caller(before, said[last:]), tools=tools)
        with closing(_Answers(pair, heard)) as answers:
            turned = await self._play(pair, turn(pair.harness, before, say, calls), drawing, answers)
        reply = Message(role="assistant", content=shown(turned))
        exchange = exchange_of(known, turned, history_of((*said, reply), since))
        exchange = exchange.revise(hops=_signed(pair, exchange.hops))
        if not keep:
            return Delivered("", exchange, tuple(answers.ended))
        name = await asyncio.to_thread(self.kept.append, owner, after, exchange)
        was_routed = all(route.how is not RouteHow.PINNED for route in exchange.routes)
        task = asyncio.create_task(self._sum_up(pair, owner, name, was_routed))
        self.behind.add(task)
        task.add_done_callback(self.behind.discard)
        return Delivered(name, exchange, tuple(answers.ended))

    async def settle(self) -> None:
        """Wait until the summaries of all delivered turns are written."""
        while self.behind:
            await asyncio.gather(*self.behind, return_exceptions=True)

    def _recognised(self, owner: str, said: Sequence[Message]) -> tuple[str | None, Sequence[Message]]:
        """The turn that a history's last known reply ends, and what was said since; the longest match wins."""
        replies: list[tuple[int, str]] = []
        history = ""
        for place, message in enumerate(said, start=1):
            history = history_of([message], history)
            if message.role == "assistant":
                replies.append((place, history))
        for place, history in reversed(replies):
            found = self.kept.find(owner, history)
            if found is not None:
                return found, said[place:]
        return None, said

    def _known(self, owner: str, after: str | None) -> tuple[Timeline, str]:
        """The timeline that the turn goes on from, and its history's digest."""
        if after is None:
            return Timeline(), ""
        return self.kept.timeline(owner, after), self.kept.exchange(owner, after).history

    async def _sum_up(self, pair: Pair, owner: str, name: str, was_routed: bool) -> None:
        """Behind a reply: its summary and, while nobody waits, the router made ready for what may be said next."""
        timeline = await asyncio.to_thread(self.kept.timeline, owner, name)
        turned = await self._play(pair, sum_up(pair.harness, timeline))
        fresh = turned.timeline.entries[len(timeline.entries) :]
        if fresh:
            summed = Summed(entries=fresh, hops=_signed(pair, turned.hops))
            await asyncio.to_thread(self.kept.sum_up, owner, name, summed)
        if was_routed and not self.hub.waiting:
            await self._play(pair, make_ready(pair.harness, turned.timeline))

    async def _play(
        self,
        pair: Pair,
        asking: Generator[Ask, Completion, Result],
        drawing: Drawing = AS_IT_STANDS,
        answers: _Answers | None = None,
    ) -> Result:
        """Play it on the hub; ``answers`` is told of the answers as they grow and end, of other hops nobody."""
        completion: Completion | None = None
        while True:
            try:
                ask = next(asking) if completion is None else asking.send(completion)
            except StopIteration as end:
                result: Result = end.value
                return result
            request = self._request(pair, ask, drawing)
            if answers is None or ask.hop is not Hop.ANSWER:
                completion = await asyncio.wrap_future(self.hub.ask(request))
            else:
                completion = await asyncio.wrap_future(self.hub.ask(request, answers.growing()))
                answers.ends(completion)

    def _request(self, pair: Pair, ask: Ask, drawing: Drawing) -> Request:
        own = drawing if ask.hop is Hop.ANSWER else AS_IT_STANDS
        return Request(
            messages=ask.messages,
            adapter=pair.adapter(ask.label),
            sampling=own.over(ask.sampling),
            seed=seed_from("serve", self.seed, *own.luck, *((m.role, m.content) for m in ask.messages)),
            choices=ask.choices,
        )


def _caller(before: Timeline, said: Sequence[Message]) -> str:
    """Who called the tools, where their results come with further words; else nobody."""
    if said[-1].role == "tool" or all(message.role != "tool" for message in said):
        return ""
    return next((part.owner for part in reversed(list(before.parts())) if part.owner), "")


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
