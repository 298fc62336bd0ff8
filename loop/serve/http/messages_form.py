"""The bodies of ``/v1/messages``, as Anthropic's clients send them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from loop.core.noun import Noun
from loop.core.pair import Message
from loop.serve.drawing import Drawing
from loop.serve.http.calls import AUTO, NONE, REQUIRED, Call, Offered, written
from loop.serve.http.fields import (
    MOST_MESSAGES,
    MOST_TOOLS,
    Content,
    Name,
    Open,
    Schema,
    Stop,
    Text,
    TextPart,
    Tokens,
    ToolName,
    TopP,
    joined,
)
from loop.serve.http.offers import offered
from loop.serve.http.refusals import Refused

CallId = Annotated[Text, Field(min_length=1, max_length=128)]


class ToolUse(Open):
    """A call as it was given to the client."""

    type: Literal["tool_use"]
    id: CallId
    name: ToolName
    input: dict[str, Any]


class ToolResult(Open):
    """What a call came to."""

    type: Literal["tool_result"]
    tool_use_id: CallId
    content: Content | None = None
    is_error: bool | None = None


class TextBlock(TextPart):
    """A piece of text."""

    type: Literal["text"]


UserBlock = Annotated[TextBlock | ToolResult, Field(discriminator="type")]
AssistantBlock = Annotated[TextBlock | ToolUse, Field(discriminator="type")]


class UserTurn(Open):
    """What the user says, and what the tools say."""

    role: Literal["user"]
    content: Text | tuple[UserBlock, ...]


class AssistantTurn(Open):
    """An earlier reply."""

    role: Literal["assistant"]
    content: Text | tuple[AssistantBlock, ...]


class Tool(Open):
    """A tool that the client runs; tools that a server would run are refused by their type."""

    type: Literal["custom"] | None = None
    name: ToolName
    description: Text | None = None
    input_schema: Schema


class Choice(Noun):
    """Whether a tool is called, and which."""

    type: Literal["auto", "any", "tool", "none"]
    name: ToolName | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(Open):
    """Not had here, and taken when it is off."""

    type: Literal["disabled"]


class Counted(Noun):
    """What tokens are counted of."""

    model: Name
    messages: Annotated[
        tuple[Annotated[UserTurn | AssistantTurn, Field(discriminator="role")], ...],
        Field(min_length=1, max_length=MOST_MESSAGES),
    ]
    system: Content | None = None
    tools: Annotated[tuple[Tool, ...], Field(max_length=MOST_TOOLS)] | None = None
    tool_choice: Choice | None = None
    thinking: Thinking | None = None

    @property
    def said(self) -> tuple[Message, ...]:
        """The messages as turns know them; Refused where calls and results do not belong together."""
        system = joined(self.system)
        first = (Message(role="system", content=system),) if system else ()
        return (*first, *_said(self.messages))

    @property
    def offers(self) -> tuple[Offered, ...]:
        """The tools; Refused for a schema that is none."""
        return offered([(tool.name, tool.description, tool.input_schema, False) for tool in self.tools or ()])

    @property
    def choice(self) -> str:
        """Whether a tool is called, as all protocols say it here."""
        if self.tool_choice is None:
            return AUTO
        named = self.tool_choice.name or ""
        return {"auto": AUTO, "any": REQUIRED, "none": NONE, "tool": named}[self.tool_choice.type]


class MessagesRequest(Counted):
    """A message. The fields of the last block are taken and change nothing."""

    max_tokens: Tokens
    stream: bool | None = None
    temperature: Annotated[float, Field(ge=0, le=1)] | None = None
    top_p: TopP | None = None
    stop_sequences: Annotated[tuple[Stop, ...], Field(max_length=4)] | None = None

    metadata: dict[str, Any] | None = None
    service_tier: Text | None = None

    @property
    def drawing(self) -> Drawing:
        """What was chosen of the sampling."""
        return Drawing(
            temperature=self.temperature, top_p=self.top_p, max_tokens=self.max_tokens, stop=self.stop_sequences or None
        )


def _said(turns: tuple[UserTurn | AssistantTurn, ...]) -> Iterator[Message]:
    waiting: dict[str, str] = {}
    for turn in turns:
        if isinstance(turn, AssistantTurn):
            _all_answered(waiting)
            blocks = () if isinstance(turn.content, str) else turn.content
            uses = [block for block in blocks if isinstance(block, ToolUse)]
            text = turn.content if isinstance(turn.content, str) else joined(_texts(blocks))
            calls = [Call(name=use.name, arguments=json.dumps(use.input)) for use in uses]
            waiting = {use.id: use.name for use in uses}
            yield Message(role="assistant", content=written(text, calls))
        else:
            yield from _user(turn, waiting)
            _all_answered(waiting)
    _all_answered(waiting)


def _user(turn: UserTurn, waiting: dict[str, str]) -> Iterator[Message]:
    """The results that were waited for, which are taken out of ``waiting``, and then what the user says."""
    blocks = () if isinstance(turn.content, str) else turn.content
    several = len(waiting) > 1
    for block in blocks:
        if isinstance(block, ToolResult):
            name = waiting.pop(block.tool_use_id, None)
            if name is None:
                raise Refused(400, f"no call {block.tool_use_id!r} waits for a result", param="messages")
            failed = "error: " if block.is_error else ""
            content = failed + joined(block.content)
            yield Message(role="tool", content=f"{name}: {content}" if several else content)
    text = turn.content if isinstance(turn.content, str) else joined(_texts(blocks))
    if text or all(isinstance(block, TextBlock) for block in blocks):
        yield Message(role="user", content=text)


def _texts(blocks: tuple[Any, ...]) -> tuple[TextPart, ...]:
    return tuple(block for block in blocks if isinstance(block, TextBlock))


def _all_answered(waiting: dict[str, str]) -> None:
    if waiting:
        raise Refused(400, f"the call {next(iter(waiting))!r} has no tool_result", param="messages")
