"""OpenAI's own client, unmodified, on responses that are kept: gone on from, branched, cancelled and deleted."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pytest

from loop.core.access import Quota, Scope
from loop.serve.turns import Turns
from loop.store.access import SqlAccess
from tests.serve.http.started import TOOL, Spelling, engine, kept_turns, serving, turns, url

__all__ = ["engine", "turns", "url"]

WEATHER: Any = {"type": "function", "name": "get_weather", "description": "Now.", "parameters": TOOL, "strict": False}


def client(url: str, key: str = "any") -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)


def until(holds: Callable[[], bool]) -> None:
    for _ in range(500):
        if holds():
            return
        time.sleep(0.02)
    raise AssertionError("it never came to hold")


def test_a_conversation_with_tools_goes_on_by_ids_after_the_server_was_started_again(
    engine: Spelling, tmp_path: Path
) -> None:
    with kept_turns(engine, tmp_path) as turns, serving(turns) as (url, _):
        asked = "L1: secret-7, what is the weather in Oslo?"
        with client(url).responses.stream(model="macaron", input=asked, tools=[WEATHER]) as stream:
            first = stream.get_final_response()
        (call,) = first.output
        assert call.type == "function_call" and json.loads(call.arguments) == {"city": "Oslo"}
    engine.asked.clear()
    with kept_turns(engine, tmp_path) as turns, serving(turns) as (url, _):
        result: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "4 degrees"}]
        second = client(url).responses.create(
            model="macaron", input=result, previous_response_id=first.id, tools=[WEATHER]
        )
        assert second.output_text == "It is 4 degrees." and second.status == "completed"
        assert [bool(request.choices) for request in engine.asked] == [False]  # back to the caller, not routed
        branches = [
            client(url).responses.create(model="macaron", input="L1: so?", previous_response_id=second.id)
            for _ in range(2)
        ]
        assert [branch.output_text for branch in branches] == ["secret-7 after 2"] * 2
        assert client(url).responses.retrieve(second.id).output_text == "It is 4 degrees."


def test_a_client_that_keeps_its_items_itself_is_recognised(url: str, turns: Turns) -> None:
    items: list[Any] = [{"role": "user", "content": "L1: secret-8, the weather in Oslo"}]
    first = client(url).responses.create(model="macaron", input=items, tools=[WEATHER], instructions="Be brief.")
    items += [item.model_dump() for item in first.output]
    items.append({"type": "function_call_output", "call_id": first.output[0].call_id, "output": "rain"})  # type: ignore[union-attr]
    second = client(url).responses.create(model="macaron", input=items, tools=[WEATHER], instructions="Be brief.")
    entries = turns.kept.timeline("local", second.macaron["turn"]).entries  # type: ignore[attr-defined]
    assert [(entry.turn, entry.kind.value) for entry in entries if entry.kind.value in ("user", "reply", "tool")] == [
        (1, "user"),
        (1, "reply"),
        (1, "tool"),
        (1, "reply"),
    ]


def test_events_are_numbered_and_their_pieces_are_the_text(url: str) -> None:
    events = list(client(url).responses.create(model="macaron", input="L1: secret-2", stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.type for event in events][:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    told = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    last = events[-1]
    assert last.type == "response.completed" and told == last.response.output_text == "secret-2 after 1"


def test_instructions_are_told_once_and_what_is_not_to_be_kept_is_not(url: str, engine: Spelling) -> None:
    first = client(url).responses.create(model="macaron", input="L1: hi", instructions="Be kind.")
    client(url).responses.create(
        model="macaron", input="L1: more", instructions="Be kind.", previous_response_id=first.id
    )
    assert [m.content for m in engine.asked[-1].messages].count("Be kind.") == 1
    loose = client(url).responses.create(model="macaron", input="L1: hi", store=False)
    with pytest.raises(openai.NotFoundError):
        client(url).responses.retrieve(loose.id)


def test_a_response_in_the_background_ends_or_is_cancelled(url: str, engine: Spelling) -> None:
    responses = client(url).responses
    engine.gate.clear()
    kept, gone = (responses.create(model="macaron", input="L1: secret-1", background=True) for _ in range(2))
    assert (kept.status, gone.status) == ("queued", "queued")
    assert responses.cancel(gone.id).status == "cancelled"
    engine.gate.set()
    until(lambda: responses.retrieve(kept.id).status == "completed")
    assert responses.retrieve(kept.id).output_text == "secret-1 after 1"
    assert responses.retrieve(gone.id).status == responses.cancel(gone.id).status == "cancelled"
    with pytest.raises(openai.BadRequestError, match="came to no reply"):
        responses.create(model="macaron", input="L1: go on", previous_response_id=gone.id)


def test_with_the_last_response_of_a_conversation_its_turns_are_forgotten(url: str, turns: Turns) -> None:
    responses = client(url).responses
    first = responses.create(model="macaron", input="L1: secret-1")
    second = responses.create(model="macaron", input="L1: more", previous_response_id=first.id)
    turn = second.macaron["turn"]  # type: ignore[attr-defined]
    responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        responses.retrieve(first.id)
    assert turns.kept.exchange("local", turn).reply.text == "secret-1 after 2"
    responses.delete(second.id)
    with pytest.raises(LookupError):
        turns.kept.exchange("local", turn)


def test_another_owner_reaches_no_response(turns: Turns) -> None:
    access = SqlAccess(turns.kept.url)  # type: ignore[attr-defined]
    ana, bob = (access.create(owner, (Scope.CHAT,), Quota())[0] for owner in ("ana", "bob"))
    with serving(turns, access) as (url, _):
        mine = client(url, ana).responses.create(model="macaron", input="L1: secret-1")
        theirs = client(url, bob).responses
        for reach in (theirs.retrieve, theirs.delete, theirs.cancel):
            with pytest.raises(openai.NotFoundError):
                reach(mine.id)
        with pytest.raises(openai.NotFoundError):
            theirs.create(model="macaron", input="L1: go on", previous_response_id=mine.id)
        assert client(url, ana).responses.retrieve(mine.id).output_text == "secret-1 after 1"


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"previous_response_id": "resp_forged"}, "previous_response_id"),
        (
            {"input": [{"type": "function_call_output", "call_id": "call_forged", "output": ""}]},
            "no call 'call_forged'",
        ),
        ({"input": []}, "input"),
        ({"background": True, "stream": True}, "not streamed"),
        ({"tools": [{"type": "web_search"}]}, "tools.0"),
    ],
)
def test_bad_input_is_one_clear_sentence(url: str, asked: dict[str, Any], words: str) -> None:
    with pytest.raises(openai.BadRequestError, match=words):
        client(url).responses.create(**({"model": "macaron", "input": "L1: hi"} | asked))
