"""A message that asks for several things, cut into the pieces that could be answered one by one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from loop.core.wording import sentences

LEAST_WORDS = 3
MOST_PIECES = 6

# A piece as its first and past-the-last character in the message.
Span = tuple[int, int]

_JOINTS = re.compile(
    r";\s+|,?\s+(?:and then|and also|and after that|after that|then also|und dann|und außerdem|et puis|et aussi|"
    r"y luego|y también|e poi|e também|en dan)\s+",
    re.IGNORECASE,
)
_MARK = re.compile(r"^\s*(?:[-*\u2022]|\d{1,2}[.)])\s+")
_FENCE = re.compile(r"^\s*(?:```|~~~)")
_WRITTEN = re.compile(
    r"[{}]|^(?: {2,}|\t)\S|^(?:#|//|>>>|@\w)|^(?:def|class) .*:\s*$|^import \w|^from \S+ import |^return\b"
)


def pieces(message: str) -> tuple[str, ...]:
    """The pieces of a message in order: its lines, sentences and clauses that a joint like "and then" starts.

    A piece of fewer than three words belongs to the one before it. Lines of code or data are
    one piece, with the words right below them, or with those before that end in a colon. A
    message of more than six pieces is one: it is a text, no list of intents.
    """
    return tuple(message[start:end] for start, end in _spans(message))


def together(message: str, labels: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The pieces with their labels; neighbours that one label answers are one intent again, as they were written."""
    merged: list[tuple[Span, str]] = []
    for span, label in zip(_spans(message), labels, strict=True):
        if merged and merged[-1][1] == label:
            merged[-1] = ((merged[-1][0][0], span[1]), label)
        else:
            merged.append((span, label))
    return tuple((message[start:end], label) for (start, end), label in merged)


def _spans(message: str) -> tuple[Span, ...]:
    kept: list[Span] = []
    joins = was_written = False  # joins: the next piece belongs to the last one
    for start, end, is_written in _blocks(message):
        for a, b in [(start, end)] if is_written else _clauses(message, start, end):
            before = message[kept[-1][0] : kept[-1][1]] if kept else ""
            is_short = len(message[a:b].split()) < LEAST_WORDS and not is_written
            if kept and (joins or is_short or (is_written and not was_written and before.endswith(":"))):
                kept[-1] = (kept[-1][0], b)
            else:
                kept.append((a, b))
            joins, was_written = False, is_written
        joins = is_written and message[end : end + 2].strip("\r\n") != "" and message[end : end + 1] == "\n"
    return tuple(kept) if 0 < len(kept) <= MOST_PIECES else ((0, len(message)),)


def _blocks(message: str) -> Iterator[tuple[int, int, bool]]:
    """Lines that hold words, one by one, and runs of lines of code or data as one; (start, end, is_written)."""
    run: Span | None = None
    is_fenced = False
    start = 0
    for line in message.split("\n"):
        end = start + len(line)
        is_fence = bool(_FENCE.match(line))
        if is_fenced or is_fence or _WRITTEN.search(line):
            run = (run[0] if run else start, end)
        else:
            if run:
                yield (*run, True)
            run = None
            if line.strip():
                yield start, end, False
        is_fenced ^= is_fence
        start = end + 1
    if run:
        yield (*run, True)


def _clauses(message: str, start: int, end: int) -> Iterator[Span]:
    """The clauses of one line; one that quotes code is not cut, for it might be cut within the code."""
    mark = _MARK.match(message[start:end])
    start += mark.end() if mark else 0
    if "`" in message[start:end]:
        yield from _words_in(message, start, end)
        return
    for sentence in sentences(message[start:end]):
        start = message.index(sentence, start)
        after = start + len(sentence)
        for joint in _JOINTS.finditer(sentence):
            yield from _words_in(message, start, after - len(sentence) + joint.start())
            start = after - len(sentence) + joint.end()
        yield from _words_in(message, start, after)
        start = after


def _words_in(message: str, start: int, end: int) -> Iterator[Span]:
    text = message[start:end]
    if text.strip():
        yield start + len(text) - len(text.lstrip()), start + len(text.rstrip())
