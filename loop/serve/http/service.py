"""What every endpoint works with: turns, who may ask, limits, and a request played as a turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal, Protocol

from loop.core.access import OPEN, Access, Grant
from loop.core.conversation import Exchange, HopRecord, Turned
from loop.core.hop import Hop
from loop.core.noun import Noun
from loop.core.pair import Message
from loop.mol.runtime import JOINT
from loop.serve.drawing import Drawing
from loop.serve.http.calls import AUTO, NONE, REQUIRED, Call, Offered, described, read, read_parts, written
from loop.serve.http.figures import Figures
from loop.serve.http.refusals import Refused
from loop.serve.http.shapes import Shape
from loop.serve.kept import Responses
from loop.serve.turns import Delivered, Turns

MODEL = "macaron"
TRIES = 3


class Words(Protocol):
    """The text side of the base."""

    def text(self, tokens: Sequence[int]) -> str:
        """What the tokens spell, without special ones."""
        ...

    def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Token ids of a conversation."""
        ...


class Limits(Noun):
    """What one request may take: bytes of its body, and seconds to send head and body, to be answered, and to read."""

    head_seconds: float = 15.0
    body_bytes: int = 4 * 1024 * 1024
    body_seconds: float = 30.0
    turn_seconds: float = 600.0
    read_seconds: float = 60.0


class Wanted(Noun):
    """A turn as a client asks for it, in whatever protocol.

    ``choice`` says whether tools are called: auto, none, required, or the name of the one that must be.
    """

    said: tuple[Message, ...]
    after: str | None = None
    pin: str = ""
    drawing: Drawing = Drawing()
    tools: tuple[Offered, ...] = ()
    choice: str = AUTO
    shape: Shape = Shape()
    keep: bool = True

    @property
    def callable(self) -> tuple[Offered, ...]:
        """The tools that a reply may call."""
        if self.choice in (AUTO, REQUIRED):
            return self.tools
        return tuple(tool for tool in self.tools if tool.name == self.choice)

    @property
    def must_call(self) -> bool:
        """Whether a reply that calls nothing is refused."""
        return self.choice not in (AUTO, NONE)

    @property
    def notes(self) -> tuple[Message, ...]:
        """What the specialist is told besides: the tools with each request, and the form of the answer."""
        tools = "" if self.said[-1].role == "tool" else described(self.callable)
        return tuple(Message(role="system", content=note) for note in (tools, self.shape.note) if note)


@dataclass(frozen=True)
class Answered:
    """A turn as it was answered. ``hops`` are those of all tries; ``told`` is how much of the text was streamed."""

    turn: str
    text: str
    calls: tuple[Call, ...]
    exchange: Exchange
    hops: tuple[HopRecord, ...]
    tokens: tuple[tuple[int, float], ...]
    told: int = 0

    @property
    def finish(self) -> Literal["stop", "length", "tool_calls"]:
        """Why the reply ended."""
        if self.calls:
            return "tool_calls"
        return "length" if self.exchange.reply.finish == "length" else "stop"

    def call_id(self, place: int) -> str:
        """The id of a call, by its place from 0."""
        return f"call_{self.turn.removeprefix('turn_')[:24]}_{place}"

    def spent(self, *hops: Hop) -> tuple[int, int, int]:
        """Prompt, cached and generated tokens of these hops; of all where none is named."""
        chosen = [hop for hop in self.hops if hop.hop in (hops or tuple(Hop))]
        return (
            sum(hop.prompt_tokens for hop in chosen),
            sum(hop.cached_tokens for hop in chosen),
            sum(hop.generated_tokens for hop in chosen),
        )


class _Unfit(Exception):
    """A reply that is not what the client asked for; its turn is undone."""

    def __init__(self, why: str, hops: Sequence[HopRecord]) -> None:
        super().__init__(why)
        self.hops = tuple(hops)


