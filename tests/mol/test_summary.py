"""A summary says nothing that its part does not bear out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loop.core.conversation import Entry, EntryKind, Part
from loop.mol.intents import pieces, together
from loop.mol.summary import clipped, doubts

PART = Part(
    turn=1,
    part=1,
    entries=(
        Entry(turn=1, kind=EntryKind.USER, content="Please move the lunch with Ana to Friday at 12:30."),
        Entry(turn=1, kind=EntryKind.TOOL, content='{"ok": true, "event": 17}', label="L1"),
        Entry(turn=1, kind=EntryKind.REPLY, content="I have moved the lunch with Ana to Friday.", label="L1"),
    ),
)


@pytest.mark.parametrize(
    "summary",
    ["The lunch with Ana was moved to Friday at 12:30.", "Lunch with Ana is on Friday now, event 17.", "Moved it."],
)
def test_what_the_part_says_is_borne_out(summary: str) -> None:
    assert doubts(summary, PART) == ()


@pytest.mark.parametrize(
    ("summary", "about"),
    [
        ("The lunch with Ana was moved to 14:30.", "number"),
        ("The lunch with Bruno was moved to Friday.", "name Bruno"),
        ("", "nothing"),
        ("I could not move the lunch with Ana.", "opposite"),
        ("Обед с Аной перенесён.", "script"),
    ],
)
def test_what_it_does_not_say_is_named(summary: str, about: str) -> None:
    assert any(about in doubt for doubt in doubts(summary, PART))


def test_an_extract_is_whole_sentences_where_one_fits() -> None:
    assert clipped("One is here. Two is there. Three.", 7) == "One is here. Two is there."
    assert clipped("x" * 100, 5) == "x" * 20


@pytest.mark.parametrize(
    ("message", "found"),
    [
        ("Book a table and then write a sorting function.", 2),
        ("Trag den Termin ein und dann schreib mir ein Gedicht.", 2),
        ("1. call the plumber today\n2. summarise this long text", 2),
        ("Fix this please:\n```\ndef f(a):\n    return a; print(a)\n```", 1),
        ("Thanks. Yes.", 1),
        ("Cancel the lunch with Ana.\n\n# f(2, 3) = 5\n# sum of p and q\ndef f(p, q):", 2),
        ("# f(2, 3) = 5\ndef f(p, q):\n\nCancel the lunch with Ana.", 2),
        ('# f(2, 3) = 5\ndef f(p, q):\n\n{"tool": "cancel"}\nCancel the lunch with Ana.', 2),
        ("# f(2, 3) = 5\ndef f(p, q):\nWhat is wrong with it?", 1),
        ('{"tool": "move_event", "title": ...}\nMove the lunch to Sunday, please. And also write a poem.', 2),
        ("Run `ls` for me please. Then say what it is.\nBook a table for two.", 2),
        ("Salt and pepper please.", 1),
    ],
)
def test_a_message_is_cut_at_its_intents(message: str, found: int) -> None:
    assert len(pieces(message)) == found


def test_neighbours_of_one_label_are_one_intent() -> None:
    message = '- Call the plumber today,  and then\twrite to Ana.\n2) Say "now it is good." Sort the list.'
    assert pieces(message) == ("Call the plumber today", "write to Ana.", 'Say "now it is good.', "Sort the list.")
    assert together(message, ["L0", "L0", "L1", "L1"]) == (
        ("Call the plumber today,  and then\twrite to Ana.", "L0"),
        ('Say "now it is good." Sort the list.', "L1"),
    )


WORDS = st.lists(st.sampled_from(["call Ana", "; ", " and then ", "\n", "\n\n", ". ", "{x}", "  y", "def f(a):", "é"]))


@given(WORDS)
def test_pieces_are_cut_out_of_the_message_in_order(parts: list[str]) -> None:
    message, place = "".join(parts), 0
    found = pieces(message)
    assert 1 <= len(found) <= 6
    for piece in found:
        place = message.index(piece, place) + len(piece)
    ((whole, label),) = together(message, ["L0"] * len(found))
    assert label == "L0" and whole in message and whole.startswith(found[0]) and whole.endswith(found[-1])
