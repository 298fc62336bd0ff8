"""Schemas of tools and replies as they come in: one that cannot be kept to is refused before anything is asked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from loop.serve.http.calls import AUTO, NONE, REQUIRED, Offered
from loop.serve.http.refusals import Refused
from loop.serve.http.schemas import malformed, unsupported
from loop.serve.http.shapes import Shape

Described = tuple[str, str | None, dict[str, Any] | None, bool]


def offered(described: Iterable[Described]) -> tuple[Offered, ...]:
    """Tools from their names, descriptions, schemas, and whether these must be kept to; Refused."""
    tools = []
    for name, description, parameters, strict in described:
        schema = parameters or {}
        why = malformed(schema) or (unsupported(schema) if strict else "")
        if why:
            raise Refused(400, f"the parameters of tool {name}: {why}", param="tools")
        tools.append(Offered(name=name, description=description or "", parameters=schema))
    if len({tool.name for tool in tools}) < len(tools):
        raise Refused(400, "two tools have the same name", param="tools")
    return tuple(tools)


def chosen(tools: tuple[Offered, ...], choice: str) -> str:
    """A tool choice that can be met; Refused."""
    named = choice not in (AUTO, NONE, REQUIRED)
    if (choice == REQUIRED and not tools) or (named and choice not in {tool.name for tool in tools}):
        raise Refused(400, f"tool_choice is {choice!r} and no such tool is offered", param="tool_choice")
    return choice


def shape_of(schema: dict[str, Any]) -> Shape:
    """A schema as the form of a reply; Refused where its replies could not be checked."""
    why = malformed(schema) or unsupported(schema)
    if why:
        raise Refused(400, f"the schema of the reply: {why}", param="response_format")
    return Shape(kind="json_schema", structure=schema)
