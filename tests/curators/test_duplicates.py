"""What counts as a near duplicate, and what must not."""

from __future__ import annotations

import pytest

from loop.curators.duplicates import near_duplicates
from loop.curators.wording import anchors, is_prose, shingles
from tests.curators.rows import BagOfWords, row

EMBEDDER = BagOfWords()
CALL = '{{"tool": "set_alarm", "args": {{"day": "{day}", "hour": {hour}}}}}'
REPLY = (
    "I hear how tired you are after that long shift, and it makes sense that the quiet house feels heavy tonight; "
    "perhaps call your sister before you decide anything, and tell me tomorrow how it went if you like"
)


def test_calls_of_one_template_with_other_slots_all_stay() -> None:
    rows = [
        row(f"{day}{hour}", CALL.format(day=day, hour=hour), request=f"Can you set an alarm on {day} at {hour}?")
        for day in ("Monday", "Tuesday", "Friday")
        for hour in (7, 8, 18)
    ]
    assert near_duplicates(rows, EMBEDDER, 0.9) == (False,) * 9


def test_programs_that_differ_in_an_operator_or_a_name_all_stay() -> None:
    rows = [
        row(f"t{i}", f"def f(a, b):\n    return {body}", request=f"Write f(a, b) that returns {body}.")
        for i, body in enumerate(["a * 4 + b", "a * 4 - b", "b * 4 - a", "max(a, b) + 4", "min(a, b) + 4"])
    ]
    assert near_duplicates(rows, EMBEDDER, 0.9) == (False,) * 5


def test_the_same_exchange_under_another_task_is_a_duplicate_in_its_case_only() -> None:
    text = CALL.format(day="Monday", hour=7)
    asked = "Can you set an alarm on Monday at 7?"
    rows = [row("a", text, request=asked), row("b", text, request=asked), row("c", text, request=asked, case="other")]
    assert near_duplicates(rows, EMBEDDER, 0.9) == (False, True, False)


def test_a_long_reply_with_one_word_changed_is_a_duplicate() -> None:
    other = REPLY.replace("quiet", "silent")
    rows = [row("a", REPLY, request="my day was long"), row("b", other, request="my day was long")]
    assert near_duplicates(rows, EMBEDDER, 0.9) == (False, True)


def test_reordered_prose_is_a_duplicate_by_meaning_but_not_with_another_number() -> None:
    said = "we walked the dog for 3 miles by the river and then had soup"
    moved = "then had soup and we walked the dog for 3 miles by the river"
    other = "then had soup and we walked the dog for 8 miles by the river"
    rows = [row(name, text, request="hello there") for name, text in (("a", said), ("b", moved), ("c", other))]
    assert near_duplicates(rows, EMBEDDER, 0.9) == (False, True, False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("Call Ana at 5. Then go", {"ana", "5"}), ("the end", set()), ("Nice! Paul said to Ben\nYes", {"ben"})],
)
def test_anchors_are_numbers_and_names_inside_sentences(text: str, expected: set[str]) -> None:
    assert anchors(text) == expected


def test_code_and_calls_are_not_prose() -> None:
    assert is_prose("The number of Paul is 555-1234.")
    assert not is_prose('{"tool": "x"}')
    assert not is_prose("return a if a > b else b")


def test_shingles_with_operators_tell_a_sum_from_a_difference() -> None:
    assert shingles("a + b", 3, operators=True) == {"a + b"}
    assert shingles("a + b", 3) == {"a b"}


def test_shingles_of_a_short_text_are_the_text() -> None:
    assert shingles("Cancel the exam.", 8) == {"cancel the exam"}
    assert shingles("", 8) == frozenset()
    assert shingles("a b c d", 3) == {"a b c", "b c d"}
