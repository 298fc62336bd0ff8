"""A turn: routed, answered from the specialist's own view, told to the others; all of it or nothing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loop.core.conversation import EntryKind, Say, Timeline, Turned
from loop.core.episode import Ask
from loop.core.hop import Hop
from loop.core.pair import Message
from loop.core.routing import RouteHow
from loop.mol.runtime import make_ready, turn
from tests.mol.turns import harness, keyed, played, say, talk

LONG = "Ana pays 40 euros on Friday. " * 40


def contents(ask: Ask) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in ask.messages]


def test_a_turn_is_routed_then_answered_and_a_short_reply_is_its_own_summary() -> None:
    turned, asked = talk(harness(), keyed, say("L1: find Ana"))
    assert [(ask.hop, ask.label) for ask in asked[0]] == [(Hop.ROUTE, "L0"), (Hop.ANSWER, "L1")]
    assert turned.reply.text == "L1 heard 2 messages."
    assert [(entry.kind.value, entry.made) for entry in turned.timeline.entries] == [
        ("user", "model"),
        ("reply", "model"),
        ("summary", "verbatim"),
    ]
    assert [route.how for route in turned.routes] == [RouteHow.ROUTED]


def test_a_specialist_sees_its_own_turns_word_for_word_and_those_of_others_as_summaries() -> None:
    _, asked = talk(harness(), keyed, say("L1: find Ana"), say("L2: write f"), say("L1: call her"))
    assert contents(asked[2][1]) == [
        ("system", "You are L1."),
        ("user", "L1: find Ana"),
        ("assistant", "L1 heard 2 messages."),
        ("user", "L2: write f"),
        ("assistant", "[L2] L2 heard 4 messages."),
        ("user", "L1: call her"),
    ]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.sampled_from(["L0", "L1", "L2"]), min_size=2, max_size=9))
def test_on_coming_back_a_view_begins_with_all_that_was_shown_and_said_before(labels: list[str]) -> None:
    said = [say(f"{label}: number {index}") for index, label in enumerate(labels)]
    _, asked = talk(harness(), keyed, *said)
    latest: dict[str, list[tuple[str, str]]] = {}
    for asks in asked:
        answer = next(ask for ask in asks if ask.hop is Hop.ANSWER)
        before = latest.get(answer.label, [])
        assert contents(answer)[: len(before)] == before
        latest[answer.label] = [*contents(answer), ("assistant", keyed(answer))]


def test_the_router_made_ready_has_read_all_but_the_next_words() -> None:
    turned, _ = talk(harness(), keyed, say("L1: a"), say("L2: b"))
    _, ahead = played(make_ready(harness(), turned.timeline), keyed)
    _, asks = played(turn(harness(), turned.timeline, say("L0: c")), keyed)
    assert [ask.hop for ask in ahead] == [Hop.ROUTE] and ahead[0].choices == asks[0].choices
    assert ahead[0].messages[:-1] == asks[0].messages[:-1]
    assert asks[0].messages[-1].content == f"{ahead[0].messages[-1].content}L0: c"


def test_the_router_is_shown_who_answered_before_and_what_came_of_it() -> None:
    _, asked = talk(harness(routed_after=1), keyed, say("L1: a"), say("L2: b"), say("L0: c"))
    assert asked[2][0].messages[-1].content.splitlines() == [
        "L2 answered: L2 heard 4 messages.",
        "Last: L2",
        "Message: L0: c",
    ]


@pytest.mark.parametrize("nonsense", ["L9", "", "route me to L2", "abstain"])
def test_whatever_the_router_says_a_registered_label_answers(nonsense: str) -> None:
    turned, _ = talk(harness(), lambda ask: nonsense if ask.hop is Hop.ROUTE else "Yes.", say("hello"))
    assert turned.routes[0].label == "L0" and turned.routes[0].how is RouteHow.ABSTAINED


def test_a_pinned_turn_asks_no_router() -> None:
    turned, asked = talk(harness(), keyed, say("hello", label="L2"))
    assert [ask.label for ask in asked[0]] == ["L2"] and turned.routes[0].how is RouteHow.PINNED
    with pytest.raises(LookupError):
        played(turn(harness(), Timeline(), say("hello", label="L9")), keyed)


def test_the_result_of_a_tool_goes_back_to_its_caller_within_the_same_turn() -> None:
    turned, asked = talk(harness(), keyed, say("L1: find Ana"), say('{"phone": 12}', role="tool"), say("L2: thanks"))
    assert [(ask.hop, ask.label) for ask in asked[1]] == [(Hop.ANSWER, "L1")]
    assert contents(asked[1][0])[-1] == ("tool", '{"phone": 12}')
    assert turned.timeline.turn == 2
    with pytest.raises(LookupError, match="no call yet"):
        played(turn(harness(), Timeline(), say("{}", role="tool")), keyed)


def test_memory_comes_before_the_first_words() -> None:
    words = (Message(role="system", content="The user is Ana."), Message(role="user", content="L1: hi"))
    _, asks = played(turn(harness(), Timeline(), Say(messages=words)), keyed)
    assert contents(asks[1])[1:] == [("system", "The user is Ana."), ("user", "L1: hi")]
    assert asks[0].messages[-1].content.endswith("Message: L1: hi")


def test_a_turn_that_breaks_off_leaves_the_timeline_as_it_was() -> None:
    turned, _ = talk(harness(), keyed, say("L1: a"))
    before = turned.timeline
    broken = turn(harness(), before, say("L2: b"))
    next(broken)
    broken.close()
    again, _ = played(turn(harness(), before, say("L2: b")), keyed)
    assert before == turned.timeline
    assert again.timeline.entries[: len(before.entries)] == before.entries


def test_several_intents_are_answered_in_order_by_their_specialists() -> None:
    rules = harness(intents="split")
    turned, asked = talk(rules, keyed, say("L1: find the number of Ana. L2: write a small function."))
    assert [(ask.hop.value, ask.label) for ask in asked[0]] == [
        ("route", "L0"),
        ("route", "L0"),
        ("answer", "L1"),
        ("answer", "L2"),
    ]
    assert turned.reply.text == "L1 heard 2 messages.\n\nL2 heard 4 messages."
    assert {(entry.turn, entry.part) for entry in turned.timeline.entries} == {(1, 1), (1, 2)}


def test_the_intents_after_a_call_wait_until_its_result_has_come_back() -> None:
    rules = harness(intents="split")

    def answers(ask: Ask) -> str:
        return "call" if ask.label == "L1" and ask.messages[-1].role == "user" else keyed(ask)

    def after(timeline: Timeline, words: Say) -> tuple[Turned, list[Ask]]:
        return played(turn(rules, timeline, words, lambda text: text == "call"), answers)

    first, asks = after(Timeline(), say("L1: find the number of Ana. L2: write f for it. L1: tell Bob of it."))
    assert [ask.label for ask in asks if ask.hop is Hop.ANSWER] == ["L1"] and first.reply.text == "call"
    second, asks = after(first.timeline, say('{"phone": 12}', role="tool"))
    assert [ask.label for ask in asks if ask.hop is Hop.ANSWER] == ["L1", "L2", "L1"]
    assert contents(asks[0])[1:] == [
        ("user", "L1: find the number of Ana."),
        ("assistant", "call"),
        ("tool", '{"phone": 12}'),
    ]
    assert contents(asks[1])[-1] == ("user", "L2: write f for it.")
    assert second.reply.parts == ("L1 heard 4 messages.", "L2 heard 4 messages.", "call") and second.reply.label == "L1"
    third, asks = after(second.timeline, say("told", role="tool"))
    assert contents(asks[0])[-3:] == [("user", "L1: tell Bob of it."), ("assistant", "call"), ("tool", "told")]
    assert third.timeline.turn == 1 and third.reply.parts == ()
    fourth, asks = after(third.timeline, say("L2: thanks"))
    assert fourth.timeline.turn == 2 and [ask.label for ask in asks] == ["L0", "L2"]


def test_what_others_are_told_of_a_call_is_brought_up_to_date_by_its_result() -> None:
    turned, _ = talk(harness(), keyed, say("L1: find Ana"), say('{"phone": 12}', role="tool"))
    part = next(turned.timeline.parts())
    assert [entry.kind.value for entry in part.entries] == ["user", "reply", "summary", "tool", "reply", "summary"]
    assert part.summary == part.entries[-1] and "L1 heard 4 messages." in part.entries[-1].content


def test_intents_of_one_specialist_stay_one_message() -> None:
    turned, asked = talk(harness(intents="split"), keyed, say("L1: find the number of Ana. L1: call her up now."))
    assert [ask.hop.value for ask in asked[0]] == ["route", "route", "answer"]
    assert asked[0][-1].messages[-1].content == "L1: find the number of Ana. L1: call her up now."
    assert len(turned.routes) == 1


def test_a_long_reply_is_summed_up_off_the_path_of_its_own_turn() -> None:
    def answers(ask: Ask) -> str:
        return {Hop.ROUTE: "L1", Hop.ANSWER: LONG, Hop.SUMMARY: "Ana pays 40 euros."}[ask.hop]

    turned, asked = talk(harness(), answers, say("when does she pay"))
    assert [ask.hop.value for ask in asked[0]] == ["route", "answer", "summary"]
    summary = asked[0][-1]
    assert summary.label == "L1" and summary.sampling.max_tokens == 192 and summary.sampling.temperature == 0
    assert contents(summary)[: len(asked[0][1].messages)] == contents(asked[0][1])
    assert turned.timeline.entries[-1].content == "Ana pays 40 euros."


def test_an_unfaithful_summary_is_made_again_and_then_taken_from_the_reply() -> None:
    written = iter(["Ana pays 50 euros.", "Bob pays 40 euros, says Bob and then Bob."])

    def answers(ask: Ask) -> str:
        return next(written) if ask.hop is Hop.SUMMARY else {Hop.ROUTE: "L1", Hop.ANSWER: LONG}[ask.hop]

    turned, asked = talk(harness(), answers, say("when does she pay"))
    assert [ask.sampling.temperature for ask in asked[0] if ask.hop is Hop.SUMMARY] == [0.0, 0.7]
    entry = turned.timeline.entries[-1]
    assert entry.made == "extract" and LONG.startswith(entry.content) and len(entry.content) <= 4 * 192


def test_what_many_others_did_becomes_one_note() -> None:
    said = [say(f"L1: request {index}") for index in range(5)]
    turned, asked = talk(harness(told_parts=3), keyed, *said, say("L2: and now"))
    view = contents(next(ask for ask in asked[-1] if ask.hop is Hop.ANSWER))
    digest = next(entry for entry in turned.timeline.entries if entry.kind is EntryKind.DIGEST)
    assert view == [("system", "You are L2."), ("system", digest.content), ("user", "L2: and now")]
    assert digest.content.count("[L1]") == 5 and digest.made == "verbatim"


def test_each_hop_is_in_the_ledger() -> None:
    turned, _ = talk(harness(), keyed, say("L1: find Ana"))
    assert [(hop.hop.value, hop.label, hop.prompt_tokens, hop.generated_tokens) for hop in turned.hops] == [
        ("route", "L0", 2, 1),
        ("answer", "L1", 2, 1),
    ]
