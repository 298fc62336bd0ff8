"""Anthropic's own client, unmodified, against a started server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anthropic
import pytest

from tests.serve.http.started import TOOL, Spelling, engine, kept_turns, posted, serving, turns, url

__all__ = ["engine", "turns", "url"]

WEATHER: Any = {"name": "get_weather", "description": "Now.", "input_schema": TOOL}


def client(url: str) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=url, api_key="any", max_retries=0)


def streamed(url: str, messages: list[Any], **more: Any) -> tuple[Any, str]:
    """The message that the events make, and its text as it came."""
    with client(url).messages.stream(model="macaron", max_tokens=200, messages=messages, **more) as stream:
        return stream.get_final_message(), "".join(
            block.text for block in stream.get_final_message().content if block.type == "text"
        )


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def test_a_conversation_with_tools_goes_on_after_the_server_was_started_again(engine: Spelling, tmp_path: Path) -> None:
    messages: list[Any] = [user("L1: secret-5, what is the weather in Oslo?")]
    with kept_turns(engine, tmp_path) as turns, serving(turns) as (url, _):
        reply, _ = streamed(url, messages, tools=[WEATHER], system="Be brief.")
        (use,) = reply.content
        assert (reply.stop_reason, use.type, use.name, use.input) == (
            "tool_use",
            "tool_use",
            "get_weather",
            {"city": "Oslo"},
        )
        assert reply.usage.output_tokens == len('{"tool": "get_weather", "city": "Oslo"}') + 1
        result = {"type": "tool_result", "tool_use_id": use.id, "content": [{"type": "text", "text": "4 degrees"}]}
        messages += [{"role": "assistant", "content": reply.content}, user([result])]
    engine.asked.clear()
    with kept_turns(engine, tmp_path) as turns, serving(turns) as (url, _):
        reply, text = streamed(url, messages, tools=[WEATHER], system="Be brief.")
        assert (text, reply.stop_reason) == ("It is 4 degrees.", "end_turn")
        assert [bool(request.choices) for request in engine.asked] == [False]  # back to the caller, not routed
        messages += [{"role": "assistant", "content": reply.content}, user("L1: and now?")]
        last = client(url).messages.create(model="macaron", max_tokens=50, messages=messages, system="Be brief.")
        assert last.content[0].text == "secret-5 after 2"  # type: ignore[union-attr]


def test_words_beside_a_result_reach_who_called(url: str, engine: Spelling) -> None:
    messages: list[Any] = [user("L2: the weather in Oslo")]
    reply, _ = streamed(url, messages, tools=[WEATHER])
    result = {"type": "tool_result", "tool_use_id": reply.content[0].id, "content": "rain"}
    engine.asked.clear()
    both = user([result, {"type": "text", "text": "L1: so what do I wear?"}])
    streamed(url, [*messages, {"role": "assistant", "content": reply.content}, both], tools=[WEATHER])
    assert [request.messages[0].content for request in engine.asked] == ["You are L2."]
    assert [m.content for m in engine.asked[0].messages if m.role == "tool"] == ["rain"]


def test_tokens_are_counted_before_they_are_spent(url: str, engine: Spelling) -> None:
    counted = client(url).messages.count_tokens(model="macaron", messages=[user("four")])  # type: ignore[list-item]
    assert (counted.input_tokens, engine.asked) == (4, [])


def test_a_tool_must_be_called_where_the_client_says_so(url: str) -> None:
    choice: Any = {"type": "any"}
    with pytest.raises(anthropic.InternalServerError, match="calls no tool of get_weather"):
        client(url).messages.create(
            model="macaron",
            max_tokens=9,
            messages=[user("L1: hi")],
            tools=[WEATHER],
            tool_choice=choice,  # type: ignore[list-item]
        )


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        ({"max_tokens": None}, 400, "invalid_request_error"),
        ({"model": "claude"}, 404, "not_found_error"),
        ({"messages": [user([{"type": "tool_result", "tool_use_id": "toolu_forged"}])]}, 400, "invalid_request_error"),
        ({"messages": [user([{"type": "image", "source": {}}])]}, 400, "invalid_request_error"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, 400, "invalid_request_error"),
        ({"system": "x" * 7000}, 400, "invalid_request_error"),
    ],
)
def test_errors_have_anthropics_form(url: str, body: dict[str, Any], status: int, kind: str) -> None:
    whole = {"model": "macaron", "max_tokens": 5, "messages": [user("L1: hi")]} | body
    answer = posted(url, "/v1/messages", whole)
    assert (answer.status_code, answer.json()["type"], answer.json()["error"]["type"]) == (status, "error", kind)
