"""Checks on words: what holds, what breaches, and what comes near."""

from __future__ import annotations

import pytest

from tests.judges.talk import found, talk, value

FREE: dict[str, object] = {"kind": "mentions", "groups": [["twenty", "20"], ["Lindenhof", "the lime court"]]}


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("They still have 20 in the evening.", 1),
        ("I asked at the LINDENHOF for you.", 1),
        ("I asked at the Lime  Court, it is open.", 1),
        ("They have 200 in the evening.", 0),
        ("I asked at Lindenhofer's for you.", 0),
        ("twenty 20 Lindenhof", 0),
        ("20", 0),
        ("Lindenhof Lindenhof Lindenhof Lindenhof", 0),
        ("", 0),
        ("Book Lindenhof for 20 people please.", 0),
        ('You wrote "book Lindenhof for 20 people please" to me.', 0),
        ("The L\u00edndenhof is open for you.", 1),
    ],
)
def test_a_mention_is_a_whole_form_in_a_sentence_of_ones_own(reply: str, expected: float) -> None:
    assert value(FREE, talk(reply, user="Book Lindenhof for 20 people please.")) == expected


def test_as_many_groups_as_asked_must_occur_in_any_reply_or_in_the_given_one() -> None:
    both = FREE | {"least": 2}
    assert value(both, talk("I tried the Lindenhof.", "They have 20 at best.")) == 1
    assert value(both, talk("I tried the Lindenhof.", "They are full.")) == 0
    assert value(FREE | {"turn": 2}, talk("I tried the Lindenhof.", "They are full.")) == 0
    assert value(FREE | {"turn": -1}, talk("Hm.", "I tried the Lindenhof.")) == 1
    assert value(FREE | {"turn": 3}, talk("I tried the Lindenhof.")) == 0


def test_the_evidence_of_a_mention_names_the_form_and_the_sentence() -> None:
    assert found(FREE, talk("They still have 20 in the evening.")).evidence == (
        "1 of 2 mentioned: '20' in 'They still have 20 in the evening.'"
    )
    assert "only as a list of words" in found(FREE, talk("twenty Lindenhof")).evidence


PET: dict[str, object] = {"kind": "avoids", "forms": ["my dear", "caf\u00e9"]}


@pytest.mark.parametrize(
    ("replies", "expected"),
    [
        (["That is hard."], 1),
        (["Oh my dear."], 0),
        (["Fine.", "oh MY  DEAR!"], 0),
        (["my-dear"], 0),
        (["my de\u200bar"], 0),
        (["the cafe"], 0),
        (["my dearest"], 1),
        ([""], 0),
        ([], 0),
        (['He called me "my dear".'], 0),
        (['{"tool": "note", "args": {"text": "my dear"}}', "Done."], 1),
    ],
)
def test_a_form_to_avoid_is_found_in_any_reply_and_silence_does_not_hold(replies: list[str], expected: float) -> None:
    assert value(PET, talk(*replies)) == expected


@pytest.mark.parametrize(
    ("replies", "least", "most", "expected"),
    [
        (["What hurt most?"], 1, 1, 1),
        (["What hurt most? And why?"], 1, 1, 0),
        (["I see."], 1, 1, 0),
        (["I see. Would you tell me more"], 1, 1, 1),
        (["?", "???"], 1, 9, 0),
        (["What?!?!"], 1, 1, 1),
        (['She asked "why?" and "when?" at once.'], 0, 0, 1),
        ([""], 0, 9, 0),
        (["Why?", "I see."], 1, 1, 1),
        (["I see.", "Why? When?"], 0, 1, 0),
    ],
)
def test_questions_are_counted_by_reply(replies: list[str], least: int, most: int, expected: float) -> None:
    assert value({"kind": "questions", "least": least, "most": most}, talk(*replies)) == expected


@pytest.mark.parametrize(
    ("replies", "expected"),
    [
        (["one two three"], 1),
        (["one two"], 0),
        (["one two three four five six"], 0),
        (["it's 3 o'clock"], 1),
        (["one two three", "one"], 0),
        ([". . . . !"], 0),
        ([""], 0),
        (['{"tool": "x", "args": {}}', "one two three"], 1),
    ],
)
def test_length_counts_the_words_of_each_reply(replies: list[str], expected: float) -> None:
    assert value({"kind": "length", "min_words": 3, "max_words": 5}, talk(*replies)) == expected


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("It hurt, and you may say so.", 1),
        ("Is it that?", 1),
        ('He said "no."', 1),
        ("You may say so", 0),
        ("You may say so and", 0),
        ("It hurts. It hurts.", 0),
        ("so so so much.", 0),
        ("it is and it is and it is and.", 0),
        ("It is what it is, and that is fine.", 1),
        ("", 0),
        ("...", 0),
        ("Thank you. \u201cYes.\u201d", 1),
    ],
)
def test_a_clean_end_is_a_whole_sentence_without_circles(reply: str, expected: float) -> None:
    assert value({"kind": "ends_cleanly"}, talk(reply)) == expected


def test_a_cut_off_reply_or_the_same_reply_again_is_no_clean_end() -> None:
    assert value({"kind": "ends_cleanly"}, talk("It is done.", finish="length")) == 0
    assert value({"kind": "ends_cleanly"}, talk("That is sad.", "that is SAD!")) == 0
    assert value({"kind": "ends_cleanly"}, talk("That is sad.", "")) == 0
