"""A message that asks for several things, cut into the pieces that could be answered one by one."""

from __future__ import annotations

import re
from collections.abc import Sequence

from loop.core.wording import sentences

LEAST_WORDS = 3
MOST_PIECES = 6

_JOINTS = re.compile(
    r";\s+|,?\s+(?:and then|and also|and after that|after that|then also|und dann|und außerdem|et puis|et aussi|"
    r"y luego|y también|e poi|e também|en dan)\s+",
    re.IGNORECASE,
)
_MARK = re.compile(r"^\s*(?:[-*\u2022]|\d{1,2}[.)])\s+")


def pieces(message: str) -> tuple[str, ...]:
    """The pieces of a message in order: its lines, sentences and clauses that a joint like "and then" starts.

    A piece of fewer than three words belongs to the one before it. A message that is code or
    data (braces, backticks, indented lines) is one piece: its lines are no intents.
    """
    if _is_written_matter(message):
        return (message,)
    found: list[str] = []
    for line in message.splitlines():
        for sentence in sentences(_MARK.sub("", line)):
            found.extend(part.strip() for part in _JOINTS.split(sentence) if part.strip())
    return _joined_short(found)[:MOST_PIECES] if len(found) <= MOST_PIECES else (message,)


def together(texts: Sequence[str], labels: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Neighbours that one label answers are one intent again: (text, label) in order."""
    merged: list[tuple[str, str]] = []
    for text, label in zip(texts, labels, strict=True):
        if merged and merged[-1][1] == label:
            merged[-1] = (f"{merged[-1][0]} {text}", label)
        else:
            merged.append((text, label))
    return tuple(merged)


def _is_written_matter(message: str) -> bool:
    return any(mark in message for mark in ("{", "}", "`")) or bool(re.search(r"(?m)^(?: {2,}|\t)\S", message))


def _joined_short(found: Sequence[str]) -> tuple[str, ...]:
    kept: list[str] = []
    for piece in found:
        if kept and len(piece.split()) < LEAST_WORDS:
            kept[-1] = f"{kept[-1]} {piece}"
        else:
            kept.append(piece)
    return tuple(kept)
