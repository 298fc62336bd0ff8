"""What a specialist is shown: its own turns word for word, those of others as summaries."""

from __future__ import annotations

from collections.abc import Iterator

from loop.core.conversation import Entry, EntryKind, Part, Timeline
from loop.core.pair import Harness, Message, Prompt, Role

_ROLES: dict[EntryKind, Role] = {
    EntryKind.MEMORY: "system",
    EntryKind.USER: "user",
    EntryKind.REPLY: "assistant",
    EntryKind.TOOL: "tool",
}


def view(harness: Harness, timeline: Timeline, label: str) -> tuple[Message, ...]:
    """The messages of one specialist, the harness's prompt first.

    A function of the timeline alone, and every later view begins with an earlier one (until a
    digest shortens it), so that an engine's cache of the prefix holds. Raises LookupError
    while another specialist's part has no summary yet.
    """
    return (*opening(harness.prompt(label), timeline.tools), *_lines(timeline, label))


def opening(prompt: Prompt, tools: bool | None) -> tuple[Message, ...]:
    """The harness's messages, with the exemplars most like the conversation nearest to it.

    Those that use a tool come last where tools are offered and first elsewhere: a small
    model imitates the last form it saw (measured: with tool exemplars last it answers small
    talk with JSON, with them first it never calls a tool). None keeps the harness's order.
    """
    if tools is None:
        return prompt.messages()
    ordered = sorted(prompt.exemplars, key=lambda shot: any(m.role == "tool" for m in shot) is tools)
    return prompt.revise(exemplars=tuple(ordered)).messages()


def foreign(timeline: Timeline, label: str) -> tuple[Part, ...]:
    """The finished parts of others that this specialist's view tells of, past its digest."""
    covered = timeline.digest_for(label)
    since = covered.turn if covered else 0
    return tuple(part for part in timeline.parts() if part.owner not in ("", label) and part.turn > since)


def _lines(timeline: Timeline, label: str) -> Iterator[Message]:
    digest = timeline.digest_for(label)
    if digest is not None:
        yield Message(role="system", content=digest.content)
    told = {(part.turn, part.part) for part in foreign(timeline, label)}
    for part in timeline.parts():
        if part.owner in ("", label):
            yield from (_message(entry) for entry in part.entries if entry.kind in _ROLES)
        elif (part.turn, part.part) in told:
            yield from _told(part)


def _told(part: Part) -> Iterator[Message]:
    summary = part.summary
    if summary is None:
        raise LookupError(f"turn {part.turn}, part {part.part} has no summary yet")
    yield from (_message(entry) for entry in part.entries if entry.kind in (EntryKind.MEMORY, EntryKind.USER))
    yield Message(role="assistant", content=f"[{part.owner}] {summary.content}")


def _message(entry: Entry) -> Message:
    return Message(role=_ROLES[entry.kind], content=entry.content)