@dataclass(eq=False)
class Service:
    """The server's one state; ``access`` None lets everybody in as ``owner``, on this machine alone."""

    turns: Turns
    words: Words
    responses: Responses
    access: Access | None = None
    owner: str = "local"
    limits: Limits = Limits()
    is_ready: bool = False
    is_draining: bool = False
    open_requests: int = 0
    behind: dict[str, asyncio.Task[None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.figures = Figures(lambda: self.turns.hub.waiting)

    def pin(self, model: str) -> str:
        """The specialist that a model's name pins, empty for the routed one; Refused for any other name."""
        if model in self.models:
            return model.partition(":")[2]
        known = ", ".join(self.models)
        raise Refused(404, f"there is no such model: {known} are served", code="model_not_found", param="model")

    @property
    def models(self) -> tuple[str, ...]:
        """What ``model`` may name: the routed mixture, and each specialist."""
        return (MODEL, *(f"{MODEL}:{label}" for label in self.turns.pair.harness.routing.labels))

    async def play(self, grant: Grant, wanted: Wanted) -> AsyncGenerator[str | Answered, None]:
        """The pieces of the reply as they come, then the whole turn. Left early, nothing of it is kept."""
        if self.access is not None and grant.key != OPEN:
            await asyncio.to_thread(self.access.begin, grant)
        pieces: asyncio.Queue[str | None] = asyncio.Queue()
        told = _Told(wanted, pieces)
        task = asyncio.create_task(self._answer(grant, wanted, told))
        task.add_done_callback(lambda _: pieces.put_nowait(None))
        try:
            while (piece := await pieces.get()) is not None:
                yield piece
            yield task.result()
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await task

    async def answer(self, grant: Grant, wanted: Wanted) -> Answered:
        """The whole turn at once."""
        async for piece in self.play(grant, wanted):
            if isinstance(piece, Answered):
                return piece
        raise AssertionError("a turn that was played ends in its answer")

    async def _answer(self, grant: Grant, wanted: Wanted, told: _Told) -> Answered:
        started = asyncio.get_running_loop().time()
        spent: list[HopRecord] = []
        try:
            async with asyncio.timeout(self.limits.turn_seconds):
                delivered = await self._tried(grant, wanted, told, spent)
        finally:
            if self.access is not None and grant.key != OPEN and spent:
                tokens = sum(hop.prompt_tokens + hop.generated_tokens for hop in spent)
                await asyncio.shield(asyncio.to_thread(self.access.spend, grant, tokens))
        self.figures.answered(spent, asyncio.get_running_loop().time() - started)
        text, calls = read_parts(delivered.exchange.reply, wanted.callable)
        drawn = [pair for one in delivered.answers for pair in zip(one.token_ids, one.logprobs, strict=True)]
        return Answered(delivered.id, text, calls, delivered.exchange, tuple(spent), tuple(drawn), told.told)

    async def _tried(self, grant: Grant, wanted: Wanted, told: _Told, spent: list[HopRecord]) -> Delivered:
        """The turn, tried again where its reply is not of the form asked for."""

        def shown(turned: Turned) -> str:
            spent.extend(turned.hops)
            return _checked(wanted, turned)

        for lap in range(TRIES):
            try:
                return await self.turns.deliver(
                    grant.owner,
                    wanted.said,
                    after=wanted.after,
                    pin=wanted.pin,
                    heard=told.hear,
                    notes=wanted.notes,
                    tools=bool(wanted.callable) or None,
                    drawing=wanted.drawing.revise(lap=lap),
                    shown=shown,
                    calls=lambda text: bool(read(text, wanted.callable)[1]),
                    keep=wanted.keep,
                )
            except _Unfit as error:
                why = str(error)
        raise Refused(500, f"none of {TRIES} replies was what was asked for: {why}", code="reply_unfit")


def _checked(wanted: Wanted, turned: Turned) -> str:
    """The reply as the history holds it; _Unfit where it is not what was asked for."""
    text, calls = read_parts(turned.reply, wanted.callable)
    why = ""
    if wanted.must_call and not calls:
        why = f"it calls no tool of {', '.join(tool.name for tool in wanted.callable)}"
    elif not calls:
        why = wanted.shape.fault(text)
    if why:
        raise _Unfit(why, turned.hops)
    return written(text, calls)


class _Told:
    """Passes on of a growing reply what can only be text: a call or a form is known once it is whole."""

    def __init__(self, wanted: Wanted, pieces: asyncio.Queue[str | None]) -> None:
        self._is_whole = wanted.must_call or bool(wanted.shape.note)
        self._may_call = bool(wanted.callable)
        self._pieces = pieces
        self._text = ""
        self.told = 0

    def hear(self, piece: str) -> None:
        """The next piece of the reply."""
        self._text += piece
        if self._is_whole:
            return
        sure = len(self._text)
        if self._may_call:
            # A call is a part of its own: what may be one is held back with the gap before it.
            before, _, last = self._text.rpartition(JOINT)
            sure = len(before) if last.lstrip()[:1] in ("", "{") else sure
        if sure > self.told:
            self._pieces.put_nowait(self._text[self.told : sure])
            self.told = sure
