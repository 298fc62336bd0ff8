"""``/v1/messages``: Anthropic's protocol, whole or streamed, and its count of tokens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any
from uuid import uuid4

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from loop.core.hop import Hop
from loop.core.pair import Message
from loop.serve.http.calls import described
from loop.serve.http.chat import about
from loop.serve.http.doors import Served, Talker
from loop.serve.http.messages_form import Counted, MessagesRequest
from loop.serve.http.offers import chosen
from loop.serve.http.service import Answered, Wanted
from loop.serve.http.streams import Event, event_stream, streamed, whole

router = APIRouter(tags=["messages"])

_FINISHES = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}


@router.post("/v1/messages")
async def messages(request: Request, body: MessagesRequest, service: Served, grant: Talker) -> Response:
    """One reply to a conversation, whose earlier turns are recognised by what was said."""
    wanted = Wanted(
        said=body.said,
        pin=service.pin(body.model),
        drawing=body.drawing,
        tools=body.offers,
        choice=chosen(body.offers, body.choice),
    )
    if not body.stream:
        return JSONResponse(_message(body.model, await whole(request, service, grant, wanted)))
    pieces = await streamed(request, service.play(grant, wanted))
    return event_stream(request.url.path, _events(body.model, pieces), named=True)


@router.post("/v1/messages/count_tokens")
async def count_tokens(body: Counted, service: Served, grant: Talker) -> dict[str, int]:
    """How many tokens these messages come to, before the specialist's own prompt."""
    service.pin(body.model)
    note = described(body.offers)
    told = (*((Message(role="system", content=note),) if note else ()), *body.said)
    return {"input_tokens": len(await asyncio.to_thread(service.words.render, told))}


def _message(model: str, answered: Answered) -> dict[str, Any]:
    text = [{"type": "text", "text": answered.text}] if answered.text or not answered.calls else []
    return _about(model) | {
        "content": [*text, *_uses(answered)],
        "stop_reason": _FINISHES[answered.finish],
        "usage": _usage(answered),
        "macaron": about(answered),
    }


async def _events(model: str, pieces: AsyncGenerator[str | Answered, None]) -> AsyncGenerator[Event, None]:
    """The message as it grows: its blocks one after the other, each begun, written and ended."""
    empty: dict[str, Any] = {"content": [], "stop_reason": None, "usage": {"input_tokens": 0, "output_tokens": 0}}
    yield _event("message_start", message=_about(model) | empty)
    is_open, index = False, 0
    async for piece in pieces:
        text = piece if isinstance(piece, str) else piece.text[piece.told :]
        if text or (isinstance(piece, Answered) and not is_open and not piece.calls):
            if not is_open:
                yield _event("content_block_start", index=index, content_block={"type": "text", "text": ""})
                is_open = True
            yield _event("content_block_delta", index=index, delta={"type": "text_delta", "text": text})
        if isinstance(piece, str):
            continue
        if is_open:
            yield _event("content_block_stop", index=index)
            index += 1
        for number, use in enumerate(_uses(piece), start=index):
            arguments = json.dumps(use["input"], ensure_ascii=False)
            yield _event("content_block_start", index=number, content_block=use | {"input": {}})
            delta = {"type": "input_json_delta", "partial_json": arguments}
            yield _event("content_block_delta", index=number, delta=delta)
            yield _event("content_block_stop", index=number)
        ended = {"stop_reason": _FINISHES[piece.finish], "stop_sequence": None}
        yield _event("message_delta", delta=ended, usage=_usage(piece), macaron=about(piece))
        yield _event("message_stop")


def _event(kind: str, **fields: Any) -> Event:
    return kind, {"type": kind} | fields


def _about(model: str) -> dict[str, Any]:
    return {
        "id": f"msg_{uuid4().hex}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "stop_sequence": None,
    }


def _uses(answered: Answered) -> list[dict[str, Any]]:
    return [
        {"type": "tool_use", "id": answered.call_id(place), "name": call.name, "input": json.loads(call.arguments)}
        for place, call in enumerate(answered.calls)
    ]


def _usage(answered: Answered) -> dict[str, Any]:
    """Tokens of the answer, cached ones apart as Anthropic counts them; hidden ones are told beside."""
    prompt, cached, generated = answered.spent(Hop.ANSWER)
    hidden_prompt, _, hidden_generated = answered.spent(Hop.ROUTE, Hop.SUMMARY)
    return {
        "input_tokens": prompt - cached,
        "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": 0,
        "output_tokens": generated,
        "hidden_input_tokens": hidden_prompt,
        "hidden_output_tokens": hidden_generated,
    }
