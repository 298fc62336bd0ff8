"""``/v1/chat/completions``: OpenAI's chat, whole or streamed."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from typing import Any
from uuid import uuid4

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response

from loop.core.hop import Hop
from loop.serve.http.chat_form import ChatRequest
from loop.serve.http.doors import Served, Talker
from loop.serve.http.offers import chosen
from loop.serve.http.service import Answered, Service, Wanted
from loop.serve.http.streams import Event, event_stream, streamed, whole

router = APIRouter(tags=["chat"])


@router.post("/v1/chat/completions")
async def chat_completions(request: Request, body: ChatRequest, service: Served, grant: Talker) -> Response:
    """One reply to a conversation, whose earlier turns are recognised by what was said."""
    wanted = Wanted(
        said=body.said,
        pin=service.pin(body.model),
        drawing=body.drawing,
        tools=body.offers,
        choice=chosen(body.offers, body.choice),
        shape=body.shape,
    )
    form = _Form(service, body)
    if not body.stream:
        return JSONResponse(form.completion(await whole(request, service, grant, wanted)))
    pieces = await streamed(request, service.play(grant, wanted))
    return event_stream(request.url.path, form.chunks(pieces), named=False, last="[DONE]")


class _Form:
    """Answers as OpenAI's clients read them."""

    def __init__(self, service: Service, body: ChatRequest) -> None:
        self.service, self.body = service, body
        self.id, self.created = f"chatcmpl-{uuid4().hex}", int(time.time())

    def completion(self, answered: Answered) -> dict[str, Any]:
        """The whole reply."""
        message: dict[str, Any] = {"role": "assistant", "content": answered.text or None, "refusal": None}
        if answered.calls:
            message["tool_calls"] = _calls(answered)
        else:
            message["content"] = answered.text
        choice = {
            "index": 0,
            "message": message,
            "finish_reason": answered.finish,
            "logprobs": self._logprobs(answered),
        }
        return self._about("chat.completion") | {
            "choices": [choice],
            "usage": usage(answered),
            "macaron": about(answered),
        }

    async def chunks(self, pieces: AsyncGenerator[str | Answered, None]) -> AsyncGenerator[Event, None]:
        """The reply as it comes: its text, its calls, why it ended, and its tokens where they were asked for."""
        yield "", self._chunk({"role": "assistant", "content": ""})
        async for piece in pieces:
            if isinstance(piece, str):
                yield "", self._chunk({"content": piece})
                continue
            if piece.text[piece.told :]:
                yield "", self._chunk({"content": piece.text[piece.told :]})
            for place, call in enumerate(_calls(piece)):
                yield "", self._chunk({"tool_calls": [{"index": place} | call]})
            last = self._chunk({}, piece.finish, self._logprobs(piece))
            yield "", last | {"macaron": about(piece)}
            if self.body.stream_options and self.body.stream_options.include_usage:
                yield "", self._about("chat.completion.chunk") | {"choices": [], "usage": usage(piece)}

    def _about(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.body.model,
            "system_fingerprint": self.service.turns.pair.short,
        }

    def _chunk(self, delta: dict[str, Any], finish: str | None = None, logprobs: Any = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": logprobs}
        return self._about("chat.completion.chunk") | {"choices": [choice]}

    def _logprobs(self, answered: Answered) -> dict[str, Any] | None:
        """The sampled tokens that the reply's text is made of, each with the log-probability it was drawn with."""
        if not self.body.logprobs:
            return None
        content, length = [], 0
        for token, value in answered.tokens:
            text = self.service.words.text([token])
            if not text or length >= len(answered.exchange.reply.text):
                continue
            length += len(text)
            # A token may be a part of a character: its bytes are then not those of any text.
            spelled = None if "\ufffd" in text else list(text.encode())
            content.append({"token": text, "logprob": value, "bytes": spelled, "top_logprobs": []})
        return {"content": content, "refusal": None}


def _calls(answered: Answered) -> list[dict[str, Any]]:
    return [
        {
            "id": answered.call_id(place),
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for place, call in enumerate(answered.calls)
    ]


def usage(answered: Answered) -> dict[str, Any]:
    """Tokens of the answer; those of hidden hops and of tries that were given up are told in the details."""
    prompt, cached, generated = answered.spent(Hop.ANSWER)
    hidden_prompt, _, hidden_generated = answered.spent(Hop.ROUTE, Hop.SUMMARY)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": generated,
        "total_tokens": prompt + generated,
        "prompt_tokens_details": {"cached_tokens": cached, "hidden_tokens": hidden_prompt},
        "completion_tokens_details": {"reasoning_tokens": 0, "hidden_tokens": hidden_generated},
    }


def about(answered: Answered) -> dict[str, Any]:
    """What is behind a reply: its turn, who answered and why, and what each hop took."""
    return {
        "turn": answered.turn,
        "routes": [route.model_dump(mode="json") for route in answered.exchange.routes],
        "hops": [hop.model_dump(mode="json") for hop in answered.hops],
    }
