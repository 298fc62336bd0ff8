"""Nouns as JSON documents: every field is written, nothing is reordered, all of it reads back equal."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar

from loop.core.noun import Noun

NounT = TypeVar("NounT", bound=Noun)


def plain(value: Any) -> Any:
    """Reduce a value to plain JSON data, facts that are no part of the identity included.

    Mappings keep their order, because a resumed run must meet what the first run met;
    sets are sorted, because theirs means nothing.
    """
    if isinstance(value, Noun):
        return {name: plain(getattr(value, name)) for name in type(value).model_fields}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(plain(item) for item in value)
    return value


def finite(value: Any) -> Any:
    """Plain data with non-finite floats as the words pydantic reads back, for databases without them."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    return value


def to_json(value: Any) -> str:
    """JSON text of plain data, without spaces; non-finite floats as Python and pydantic write them."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def to_bytes(noun: Noun) -> bytes:
    """A noun as JSON bytes that name its class."""
    return to_json({"_": type(noun).__name__, **plain(noun)}).encode()


def from_bytes(kind: type[NounT], data: bytes) -> NounT:
    """Read ``to_bytes`` back; ValueError when the bytes hold another class or do not fit it."""
    fields = json.loads(data)
    if not isinstance(fields, dict) or fields.pop("_", None) != kind.__name__:
        raise ValueError(f"expected the JSON of a {kind.__name__}")
    return kind.model_validate(fields)
