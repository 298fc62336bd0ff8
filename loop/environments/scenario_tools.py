"""The tools of a conversation scenario: how a call is found in a reply, checked, run and logged."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import jsonschema
from pydantic import JsonValue

from loop.core.case import fill, fill_text
from loop.core.contract import Scenario, Tool
from loop.core.episode import ToolCall
from loop.core.noun import Noun

LONGEST_TEXT = 120
LONGEST_REPLY = 4000
LARGEST_NUMBER = 1_000_000


class Wanted(Noun):
    """A call as the agent wrote it; ``error`` says why it cannot run, empty when it can."""

    name: str
    arguments: dict[str, JsonValue] = {}
    error: str = ""


def exposure(tools: Sequence[Tool]) -> str:
    """The line below the user's first message that tells the agent which tools there are.

    How a call is written is shown by the harness's exemplars.
    """
    return "Tools: " + ", ".join(f"{tool.name}({', '.join(tool.parameters)})" for tool in tools)


def find_call(reply: str, tools: Sequence[Tool]) -> Wanted | None:
    """The first tool call in a reply, alone or inside text; None when the reply calls nothing."""
    decoder = json.JSONDecoder(parse_constant=_refuse)
    text = reply[:LONGEST_REPLY]
    start = text.find("{")
    while start >= 0:
        try:
            value, _ = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict) and "tool" in value:
            return _wanted(value, tools)
        start = text.find("{", start + 1)
    return Wanted(name="", error="not valid JSON") if '"tool"' in text and "{" in text else None


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _wanted(value: dict[str, Any], tools: Sequence[Tool]) -> Wanted:
    """The call checked against its tool's schema; what is wrong with it in words."""
    name = value["tool"]
    tool = next((tool for tool in tools if tool.name == name), None)
    if tool is None:
        return Wanted(name="", error=f"no such tool; there are {', '.join(tool.name for tool in tools)}")
    if set(value) - {"tool", "args"}:
        return Wanted(name=tool.name, error="expected only tool and args")
    arguments: dict[str, Any] = value.get("args", {})
    if not jsonschema.Draft202012Validator(schema(tool)).is_valid(arguments):
        return Wanted(name=tool.name, error=f"args are {_signature(tool)}")
    return Wanted(name=tool.name, arguments={key: _plain(arguments[key]) for key in tool.parameters})


def schema(tool: Tool) -> dict[str, Any]:
    """The JSON schema of a tool's arguments: every parameter is required, nothing else is allowed."""
    bounds: dict[str, dict[str, Any]] = {
        "string": {"minLength": 1, "maxLength": LONGEST_TEXT, "pattern": r"^[^\x00\ud800-\udfff]*$"},
        "integer": {"minimum": -LARGEST_NUMBER, "maximum": LARGEST_NUMBER},
        "number": {"minimum": -LARGEST_NUMBER, "maximum": LARGEST_NUMBER},
        "boolean": {},
    }
    return {
        "type": "object",
        "properties": {name: {"type": kind, **bounds[kind]} for name, kind in tool.parameters.items()},
        "required": list(tool.parameters),
        "additionalProperties": False,
    }


def _signature(tool: Tool) -> str:
    return ", ".join(f"{name} ({kind})" for name, kind in tool.parameters.items())


def _plain(value: JsonValue) -> JsonValue:
    return int(value) if isinstance(value, float) and value.is_integer() else value


class Desk:
    """The world of one conversation: runs calls, keeps the log and the end state.

    ``world["requests"]`` holds every valid call as nested keys (tool, then each argument in
    the order of the parameters) that end in true, whether it worked or not; what a success
    writes stands beside it under the tool's own paths.
    """

    def __init__(self, scenario: Scenario, slots: Mapping[str, JsonValue]) -> None:
        """A desk with nothing asked for yet."""
        self._tools = {tool.name: tool for tool in scenario.tools}
        self._slots = dict(slots)
        self.calls: list[ToolCall] = []
        self.world: dict[str, JsonValue] = {"requests": {}} if scenario.tools else {}

    def run(self, wanted: Wanted, turn: int) -> dict[str, JsonValue]:
        """Run or refuse a call made in reply number ``turn``; the result the agent is shown."""
        if wanted.error:
            return self._log(ToolCall(turn=turn, name=wanted.name, ok=None, result={"error": wanted.error}))
        tool = self._tools[wanted.name]
        arguments = {name: self._spelled(value) for name, value in wanted.arguments.items()}
        known: dict[str, JsonValue] = {**self._slots, **arguments}
        self._write(["requests", tool.name, *(str(value) for value in arguments.values())], True)
        fails = tool.fails_if is not None and self._slots.get(tool.fails_if) is True
        if not fails:
            for path, value in tool.writes.items():
                self._write([fill_text(part, known) for part in path.split(".")], fill(value, known))
        result: dict[str, JsonValue] = fill(tool.result_fail if fails else tool.result_ok, known)
        return self._log(ToolCall(turn=turn, name=tool.name, arguments=arguments, ok=not fails, result=result))

    def refuse(self, wanted: Wanted, turn: int) -> None:
        """Log a call beyond the limit of a turn: it is not run."""
        self._log(ToolCall(turn=turn, name=wanted.name, ok=None, result={"error": "too many calls in one turn"}))

    def _log(self, call: ToolCall) -> dict[str, JsonValue]:
        self.calls.append(call)
        return call.result

    def _spelled(self, value: JsonValue) -> JsonValue:
        """A text argument in the case's own spelling, where it is the same but for case and spaces."""
        if not isinstance(value, str):
            return value
        folded = " ".join(value.split()).casefold()
        same = (slot for slot in self._slots.values() if isinstance(slot, str) and slot.casefold() == folded)
        return next(same, value)

    def _write(self, path: list[str], value: JsonValue) -> None:
        place: dict[str, Any] = self.world
        for part in path[:-1]:
            inner = place.setdefault(part, {})
            if not isinstance(inner, dict):
                inner = place[part] = {}
            place = inner
        place[path[-1]] = value
