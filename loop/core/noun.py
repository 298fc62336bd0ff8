"""The one root of everything that travels: a frozen model whose identity is its content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from enum import Enum
from functools import cached_property
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict


class Noun(BaseModel):
    """A frozen value with a content digest.

    The digest covers the class name and every non-default field, so a field may be added
    with a default without moving the digests already stored. Fields named in
    ``undigested`` (wall time, host names) are facts about a run, not part of the identity.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    undigested: ClassVar[frozenset[str]] = frozenset()

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical content, 64 lower-case hex digits."""
        return digest_of(self)

    @property
    def short(self) -> str:
        """The first 12 digits of the digest: what people are shown."""
        return self.digest[:12]

    def revise(self, **changes: Any) -> Self:
        """Return a validated copy with these fields changed; the original stays as it is."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self).model_validate(fields | changes)


def canonical(value: Any) -> Any:
    """Reduce a value to plain JSON in which equal content is written equally."""
    if isinstance(value, Noun):
        fields = type(value).model_fields
        kept = {
            name: canonical(getattr(value, name))
            for name, field in fields.items()
            if name not in value.undigested
            and (field.is_required() or getattr(value, name) != field.get_default(call_default_factory=True))
        }
        return {"_": type(value).__name__, **kept}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): canonical(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [canonical(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(canonical(item) for item in value)
    return value


def digest_of(value: Any) -> str:
    """SHA-256 of a value's canonical JSON (sorted keys, no spaces, UTF-8)."""
    text = json.dumps(canonical(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def seed_from(*parts: object) -> int:
    """A 63-bit seed drawn from the parts, the same on every machine and Python."""
    return int(digest_of([str(part) for part in parts])[:16], 16) >> 1
