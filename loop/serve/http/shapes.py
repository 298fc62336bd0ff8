"""The form that a client asks a reply to have, and whether it has it."""

from __future__ import annotations

import json
from typing import Any, Literal

from loop.core.noun import Noun
from loop.serve.http.calls import finite, refuse
from loop.serve.http.schemas import fault


class Shape(Noun):
    """Text of any kind, one JSON object, or JSON that fits ``schema``."""

    kind: Literal["text", "json_object", "json_schema"] = "text"
    structure: dict[str, Any] = {}

    @property
    def note(self) -> str:
        """What the specialist is told of it; empty for text."""
        if self.kind == "text":
            return ""
        if self.kind == "json_object":
            return "The next answer is one JSON object."
        return f"The next answer is JSON of this schema: {json.dumps(self.structure, ensure_ascii=False)}"

    def fault(self, text: str) -> str:
        """Why a reply has not this form, in a sentence; empty where it has."""
        if self.kind == "text":
            return ""
        try:
            value = json.loads(text, parse_constant=refuse, parse_float=finite)
        except (ValueError, RecursionError):
            return "it is not JSON"
        if self.kind == "json_object":
            return "" if isinstance(value, dict) else "it is not a JSON object"
        return fault(value, self.structure)
