"""What differs between two nouns, as a person would point at it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from loop.core.noun import Noun
from loop.store.document import plain

SHOWN = 4
_ABSENT = "absent"


def differences(before: Noun, after: Noun) -> str:
    """The changed fields as ``path: old -> new``, at most four of them."""
    found = list(_walk("", plain(before), plain(after)))
    more = f", and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return ", ".join(found[:SHOWN]) + more


def _walk(path: str, before: Any, after: Any) -> Iterator[str]:
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        before, after = dict(enumerate(before)), dict(enumerate(after))
    if isinstance(before, dict) and isinstance(after, dict):
        for key in dict.fromkeys([*before, *after]):
            yield from _walk(f"{path}.{key}".lstrip("."), before.get(key, _ABSENT), after.get(key, _ABSENT))
    elif before != after:
        yield f"{path}: {_short(before)} -> {_short(after)}"


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else text[:37] + "..."
