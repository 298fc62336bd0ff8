"""A response's body, whole or as the events that make it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from loop.serve.http.chat import about, usage
from loop.serve.http.refusals import Refused
from loop.serve.http.responses_form import ResponsesRequest
from loop.serve.http.service import Answered
from loop.serve.http.streams import Event


class Body:
    """The response that one request makes, under the id that it has from the first."""

    def __init__(self, name: str, created: int, asked: ResponsesRequest) -> None:
        self.id, self.created, self.asked = name, created, asked

    def open(self, status: str) -> dict[str, Any]:
        """Before there is a reply."""
        asked = self.asked.model_dump(mode="json", by_alias=True)
        return {
            "id": self.id,
            "object": "response",
            "created_at": self.created,
            "status": status,
            "background": bool(self.asked.background),
            "error": None,
            "incomplete_details": None,
            "instructions": self.asked.instructions,
            "max_output_tokens": self.asked.max_output_tokens,
            "metadata": self.asked.metadata or {},
            "model": self.asked.model,
            "output": [],
            "parallel_tool_calls": False,
            "previous_response_id": self.asked.previous_response_id,
            "store": self.asked.store is not False,
            "temperature": self.asked.temperature,
            "text": {"format": (asked["text"] or {}).get("format") or {"type": "text"}},
            "tool_choice": asked["tool_choice"] or "auto",
            "tools": asked["tools"] or [],
            "top_p": self.asked.top_p,
            "truncation": "disabled",
            "usage": None,
        }

    def ended(self, answered: Answered) -> dict[str, Any]:
        """With its reply."""
        spent = usage(answered)
        is_cut = answered.finish == "length"
        return self.open("incomplete" if is_cut else "completed") | {
            "incomplete_details": {"reason": "max_output_tokens"} if is_cut else None,
            "output": self.output(answered),
            "usage": {
                "input_tokens": spent["prompt_tokens"],
                "input_tokens_details": spent["prompt_tokens_details"],
                "output_tokens": spent["completion_tokens"],
                "output_tokens_details": spent["completion_tokens_details"],
                "total_tokens": spent["total_tokens"],
            },
            "macaron": about(answered),
        }

    def failed(self, refused: Refused) -> dict[str, Any]:
        """With the error that took its place."""
        return self.open("failed") | {"error": {"code": refused.code or "server_error", "message": str(refused)}}

    def output(self, answered: Answered) -> list[dict[str, Any]]:
        """The items of the reply: its text, or its calls."""
        calls = [
            {
                "id": f"fc_{self._part(place)}",
                "type": "function_call",
                "status": "completed",
                "call_id": f"call_{self._part(place)}",
                "name": call.name,
                "arguments": call.arguments,
            }
            for place, call in enumerate(answered.calls)
        ]
        return calls or [self.message("completed", [text_part(answered.text)])]

    def message(self, status: str, content: list[dict[str, Any]]) -> dict[str, Any]:
        """The item of a text."""
        return {
            "id": f"msg_{self._part(0)}",
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": content,
        }

    def _part(self, place: int) -> str:
        return f"{self.id.removeprefix('resp_')}{place}"


class Growing:
    """The events of a response, numbered in order; each item is begun, written and ended."""

    def __init__(self, body: Body) -> None:
        self.body, self.number, self.told = body, 0, ""

    def begun(self) -> Iterator[Event]:
        """Before the first piece."""
        opened = self.body.open("in_progress")
        yield self._event("response.created", response=opened)
        yield self._event("response.in_progress", response=opened)

    def text(self, piece: str) -> Iterator[Event]:
        """A piece of the text."""
        if not self.told:
            item = self.body.message("in_progress", [])
            yield self._event("response.output_item.added", output_index=0, item=item)
            yield self._of_text("response.content_part.added", part=text_part(""))
        self.told += piece
        yield self._of_text("response.output_text.delta", delta=piece, logprobs=[])

    def ended(self, answered: Answered, whole: dict[str, Any]) -> Iterator[Event]:
        """What was not told yet, and the whole."""
        left = answered.text[answered.told :]
        if left or not (answered.calls or self.told):
            yield from self.text(left)
        for index, item in enumerate(whole["output"]):
            if item["type"] == "message":
                yield self._of_text("response.output_text.done", text=answered.text, logprobs=[])
                yield self._of_text("response.content_part.done", part=text_part(answered.text))
            else:
                yield from self._call(index, item)
            yield self._event("response.output_item.done", output_index=index, item=item)
        yield self._event(f"response.{whole['status']}", response=whole)

    def failed(self, refused: Refused) -> Event:
        """The error that ends it."""
        return self._event("response.failed", response=self.body.failed(refused))

    def _call(self, index: int, item: dict[str, Any]) -> Iterator[Event]:
        begun = item | {"status": "in_progress", "arguments": ""}
        of = {"output_index": index, "item_id": item["id"]}
        yield self._event("response.output_item.added", output_index=index, item=begun)
        yield self._event("response.function_call_arguments.delta", **of, delta=item["arguments"])
        yield self._event("response.function_call_arguments.done", **of, arguments=item["arguments"], name=item["name"])

    def _of_text(self, kind: str, **fields: Any) -> Event:
        return self._event(kind, output_index=0, content_index=0, item_id=self.body.message("", [])["id"], **fields)

    def _event(self, kind: str, **fields: Any) -> Event:
        self.number += 1
        return kind, {"type": kind, "sequence_number": self.number - 1} | fields


def text_part(text: str) -> dict[str, Any]:
    """A text as an item holds it."""
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
