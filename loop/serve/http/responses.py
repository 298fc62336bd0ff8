"""``/v1/responses``: OpenAI's responses, which are kept and gone on from by their ids."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator
from typing import Annotated, Any, cast
from uuid import uuid4

from fastapi import APIRouter, Path, Request
from fastapi.responses import JSONResponse, Response

from loop.core.access import Grant
from loop.core.response import KeptResponse
from loop.serve.http.doors import Served, Talker
from loop.serve.http.offers import chosen
from loop.serve.http.refusals import Refused, refusal_of
from loop.serve.http.response_body import Body, Growing
from loop.serve.http.responses_form import ResponsesRequest
from loop.serve.http.service import Answered, Service, Wanted
from loop.serve.http.streams import Event, event_stream, streamed, whole

router = APIRouter(tags=["responses"])
log = logging.getLogger(__name__)

LATE_SECONDS = 60
Named = Annotated[str, Path(alias="response_id", max_length=128)]


@router.post("/v1/responses")
async def create(request: Request, body: ResponsesRequest, service: Served, grant: Talker) -> Response:
    """A reply, whole, streamed, or in the background; kept unless ``store`` is false."""
    wanted = await _wanted(service, grant, body)
    made = Body(f"resp_{uuid4().hex}", int(time.time()), body)
    if body.background:
        return JSONResponse(await _begin(service, grant, made, wanted))
    if body.stream:
        pieces = await streamed(request, service.play(grant, wanted))
        return event_stream(request.url.path, _events(service, grant, made, pieces), named=True)
    answered = await whole(request, service, grant, wanted)
    return JSONResponse(await _keep(service, grant, made, answered))


@router.get("/v1/responses/{response_id}")
async def read(name: Named, service: Served, grant: Talker) -> dict[str, Any]:
    """A response as it stands."""
    return (await _kept(service, grant, name)).body


@router.delete("/v1/responses/{response_id}")
async def delete(name: Named, service: Served, grant: Talker) -> dict[str, Any]:
    """Delete a response; with the last one of a conversation, the conversation is forgotten."""
    turn = await asyncio.to_thread(service.responses.delete, grant.owner, name)
    if name in service.behind:
        service.behind[name].cancel()
    if turn:
        await asyncio.to_thread(service.turns.kept.forget, grant.owner, turn)
    return {"id": name, "object": "response", "deleted": True}


@router.post("/v1/responses/{response_id}/cancel")
async def cancel(name: Named, service: Served, grant: Talker) -> dict[str, Any]:
    """End a response in the background, whichever server answers it; one that has ended stays as it is."""
    kept = await _kept(service, grant, name)
    if not kept.body.get("background"):
        raise Refused(400, "only a response in the background can be cancelled")
    ended = kept.revise(body=kept.body | {"status": "cancelled"})
    standing = await asyncio.to_thread(service.responses.close, grant.owner, name, ended)
    if name in service.behind:
        service.behind[name].cancel()
    return standing.body


async def _wanted(service: Service, grant: Grant, body: ResponsesRequest) -> Wanted:
    """What is asked for, after the response that it goes on from; any may be gone on from, and more than once."""
    after, waiting, instructions = None, dict[str, str](), ""
    if body.previous_response_id:
        before = await _kept(service, grant, body.previous_response_id)
        if not before.turn:
            raise Refused(400, "the previous response came to no reply", param="previous_response_id")
        output = cast(list[dict[str, str]], before.body["output"])
        waiting = {item["call_id"]: item["name"] for item in output if item["type"] == "function_call"}
        after, instructions = before.turn, cast(str, before.body["instructions"] or "")
    if body.background and (body.stream or body.store is False):
        raise Refused(400, "a response in the background is kept and not streamed", param="background")
    return Wanted(
        said=body.said(waiting, instructions),
        after=after,
        pin=service.pin(body.model),
        drawing=body.drawing,
        tools=body.offers,
        choice=chosen(body.offers, body.choice),
        shape=body.shape,
        keep=body.store is not False,
    )


async def _kept(service: Service, grant: Grant, name: str) -> KeptResponse:
    """A response; one whose server went away while it was answered has failed."""
    kept = await asyncio.to_thread(service.responses.get, grant.owner, name)
    bound = service.limits.turn_seconds + LATE_SECONDS
    if not kept.is_open or time.time() - cast(int, kept.body["created_at"]) < bound:
        return kept
    error = {"code": "server_error", "message": "the server ended before the reply came"}
    failed = kept.revise(body=kept.body | {"status": "failed", "error": error})
    return await asyncio.to_thread(service.responses.close, grant.owner, name, failed)


async def _keep(service: Service, grant: Grant, made: Body, answered: Answered) -> dict[str, Any]:
    whole = made.ended(answered)
    if answered.turn:
        kept = KeptResponse(body=whole, turn=answered.turn)
        await asyncio.to_thread(service.responses.add, grant.owner, made.id, kept)
    return whole


async def _begin(service: Service, grant: Grant, made: Body, wanted: Wanted) -> dict[str, Any]:
    opened = made.open("queued")
    await asyncio.to_thread(service.responses.add, grant.owner, made.id, KeptResponse(body=opened))
    task = asyncio.create_task(_behind(service, grant, made, wanted))
    service.behind[made.id] = task
    task.add_done_callback(lambda _: service.behind.pop(made.id, None))
    return opened


async def _behind(service: Service, grant: Grant, made: Body, wanted: Wanted) -> None:
    """Answer with nobody waiting; cancelled, the row says so already."""
    service.open_requests += 1
    try:
        answered = await service.answer(grant, wanted)
        ended = KeptResponse(body=made.ended(answered), turn=answered.turn)
    except Exception as error:  # noqa: BLE001 - whatever broke, its client reads of it in the response
        ended = KeptResponse(body=made.failed(refusal_of(error)))
    finally:
        service.open_requests -= 1
    try:
        await asyncio.to_thread(service.responses.close, grant.owner, made.id, ended)
    except LookupError:
        log.info("a response in the background was deleted before it ended")


async def _events(
    service: Service, grant: Grant, made: Body, pieces: AsyncGenerator[str | Answered, None]
) -> AsyncGenerator[Event, None]:
    """The response as it grows; it has ended once it is kept."""
    growing = Growing(made)
    for event in growing.begun():
        yield event
    try:
        async for piece in pieces:
            if isinstance(piece, str):
                events = growing.text(piece)
            else:
                events = growing.ended(piece, await _keep(service, grant, made, piece))
            for event in events:
                yield event
    except Exception as error:  # noqa: BLE001 - the status is sent already: the client hears of any error here
        yield growing.failed(refusal_of(error))
