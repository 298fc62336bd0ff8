"""Tools that a client offers: how a specialist is told of them, and how a call is read out of a reply."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

from loop.core.conversation import Reply
from loop.core.noun import Noun
from loop.mol.runtime import JOINT
from loop.serve.http.schemas import fault, unsupported

AUTO, NONE, REQUIRED = "auto", "none", "required"


class Offered(Noun):
    """A tool as its client describes it; ``parameters`` is a JSON schema of its arguments."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}

    @property
    def template(self) -> str:
        """The tool as specialists are shown one: its call with the arguments left open."""
        arguments = "".join(f', "{name}": ...' for name in self.parameters.get("properties", {}))
        return f'{{"tool": "{self.name}"{arguments}}}'

    def takes(self, arguments: dict[str, Any]) -> bool:
        """Whether these arguments fit; what a schema says with unsupported keywords is its client's to check."""
        if unsupported(self.parameters):
            return set(self.parameters.get("required", ())) <= set(arguments)
        return not fault(arguments, self.parameters)


class Call(Noun):
    """One call of a tool; ``arguments`` is a JSON text, an object unless another system wrote it."""

    name: str
    arguments: str


def described(tools: Sequence[Offered]) -> str:
    """What a specialist is told of the tools: a template a line, as the harness's own exemplars have them."""
    return "\n".join(f"{tool.template}  {' '.join(tool.description.split())}".rstrip() for tool in tools)


def written(text: str, calls: Sequence[Call]) -> str:
    """A reply as the history holds it: the same for equal calls, however a client spelled their JSON."""
    lines = [
        json.dumps({"tool": call.name, "args": _arguments(call)}, ensure_ascii=False, sort_keys=True) for call in calls
    ]
    return "\n".join([*([text] if text or not lines else []), *lines])


def read(reply: str, tools: Sequence[Offered]) -> tuple[str, tuple[Call, ...]]:
    """The text and the calls of a reply: one JSON object that calls an offered tool is a call, all else is text.

    Both forms of the harnesses' exemplars are calls: arguments under ``args``, or beside ``tool``.
    A report, ``{"say": text}``, reads as its text.
    """
    try:
        value = json.loads(reply.strip(), parse_constant=refuse, parse_float=finite)
    except (ValueError, RecursionError):
        return reply, ()
    if not isinstance(value, dict) or not tools:
        return reply, ()
    if set(value) == {"say"} and isinstance(value["say"], str):
        return value["say"], ()
    tool = next((tool for tool in tools if tool.name == value.get("tool")), None)
    if tool is None:
        return reply, ()
    beside = {name: item for name, item in value.items() if name != "tool"}
    inside = value["args"] if set(value) == {"tool", "args"} and isinstance(value["args"], dict) else None
    for arguments in (inside, beside):
        if arguments is not None and tool.takes(arguments):
            return "", (Call(name=tool.name, arguments=json.dumps(arguments, ensure_ascii=False)),)
    return reply, ()


def read_parts(reply: Reply, tools: Sequence[Offered]) -> tuple[str, tuple[Call, ...]]:
    """The text and the calls of a reply in one part or several."""
    found = [read(part, tools) for part in reply.parts or (reply.text,)]
    texts = [text for text, calls in found if text or not calls]
    return JOINT.join(texts), tuple(call for _, calls in found for call in calls)


def _arguments(call: Call) -> Any:
    try:
        return _plain(json.loads(call.arguments or "{}", parse_constant=refuse, parse_float=finite))
    except (ValueError, RecursionError):
        return call.arguments


def _plain(value: Any) -> Any:
    """Numbers as every JSON writer agrees on them: 2.0 is 2."""
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def refuse(name: str) -> float:
    """NaN and the infinities, which Python reads and JSON has not; ValueError."""
    raise ValueError(f"{name} is not JSON")


def finite(digits: str) -> float:
    """A number that other readers of JSON can hold; ValueError."""
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError("the number is too large")
    return number
