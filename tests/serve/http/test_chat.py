"""OpenAI's own client, unmodified, against a started server."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from loop.core.conversation import EntryKind
from loop.core.pair import Message
from loop.serve.turns import Turns
from tests.mol.turns import harness
from tests.serve.http.started import TOOL, Spelling, engine, kept_turns, posted, serving, turns, url

__all__ = ["engine", "turns", "url"]

WEATHER: Any = {"type": "function", "function": {"name": "get_weather", "description": "Now.", "parameters": TOOL}}
CHAT = "/v1/chat/completions"


def client(url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0)


def said(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def streamed(openai_client: openai.OpenAI, messages: list[Any], **more: Any) -> tuple[dict[str, Any], Any, str]:
    """The message that the pieces make, the usage, and why it ended."""
    content, calls, usage, finish = "", dict[int, Any](), None, ""
    options = {"include_usage": True}
    for chunk in openai_client.chat.completions.create(
        model="macaron", messages=messages, stream=True, stream_options=options, **more
    ):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            content += choice.delta.content or ""
            finish = choice.finish_reason or finish
            for call in choice.delta.tool_calls or ():
                calls[call.index] = {"id": call.id, "type": "function", "function": call.function.model_dump()}
    message: dict[str, Any] = {"role": "assistant", "content": content or None}
    return (message | {"tool_calls": list(calls.values())} if calls else message), usage, finish


def test_a_conversation_with_tools_goes_on_after_the_server_was_started_again(engine: Spelling, tmp_path: Path) -> None:
    messages: list[Any] = [said("L1: secret-3, what is the weather in Oslo?")]
    with kept_turns(engine, tmp_path) as turns, serving(turns) as (url, _):
        reply, usage, finish = streamed(client(url), messages, tools=[WEATHER])
        call = reply["tool_calls"][0]
        assert finish == "tool_calls" and reply["content"] is None
        assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == (
            "get_weather",
            {"city": "Oslo"},
        )
        assert usage.completion_tokens == len('{"tool": "get_weather", "city": "Oslo"}') + 1
        assert usage.completion_tokens_details.hidden_tokens == len("L1") + 1
        messages += [reply, {"role": "tool", "tool_call_id": call["id"], "content": "4 degrees"}]
    with kept_turns(engine, tmp_path) as turns, serving(turns) as (url, _):
        reply, _, finish = streamed(client(url), messages, tools=[WEATHER])
        assert (reply["content"], finish) == ("It is 4 degrees.", "stop")
        last = client(url).chat.completions.create(model="macaron", messages=[*messages, reply, said("L1: and now?")])
        assert last.choices[0].message.content == "secret-3 after 2"
        entries = turns.kept.timeline("local", last.macaron["turn"]).entries  # type: ignore[attr-defined]
    replies = [(e.turn, e.label) for e in entries if e.kind is EntryKind.REPLY]
    assert replies == [(1, "L1"), (1, "L1"), (2, "L1")]


def test_a_reply_is_streamed_while_it_grows(url: str, engine: Spelling) -> None:
    engine.gate.clear()
    stream = client(url).chat.completions.create(model="macaron", messages=[said("L1: secret-6")], stream=True)  # type: ignore[list-item]
    told = [next(stream).choices[0].delta.content for _ in range(2)]
    assert told == ["", "secret-6"]
    engine.gate.set()
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == " after 1"


def test_results_return_to_the_caller_with_no_routing(url: str, engine: Spelling) -> None:
    messages: list[Any] = [said("L2: the weather in Oslo")]
    reply, _, _ = streamed(client(url), messages, tools=[WEATHER])
    engine.asked.clear()
    result = {"role": "tool", "tool_call_id": reply["tool_calls"][0]["id"], "content": "rain"}
    streamed(client(url), [*messages, reply, result], tools=[WEATHER])
    assert [bool(request.choices) for request in engine.asked] == [False]
    assert engine.asked[0].messages[0].content == "You are L2."


def test_the_router_is_made_ready_behind_a_routed_reply_alone(turns: Turns, engine: Spelling) -> None:
    async def talk(pin: str) -> int:
        await turns.deliver("ana", [Message(role="user", content="L1: secret-4")], pin=pin)
        await turns.settle()
        return len(engine.readied)

    assert [asyncio.run(talk(pin)) for pin in ("L2", "")] == [0, 1]


def test_of_several_intents_those_after_a_call_are_answered_with_its_result(turns: Turns) -> None:
    turns.pair = turns.pair.revise(harness=harness(intents="split"))
    wanted = "L2: say secret-7 to me. L1: what is the weather in Oslo? L2: say secret-8 to me."
    with serving(turns) as (url, _):
        messages: list[Any] = [said(wanted)]
        reply, _, finish = streamed(client(url), messages, tools=[WEATHER])
        assert (reply["content"], finish) == ("secret-7 after 1", "tool_calls")
        call = reply["tool_calls"][0]
        assert json.loads(call["function"]["arguments"]) == {"city": "Oslo"}
        messages += [reply, {"role": "tool", "tool_call_id": call["id"], "content": "4 degrees"}]
        reply, _, finish = streamed(client(url), messages, tools=[WEATHER])
        assert (reply["content"], finish) == ("It is 4 degrees.\n\nsecret-7 secret-8 after 3", "stop")
        last = client(url).chat.completions.create(model="macaron", messages=[*messages, reply, said("L1: now?")])
        assert len(turns.kept.timeline("local", last.macaron["turn"]).entries) > 8  # type: ignore[attr-defined]


def test_a_specialist_can_be_pinned_and_other_models_are_unknown(url: str) -> None:
    pinned = client(url).chat.completions.create(model="macaron:L2", messages=[said("L1: hello")])  # type: ignore[list-item]
    assert [(r["label"], r["how"]) for r in pinned.macaron["routes"]] == [("L2", "pinned")]  # type: ignore[attr-defined]
    assert [model.id for model in client(url).models.list()] == ["macaron", "macaron:L0", "macaron:L1", "macaron:L2"]
    for name in ("gpt-5", "macaron:L9", "macaron:"):
        with pytest.raises(openai.NotFoundError):
            client(url).chat.completions.create(model=name, messages=[said("L1: hello")])  # type: ignore[list-item]


def test_sampled_tokens_come_with_their_log_probabilities(url: str) -> None:
    reply = client(url).chat.completions.create(model="macaron", messages=[said("L1: hi")], logprobs=True)  # type: ignore[list-item]
    tokens = reply.choices[0].logprobs.content  # type: ignore[union-attr]
    assert tokens is not None
    assert "".join(token.token for token in tokens) == reply.choices[0].message.content == " after 1"
    assert {token.logprob for token in tokens} == {-0.5} and tokens[0].bytes == [32]


def test_the_clients_sampling_is_what_is_drawn_with(url: str, engine: Spelling) -> None:
    reply = client(url).chat.completions.create(
        model="macaron",
        messages=[said("L1: hi")],
        temperature=0.5,
        max_tokens=3,
        stop=["x"],
        seed=4,  # type: ignore[list-item]
    )
    assert (reply.choices[0].message.content, reply.choices[0].finish_reason) == (" af", "length")
    sampling = engine.asked[-1].sampling
    assert (sampling.temperature, sampling.max_tokens, sampling.stop) == (0.5, 3, ("x",))
    assert engine.asked[0].sampling.temperature == 0  # the router's own


def test_a_reply_keeps_to_the_schema_or_there_is_none(url: str, engine: Spelling) -> None:
    def asked(schema: dict[str, Any]) -> Any:
        form = {"type": "json_schema", "json_schema": {"name": "place", "schema": schema}}
        return client(url).chat.completions.create(
            model="macaron",
            messages=[said("L1: hi")],
            response_format=form,  # type: ignore[call-overload]
        )

    assert json.loads(asked(TOOL).choices[0].message.content) == {"city": "Oslo"}
    with pytest.raises(openai.InternalServerError, match="'city' is a required property|is not of type 'integer'"):
        asked({"properties": {"city": {"type": "integer"}}})
    assert len(engine.asked) == 2 * 2 + 3 * 2  # the second try fits, and three do not: each is routed and answered
    with pytest.raises(openai.BadRequestError, match="pattern is not supported"):
        asked({"properties": {"city": {"type": "string", "pattern": "(a+)+$"}}})


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        ({"messages": []}, 400, "messages"),
        ({"messages": [{"role": "assistant", "content": "hi"}]}, 400, "there is nothing to answer"),
        ({"messages": [said("a\x00b")]}, 400, "NUL"),
        ({"messages": [said("x" * 7000)]}, 400, "7,0|tokens and the model reads"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            400,
            "should be 'text'",
        ),
        ({"messages": [{"role": "tool", "content": "4", "tool_call_id": "call_forged"}]}, 400, "no call 'call_forged'"),
        ({"n": 2}, 400, "one choice"),
        ({"top_logprobs": 2}, 400, "not its alternatives"),
        ({"temperature": 3}, 400, "temperature"),
        ({"model": "macaron\r\nX-Injected: 1"}, 400, "model"),
        ({"foo": 1}, 400, "foo: unknown parameter"),
        ({"tool_choice": "required"}, 400, "no such tool is offered"),
        ({"tools": [WEATHER, WEATHER]}, 400, "same name"),
    ],
)
def test_bad_input_is_one_clear_sentence(url: str, body: dict[str, Any], status: int, words: str) -> None:
    answer = posted(url, CHAT, {"model": "macaron", "messages": [said("L1: hi")]} | body)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"} and "\n" not in error["message"]
    assert any(word in error["message"] for word in words.split("|"))


def test_a_call_without_a_result_is_refused(url: str) -> None:
    reply, _, _ = streamed(client(url), [said("L1: the weather in Oslo")], tools=[WEATHER])
    with pytest.raises(openai.BadRequestError, match="has no result"):
        client(url).chat.completions.create(
            model="macaron",
            messages=[said("L1: the weather in Oslo"), reply, said("L1: well?")],  # type: ignore[list-item]
        )


def test_a_client_that_hangs_up_leaves_no_turn(turns: Turns, engine: Spelling) -> None:
    engine.gate.clear()
    with serving(turns) as (url, server):
        for stream in (True, False):
            with pytest.raises(httpx2.ReadTimeout):
                httpx2.post(
                    f"{url}{CHAT}",
                    json={"model": "macaron", "messages": [said("L1: secret-8")], "stream": stream},
                    timeout=0.5,
                )
        # A reply that ends before the server hears of the hang-up is a turn like any other.
        while server.service.open_requests:
            time.sleep(0.005)
        engine.gate.set()
        again = client(url).chat.completions.create(model="macaron", messages=[said("L1: secret-9")])  # type: ignore[list-item]
        assert again.choices[0].message.content == "secret-9 after 1"
        assert _rows(turns) == 1


def _rows(turns: Turns) -> int:
    from sqlmodel import func, select

    from loop.store.conversation_tables import ExchangeRow
    from loop.store.database import reading

    with reading(turns.kept.url) as session:  # type: ignore[attr-defined]
        return session.exec(select(func.count()).select_from(ExchangeRow)).one()


def test_a_draining_server_answers_what_was_begun_and_takes_nothing_new(turns: Turns, engine: Spelling) -> None:
    engine.gate.clear()
    replies: list[str | None] = []
    with serving(turns) as (url, server):

        def ask() -> None:
            reply = client(url).chat.completions.create(model="macaron", messages=[said("L1: secret-4")])  # type: ignore[list-item]
            replies.append(reply.choices[0].message.content)

        begun = threading.Thread(target=ask)
        begun.start()
        while len(engine.asked) < 2:
            pass
        assert httpx2.get(f"{url}/health").status_code == 200
        server.loop.call_soon_threadsafe(server.drain)
        while not server.service.is_draining:
            pass
        assert httpx2.get(f"{url}/health").status_code == 503
        refused = posted(url, CHAT, {"model": "macaron", "messages": [said("L1: new")]})
        assert (refused.status_code, refused.headers["Retry-After"]) == (503, "5")
        engine.gate.set()
        begun.join(10)
    assert replies == ["secret-4 after 1"]
