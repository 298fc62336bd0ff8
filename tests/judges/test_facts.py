"""Checks on facts: the tool log, the world, and numbers that were shown."""

from __future__ import annotations

import pytest
from pydantic import JsonValue

from loop.core.episode import ToolCall
from loop.core.numbers import grounded, numbers
from loop.judges.checks_facts import at_path, matches
from tests.judges.talk import found, talk, value

CALL = ToolCall(turn=1, name="book", arguments={"place": "Old Mill", "party": 4, "note": "x"}, ok=True)
BOOK: dict[str, object] = {"kind": "tool_called", "name": "book", "args": {"place": "Old Mill", "party": 4}}


@pytest.mark.parametrize(
    ("calls", "more", "expected"),
    [
        ([CALL], {}, 1),
        ([CALL.revise(ok=False)], {}, 1),
        ([CALL.revise(ok=None)], {}, 0),
        ([CALL.revise(arguments={"place": "old mill", "party": 4.0})], {}, 1),
        ([CALL.revise(arguments={"place": "Old Mill", "party": 5})], {}, 0),
        ([CALL.revise(arguments={"place": "Old Mill"})], {}, 0),
        ([CALL.revise(arguments={"place": "Old Mill", "party": True})], {}, 0),
        ([CALL.revise(name="cancel")], {}, 0),
        ([], {}, 0),
        ([CALL.revise(turn=2)], {"by_turn": 1}, 0),
        ([CALL.revise(turn=2), CALL], {"by_turn": 1}, 1),
        ([CALL, CALL], {"times": 1}, 0),
        ([CALL, CALL], {"times": 2}, 1),
        ([], {"times": 0}, 1),
    ],
)
def test_a_call_counts_when_it_ran_with_the_arguments_in_time(
    calls: list[ToolCall], more: dict[str, object], expected: float
) -> None:
    assert value(BOOK | more, talk("Done.", calls=calls)) == expected


def test_the_evidence_of_a_missing_call_shows_the_log() -> None:
    wrong = CALL.revise(arguments={"place": "Old Mill", "party": 5})
    evidence = found(BOOK, talk("Done.", calls=[wrong])).evidence
    assert '"party": 4' in evidence and '"party": 5' in evidence and "turn 1" in evidence


@pytest.mark.parametrize(
    ("name", "calls", "expected"),
    [
        ("cancel", [CALL], 1),
        ("book", [CALL], 0),
        ("book", [CALL.revise(ok=False)], 0),
        ("book", [CALL.revise(ok=None)], 1),
        ("*", [CALL], 0),
        ("*", [], 1),
    ],
)
def test_a_call_that_the_world_refused_was_still_called(name: str, calls: list[ToolCall], expected: float) -> None:
    assert value({"kind": "tool_not_called", "name": name}, talk("Hello.", calls=calls)) == expected


def test_silence_holds_no_check_of_facts() -> None:
    for check in ({"kind": "tool_not_called", "name": "*"}, {"kind": "end_state", "path": "a", "equals": 1}):
        assert value(check, talk("", "  ", world={"a": 1})) == 0


WORLD: dict[str, JsonValue] = {
    "bookings": {"St. John's": {"party": 4, "tags": ["a", {"b": 1}]}, "x": None},
    "done": True,
    "n": 3.0,
}


@pytest.mark.parametrize(
    ("path", "equals", "expected"),
    [
        ("bookings.St. John's", {"party": 4}, 1),
        ("bookings.St. John's.party", 4, 1),
        ("bookings.St. John's.party", 5, 0),
        ("bookings.St. John's", {"party": 4, "hour": 19}, 0),
        ("bookings.St. John's.tags", ["a", {}], 1),
        ("bookings.St. John's.tags", ["a"], 0),
        ("bookings.St. John's.tags.1.b", 1, 1),
        ("bookings.St. John's.tags.9", 1, 0),
        ("bookings.Luna", {}, 0),
        ("bookings.x.y", 1, 0),
        ("done", True, 1),
        ("done", 1, 0),
        ("n", 3, 1),
    ],
)
def test_the_end_state_matches_mappings_as_subsets(path: str, equals: object, expected: float) -> None:
    assert value({"kind": "end_state", "path": path, "equals": equals}, talk("Done.", world=dict(WORLD))) == expected


def test_an_absent_value_is_told_from_a_false_one() -> None:
    assert (
        "nothing at 'a.c'"
        in found({"kind": "end_state", "path": "a.c", "equals": False}, talk(world={"a": {}})).evidence
    )
    assert matches("", "") and not matches("!", "?") and at_path({"a.b": {"c": 1}}, "a.b.c") == 1


SHOWN = 'Book Luna for 4 at 19:00. {"free_hours": [20, 21], "code": "A12", "price": 1250.5}'


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("Four people at seven pm.", 1),
        ("4 people at 7 p.m.", 1),
        ("At 19:00, or 20:00, or 9 pm.", 1),
        ("Seven o'clock is full.", 1),
        ("At 7 am.", 0),
        ("For 7 people.", 0),
        ("Half past seven.", 0),
        ("19:30 is free.", 0),
        ("The code is A12.", 1),
        ("The code is B12.", 0),
        ("It costs 1,250.50 euros.", 1),
        ("It costs 1,250 euros.", 0),
        ("One moment, that one is good.", 1),
        ("1. Luna is open.\n2. It is near.", 1),
        ("See you there.", 1),
        ("The 4th is free.", 1),
        ("Minus: -4 degrees.", 0),
        ("five hundred and twelve", 0),
        ("", 0),
    ],
)
def test_a_number_is_grounded_in_digits_in_words_or_as_a_clock_time(reply: str, expected: float) -> None:
    assert value({"kind": "grounded_numbers"}, talk(reply, shown=SHOWN)) == expected


def test_a_number_shown_only_later_is_not_grounded() -> None:
    two = talk("It is 35.", "It is 35.").revise(shown=("Hello.", "Hello.\nprice 35"))
    assert value({"kind": "grounded_numbers"}, two) == 0
    assert value({"kind": "grounded_numbers"}, two.revise(shown=("price 35", "price 35"))) == 1


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("twenty-one", [21]),
        ("one hundred and five", [105]),
        ("two thousand", [2000]),
        ("a dozen", [12]),
        ("3.5 and 1 000 and 12,500", [3.5, 1000, 12500]),
        ("2026-05-03", [2026, 5, 3]),
        ("$4, 4%, 4km", [4, 4, 4]),
        ("the seventh", [7]),
    ],
)
def test_numbers_are_read_as_people_write_them(text: str, plain: list[float]) -> None:
    assert [number.value for number in numbers(text)] == plain


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("noon", {720}),
        ("midnight", {0}),
        ("12 am", {0}),
        ("12:30 pm", {750}),
        ("quarter to 8", {465, 1185}),
        ("19h05", {1145}),
    ],
)
def test_clock_times_are_minutes_from_midnight(text: str, minutes: set[int]) -> None:
    assert numbers(text)[0].minutes == minutes
    assert not grounded(numbers("25:00")[0], numbers("1:00"))


def test_reports_outcome_reads_the_last_reply() -> None:
    check = {"kind": "reports_outcome", "tool": "book"}
    assert value(check, talk("It failed.", "It is booked.", calls=[CALL])) == 1
    assert value(check, talk("It is booked.", "Bye.", calls=[CALL])) == 0
    assert value(check, talk("Hello.", calls=[])) is None
    assert value(check, talk("", calls=[CALL])) == 0
    assert value(check, talk(calls=[CALL])) == 0
