"""What the agent may write: parsing of replies, reading of reports, and hostile text."""

from __future__ import annotations

import json

import pytest

from loop.environments.tools_protocol import Reply, parse, reported, tells
from loop.environments.tools_world import World, empty_state, fits, schema, template

TOOLS = ("find_phone", "add_event")


def test_a_call_is_one_json_object_with_the_tool_and_its_arguments() -> None:
    reply = parse('  {"tool": "find_phone", "name": "Mia"}\n', TOOLS)
    assert reply == Reply(tool="find_phone", arguments={"name": "Mia"})


def test_a_say_is_one_json_object_with_a_text() -> None:
    assert parse('{"say": "It failed."}', TOOLS) == Reply(say="It failed.")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "find_phone(Mia)",
        '{"tool": "find_phone", "name": "Mia"} done',
        '{"tool": "find_phone", "name": "Mia"}{"say": "x"}',
        '["find_phone"]',
        "null",
        '{"say": ""}',
        '{"say": 3}',
        '{"say": "x", "tool": "find_phone"}',
        '{"tool": "get_price", "item": "lamp"}',
        '{"tool": ["find_phone"], "name": "Mia"}',
        '{"tool": "find_phone"}',
        '{"tool": "find_phone", "name": 7}',
        '{"tool": "find_phone", "name": "Mia", "ok": true}',
        '{"tool": "add_event", "title": "x", "day": "Monday", "hour": "9"}',
        '{"tool": "add_event", "title": "x", "day": "Monday", "hour": true}',
        '{"tool": "add_event", "title": "x", "day": "Monday", "hour": 9.5}',
        '{"tool": "add_event", "title": "x", "day": "Monday", "hour": -1}',
        '{"tool": "add_event", "title": "x", "day": "Monday", "hour": NaN}',
        '{"tool": "add_event", "title": "x", "day": "Monday", "hour": 1e999}',
        '{"tool": "add_event", "title": "x", "day": "Monday", "hour": ' + "9" * 5000 + "}",
        '{"tool": "find_phone", "name": "\\ud800"}',
        '{"tool": "find_phone", "name": "a\\u0000b"}',
        '{"say": "\\ud800"}',
        '{"tool": "find_phone", "name": "' + "a" * 500 + '"}',
        "[" * 100_000,
        '{"a":' * 100_000,
    ],
)
def test_anything_else_is_refused_with_a_reason(text: str) -> None:
    reply = parse(text, TOOLS)
    assert reply.error and reply.say is None and reply.arguments == {}
    reply.digest.encode()


@pytest.mark.parametrize(
    ("say", "claim"),
    [
        ("It failed.", "failure"),
        ("Sorry, I could not reach them.", "failure"),
        ("There is no free hour, the day is full.", "failure"),
        ("It was not done.", "failure"),
        ("Done.", "success"),
        ("The event was added.", "success"),
        ("All set!", "success"),
        ("555-1234", "success"),
        ("Hello there", "none"),
        ("555-12345", "none"),
        (None, "none"),
    ],
)
def test_a_report_is_read_by_rules_and_failure_wins(say: str | None, claim: str) -> None:
    assert reported(say, ["555-1234"]) == claim


@pytest.mark.parametrize(
    ("say", "value", "told"),
    [("It is 24.", 24, True), ("It is 240", 24, False), ("24.5", 24, False), ("1.24", 24, False), ("a 24 b", 24, True)],
)
def test_a_value_is_told_as_a_whole_word(say: str, value: int, told: bool) -> None:
    assert tells(say, [value]) is told


def test_a_tool_is_shown_as_its_own_call_with_the_arguments_open() -> None:
    assert template("add_event") == '{"tool": "add_event", "title": ..., "day": ..., "hour": ...}'
    assert schema("add_event")["required"] == ["title", "day", "hour"]
    assert fits("add_event", {"title": "x", "day": "Monday", "hour": 9})


def test_conversions_agree_with_tables() -> None:
    # NIST Handbook 44, appendix C: 1 km = 0.621371 mile, 1 kg = 2.204623 pounds; answers have one decimal.
    world = World(empty_state())
    assert world.call("convert_length", {"km": 42}) == {"miles": 26.1}
    assert world.call("convert_weight", {"kg": 10}) == {"pounds": 22}
    assert world.call("convert_time", {"hours": 1.5}) == {"minutes": 90}


def test_a_failed_call_changes_nothing() -> None:
    world = World(empty_state())
    assert world.call("add_event", {"title": "Chess", "day": "Monday", "hour": 9}) == {"ok": True}
    before = json.dumps(world.state)
    assert "error" in world.call("add_event", {"title": "yoga", "day": "monday", "hour": 9})
    assert "error" in world.call("cancel_event", {"title": "opera"})
    assert "error" in world.call("move_event", {"title": "opera", "day": "Monday", "hour": 3})
    assert "error" in world.call("cancel_order", {"order": 77})
    assert "error" in world.call("find_phone", {"name": "Nobody"})
    assert json.dumps(world.state) == before


def test_text_is_compared_without_case_and_spacing() -> None:
    world = World(empty_state())
    world.call("add_event", {"title": "  Chess ", "day": "MONDAY", "hour": 9.0})
    assert world.state["calendar"] == {"chess": {"day": "monday", "hour": 9}}


def test_an_order_is_placed_under_the_next_number() -> None:
    world = World(empty_state() | {"next_order": 41})
    assert world.call("place_order", {"count": 2, "item": "lamp"}) == {"ok": True, "order": 41}
    assert world.call("place_order", {"count": 1, "item": "pot"}) == {"ok": True, "order": 42}
    assert world.state["orders"]["41"] == {"count": 2, "item": "lamp", "status": "placed"}
