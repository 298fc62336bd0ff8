"""Turns over one connection: given up when the client goes away, and streamed as server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from fastapi import Request
from fastapi.responses import StreamingResponse

from loop.core.access import Grant
from loop.serve.http.refusals import CLOSED, Refused, refusal_of
from loop.serve.http.service import Answered, Service, Wanted

Event = tuple[str, dict[str, Any]]


class Gone(Refused):
    """The client hung up; nobody reads this."""

    def __init__(self) -> None:
        super().__init__(CLOSED, "the client closed the connection")


async def whole(request: Request, service: Service, grant: Grant, wanted: Wanted) -> Answered:
    """The answer; the turn is undone when the client goes away before."""
    answer = asyncio.create_task(service.answer(grant, wanted))
    gone = asyncio.create_task(_gone(request))
    try:
        await asyncio.wait({answer, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise Gone
        return answer.result()
    finally:
        for task in (answer, gone):
            task.cancel()


async def streamed(
    request: Request, pieces: AsyncGenerator[str | Answered, None]
) -> AsyncGenerator[str | Answered, None]:
    """The same pieces, the first one here at once: what fails before it is an error of the request.

    Raises Gone when the client goes away while the first is waited for.
    """
    first = asyncio.ensure_future(anext(pieces))
    gone = asyncio.create_task(_gone(request))
    try:
        await asyncio.wait({first, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not first.done():
            raise Gone
        begun = first.result()
    finally:
        gone.cancel()
        if not first.done():
            first.cancel()

    async def all_pieces() -> AsyncGenerator[str | Answered, None]:
        async with aclosing(pieces):
            yield begun
            async for piece in pieces:
                yield piece

    return all_pieces()


def event_stream(path: str, events: AsyncGenerator[Event, None], *, named: bool, last: str = "") -> StreamingResponse:
    """Server-sent events; an error amid them is one of them. ``named`` gives each its ``event:`` line."""

    async def lines() -> AsyncGenerator[str, None]:
        try:
            async with aclosing(events):
                async for name, data in events:
                    yield _line(name if named else "", data)
        except Exception as error:  # noqa: BLE001 - the status is sent already: the client hears of any error here
            yield _line("error" if named else "", refusal_of(error).body(path))
        if last:
            yield f"data: {last}\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})


def _line(name: str, data: dict[str, Any]) -> str:
    # JSON holds no raw line break, so that no text can end its event and begin another.
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return f"event: {name}\ndata: {text}\n\n" if name else f"data: {text}\n\n"


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
