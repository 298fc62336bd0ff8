"""Conversations in the store: whole turns, branches, late summaries, and nobody else's."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from loop.core.conversation import (
    Entry,
    EntryKind,
    Exchange,
    Reply,
    Summed,
    Timeline,
    exchange_of,
    history_of,
)
from loop.core.pair import Message
from loop.mol.runtime import turn
from loop.store.conversations import SqlConversations
from tests.mol.turns import harness, keyed, played, say

LATE = Entry(turn=1, kind=EntryKind.SUMMARY, content="late", label="L1")


@pytest.fixture
def kept(url: str) -> SqlConversations:
    return SqlConversations(url)


def exchange(number: int, text: str = "yes", summary: str = "") -> Exchange:
    entries = [Entry(turn=number, kind=EntryKind.USER, content=f"request {number}")]
    if summary:
        entries.insert(0, Entry(turn=number - 1, kind=EntryKind.SUMMARY, content=summary, label="L1"))
    reply = Entry(turn=number, kind=EntryKind.REPLY, content=text, label="L1")
    return Exchange(added=(*entries, reply), reply=Reply(text=text), history=f"{number}:{text}")


def texts(timeline: Timeline) -> list[str]:
    return [entry.content for entry in timeline.entries]


def test_a_conversation_goes_on_after_the_process_is_gone(kept: SqlConversations) -> None:
    rules, said, before, last = harness(), list[Message](), Timeline(), None
    for text in ("L1: find Ana", "L2: write f", "L1: call her"):
        turned, asks = played(turn(rules, before, say(text)), keyed)
        said += [Message(role="user", content=text), Message(role="assistant", content=turned.reply.text)]
        last = kept.append("ana", last, exchange_of(before, turned, history_of(said)))
        # as another process would: the timeline from the database, the turn from the client's own history
        before = SqlConversations(kept.url).timeline("ana", last)
        assert before == turned.timeline
        assert SqlConversations(kept.url).find("ana", history_of(said)) == last
    assert [m.content for m in asks[-1].messages][-3:] == ["L2: write f", "[L2] L2 heard 4 messages.", "L1: call her"]


def test_what_belongs_to_another_owner_is_not_there(kept: SqlConversations) -> None:
    first = kept.append("ana", None, exchange(1))
    for attempt in (
        lambda: kept.timeline("bob", first),
        lambda: kept.exchange("bob", first),
        lambda: kept.append("bob", first, exchange(2)),
        lambda: kept.sum_up("bob", first, Summed(entries=(LATE,))),
        lambda: kept.forget("bob", first),
        lambda: kept.timeline("ana", "turn_0"),
    ):
        with pytest.raises(LookupError, match="there is no turn"):
            attempt()
    assert kept.find("bob", exchange(1).history) is None
    assert texts(kept.timeline("ana", first)) == ["request 1", "yes"]


def test_two_that_go_on_from_one_turn_are_two_branches(kept: SqlConversations) -> None:
    first = kept.append("ana", None, exchange(1))
    with ThreadPoolExecutor(8) as pool:
        names = list(pool.map(lambda n: kept.append("ana", first, exchange(2, f"branch {n}")), range(8)))
    assert len(set(names)) == 8
    for number, name in enumerate(names):
        assert texts(kept.timeline("ana", name)) == ["request 1", "yes", "request 2", f"branch {number}"]


def test_a_late_summary_stands_with_its_turn_and_the_first_stays(kept: SqlConversations) -> None:
    first = kept.append("ana", None, exchange(1))
    kept.sum_up("ana", first, Summed(entries=(LATE,)))
    kept.sum_up("ana", first, Summed(entries=(LATE.revise(content="later"),)))
    second = kept.append("ana", first, exchange(2))
    assert texts(kept.timeline("ana", second)) == ["request 1", "yes", "late", "request 2", "yes"]


def test_a_turn_that_did_not_wait_keeps_the_summary_it_used(kept: SqlConversations) -> None:
    first = kept.append("ana", None, exchange(1))
    second = kept.append("ana", first, exchange(2, summary="own"))
    kept.sum_up("ana", first, Summed(entries=(LATE,)))
    assert texts(kept.timeline("ana", second)) == ["request 1", "yes", "own", "request 2", "yes"]
    assert texts(kept.timeline("ana", first)) == ["request 1", "yes", "late"]


def test_forgetting_takes_every_branch_and_no_other_conversation(kept: SqlConversations) -> None:
    first = kept.append("ana", None, exchange(1))
    second = kept.append("ana", first, exchange(2))
    kept.append("ana", first, exchange(2, "other"))
    kept.sum_up("ana", first, Summed(entries=(LATE,)))
    apart = kept.append("ana", None, exchange(1))
    assert kept.forget("ana", second) == 3
    for name in (first, second):
        with pytest.raises(LookupError):
            kept.timeline("ana", name)
    assert texts(kept.timeline("ana", apart)) == ["request 1", "yes"]


def test_a_turn_that_does_not_append_is_refused() -> None:
    before = Timeline(entries=(LATE,))
    turned, _ = played(turn(harness(), Timeline(), say("L1: a")), keyed)
    with pytest.raises(ValueError, match="only append"):
        exchange_of(before, turned, "")
