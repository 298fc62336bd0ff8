"""Exports: what was said, redacted, of those alone who consent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from loop.core.conversation import Entry, EntryKind, Exchange, Reply, Timeline
from loop.core.living import Source
from loop.serve.export import episodes_of, export
from loop.store.conversations import SqlConversations
from loop.store.database import dispose
from loop.store.living import SqlLiving
from loop.store.migrate import upgrade


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    url = f"sqlite:///{tmp_path / 'loop.db'}"
    upgrade(url)
    yield url
    dispose(url)


def entry(turn: int, kind: EntryKind, content: str, part: int = 1, label: str = "") -> Entry:
    return Entry(turn=turn, part=part, kind=kind, content=content, label=label)


def said(url: str, owner: str, *turns: tuple[str, str]) -> str:
    """A conversation in the store; its last turn."""
    kept, last = SqlConversations(url), None
    for number, (user, reply) in enumerate(turns, start=1):
        added = (entry(number, EntryKind.USER, user), entry(number, EntryKind.REPLY, reply, label="L1"))
        last = kept.append(owner, last, Exchange(added=added, reply=Reply(text=reply), history=f"{user}{reply}"))
    assert last is not None
    return last


def test_an_export_holds_redacted_turns_of_consenting_owners(url: str) -> None:
    living = SqlLiving(url)
    living.decide("ana", True, "1", "test")
    said(url, "ana", ("Write to ana@example.org", "Done: ana@example.org"), ("And to bob@example.org", "Done."))
    said(url, "bob", ("I am bob@example.org", "Hello."))
    assert living.owners() == ("ana",)
    found = export(living, living.owners(), "f.json")
    (episode,) = found.episodes
    assert [(turn.role, turn.content, turn.label) for turn in episode.turns] == [
        ("user", "Write to [EMAIL_1]", ""),
        ("assistant", "Done: [EMAIL_1]", "L1"),
        ("user", "And to [EMAIL_2]", ""),
        ("assistant", "Done.", "L1"),
    ]
    assert found.redacted == {"EMAIL": 3} and episode.task.environment == "living"
    assert "ana" not in episode.task.case and living.talks("ana")[0].exported == 1
    assert export(living, ("bob",), "f.json").episodes == ()
    # the same export again is the same export
    assert export(living, ("ana",), "f.json") == found and living.talks("ana")[0].exported == 1


def test_a_message_that_was_answered_in_parts_is_one_again_and_notes_of_the_runtime_stay_inside() -> None:
    timeline = Timeline(
        entries=(
            entry(1, EntryKind.MEMORY, "The user is a friend."),
            entry(1, EntryKind.USER, "Find it."),
            entry(1, EntryKind.REPLY, "call", label="L1"),
            entry(1, EntryKind.TOOL, '{"found": 1}', label="L1"),
            entry(1, EntryKind.REPLY, "Found.", label="L1"),
            entry(1, EntryKind.SUMMARY, "a summary", label="L1"),
            entry(2, EntryKind.USER, "Sum it."),
            entry(2, EntryKind.REPLY, "Two.", label="L0"),
            entry(2, EntryKind.USER, "Then write it.", part=2),
            entry(2, EntryKind.REPLY, "Written.", part=2, label="L2"),
        )
    )
    ((episode,), counts) = episodes_of([Source(owner="a", opening="t", turn="t", timeline=timeline)])
    assert [(turn.role, turn.content) for turn in episode.turns] == [
        ("system", "The user is a friend."),
        ("user", "Find it."),
        ("assistant", "call"),
        ("tool", '{"found": 1}'),
        ("assistant", "Found."),
        ("user", "Sum it. Then write it."),
        ("assistant", "Two.\n\nWritten."),
    ]
    assert counts == {}
