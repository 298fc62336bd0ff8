"""A router's context is bounded, and a bank's draws are balanced, different and the same each time."""

from __future__ import annotations

from collections import Counter

import pytest

from loop.core.episode import Split
from loop.core.routing import RouteBank, RouteContext, RouteGroup, RouteKind


def bank(**changes: object) -> RouteBank:
    groups = (
        RouteGroup(kind=RouteKind.PLAIN, wanted=("L0",), messages=("I am {feeling}.", "Hello {name}, meet {name2}!")),
        RouteGroup(kind=RouteKind.PLAIN, wanted=("L1", "L0"), messages=("Call {name}.",)),
        RouteGroup(
            kind=RouteKind.FOLLOW_UP,
            wanted=("L1",),
            previous="L1",
            summaries=(("L1", "Called {name}."),),
            messages=("And {name2}?", "Ask {name} back."),
        ),
    )
    pools = {"name": ("Ann", "Bo", "Cy"), "feeling": ("glad", "sad")}
    return RouteBank(split=Split.TRAIN, pools=pools, groups=groups).revise(**changes)


def test_a_long_message_keeps_its_beginning_and_its_end() -> None:
    context = RouteContext(message="a" * 500 + "b" * 500)
    assert len(context.message) == 600
    assert context.message.startswith("aaa") and context.message.endswith("bbb") and "..." in context.message


def test_only_the_newest_summaries_are_kept_and_each_is_cut() -> None:
    context = RouteContext(message="m", summaries=(("L1", "old"), ("L2", "x" * 500), ("L3", "new")))
    assert [(label, len(text)) for label, text in context.summaries] == [("L2", 160), ("L3", 3)]
    assert context.text.endswith("new\nm")


def test_draws_are_different_cases_in_turn_from_every_class() -> None:
    drawn = bank().draw(10, 5)
    assert len({case.context for case in drawn}) == len({case.id for case in drawn}) == 10
    assert Counter(case.label for case in drawn) == {"L0": 5, "L1": 5}
    assert drawn == bank().draw(10, 5) != bank().draw(10, 6)
    assert drawn[:4] == bank().draw(4, 5)


def test_a_slot_has_one_value_in_a_case_and_a_numbered_one_another() -> None:
    for case in bank().draw(12, 1):
        words = case.context.text
        assert "{" not in words
        if "Ask" in words:
            called = words.split("Called ")[1].split(".")[0]
            assert f"Ask {called} back." in words
        if "meet" in words:
            first, second = words.removeprefix("Hello ").rstrip("!").split(", meet ")
            assert first != second


def test_a_bank_that_is_used_up_gives_what_it_has() -> None:
    plain = RouteGroup(kind=RouteKind.PLAIN, wanted=("L0",), messages=("one {x}", "two"))
    fixed = RouteBank(split=Split.HOLDOUT, groups=(plain,))
    assert sorted(case.context.message for case in fixed.cases) == ["one {x}", "two"]
    assert len(fixed.draw(50, 3)) == 2
    # By hand: 2 feelings, 6 ordered pairs and 3 names plain; 6 pairs and 3 names after a turn.
    assert len(bank().draw(500, 3)) <= 2 + 6 + 3 + 6 + 3


def test_a_slot_without_a_pool_is_refused() -> None:
    with pytest.raises(ValueError, match="feeling"):
        bank(pools={"name": ("Ann",)})
