"""The bodies of ``/v1/responses``, as OpenAI's clients send them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
    Temperature,
    Text,
    Tokens,
    ToolName,
    TopP,
    joined,
)
from loop.serve.http.offers import offered, shape_of
from loop.serve.http.refusals import Refused
from loop.serve.http.shapes import Shape

CallId = Annotated[Text, Field(min_length=1, max_length=128)]
ResponseId = Annotated[str, Field(pattern=r"^resp_[0-9a-f]{32}$")]


class InputMessage(Open):
    """A message; ``type`` may be left out."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: Content


class FunctionCall(Open):
    """A call as it was given to the client."""

    type: Literal["function_call"]
    call_id: CallId
    name: ToolName
    arguments: Text


class FunctionCallOutput(Open):
    """What a call came to."""

    type: Literal["function_call_output"]
    call_id: CallId
    output: Content


Item = FunctionCall | FunctionCallOutput | InputMessage


class FunctionTool(Noun):
    """A function that may be called; tools that a server would run are refused by their type."""

    type: Literal["function"]
    name: ToolName
    description: Text | None = None
    parameters: Schema | None = None
    strict: bool | None = None


class NamedTool(Noun):
    """The tool that must be called."""

    type: Literal["function"]
    name: ToolName


class PlainFormat(Noun):
    """Any text, or any JSON object."""

    type: Literal["text", "json_object"]


class SchemaFormat(Noun):
    """JSON of a schema."""

    type: Literal["json_schema"]
    name: ToolName
    description: Text | None = None
    structure: Schema = Field(alias="schema")
    strict: bool | None = None


class TextOptions(Noun):
    """The form of the reply."""

    format: Annotated[PlainFormat | SchemaFormat, Field(discriminator="type")] | None = None
    verbosity: Text | None = None


class ResponsesRequest(Noun):
    """A response. The fields of the last block are taken and change nothing."""

    model: Name
    input: Text | Annotated[tuple[Item, ...], Field(min_length=1, max_length=MOST_MESSAGES)]
    instructions: Text | None = None
    previous_response_id: ResponseId | None = None
    store: bool | None = None
    background: bool | None = None
    stream: bool | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    max_output_tokens: Tokens | None = None
    tools: Annotated[tuple[FunctionTool, ...], Field(max_length=MOST_TOOLS)] | None = None
    tool_choice: Literal["auto", "none", "required"] | NamedTool | None = None
    text: TextOptions | None = None
    metadata: Annotated[dict[str, Text], Field(max_length=16)] | None = None
    include: Annotated[tuple[Text, ...], Field(max_length=0)] | None = None
    top_logprobs: Literal[0] | None = None

    parallel_tool_calls: bool | None = None
    user: Text | None = None
    truncation: Literal["disabled"] | None = None
    service_tier: Text | None = None
    safety_identifier: Text | None = None
    prompt_cache_key: Text | None = None
    reasoning: dict[str, Any] | None = None
    stream_options: dict[str, Any] | None = None

    def said(self, waiting: Mapping[str, str], instructions: str) -> tuple[Message, ...]:
        """What is new after the previous response, whose calls ``waiting`` names by id, and which had ``instructions``.

        Refused where calls and results do not belong together.
        """
        first = self.instructions if self.instructions and self.instructions != instructions else ""
        items = (InputMessage(role="user", content=self.input),) if isinstance(self.input, str) else self.input
        system = (Message(role="system", content=first),) if first else ()
        return (*system, *_said(items, dict(waiting)))

    @property
    def drawing(self) -> Drawing:
        """What was chosen of the sampling."""
        return Drawing(temperature=self.temperature, top_p=self.top_p, max_tokens=self.max_output_tokens)

    @property
    def offers(self) -> tuple[Offered, ...]:
        """The tools; Refused for a schema that is none."""
        return offered([(tool.name, tool.description, tool.parameters, bool(tool.strict)) for tool in self.tools or ()])

    @property
    def choice(self) -> str:
        """Whether a tool is called, as all protocols say it here."""
        if isinstance(self.tool_choice, NamedTool):
            return self.tool_choice.name
        return {None: AUTO, "auto": AUTO, "none": NONE, "required": REQUIRED}[self.tool_choice]

    @property
    def shape(self) -> Shape:
        """The form of the reply; Refused for a schema that cannot be checked."""
        form = self.text.format if self.text else None
        if isinstance(form, SchemaFormat):
            return shape_of(form.structure)
        return Shape(kind=form.type if form else "text")


def _said(items: tuple[Item, ...], waiting: dict[str, str]) -> Iterator[Message]:
    """The messages; the calls of one reply are one message."""
    calls = list[Call]()
    several = len(waiting) > 1
    for item in items:
        if calls and not isinstance(item, FunctionCall):
            yield Message(role="assistant", content=written("", calls))
            several, calls = len(calls) > 1, []
        if isinstance(item, FunctionCall):
            waiting[item.call_id] = item.name
            calls.append(Call(name=item.name, arguments=item.arguments))
        elif isinstance(item, FunctionCallOutput):
            yield _result(item, waiting, several)
        else:
            _all_answered(waiting)
            role = "system" if item.role == "developer" else item.role
            yield Message(role=role, content=joined(item.content))
    if calls:
        yield Message(role="assistant", content=written("", calls))
    _all_answered(waiting)


def _result(item: FunctionCallOutput, waiting: dict[str, str], several: bool) -> Message:
    name = waiting.pop(item.call_id, None)
    if name is None:
        raise Refused(400, f"no call {item.call_id!r} waits for an output", param="input")
    content = joined(item.output)
    return Message(role="tool", content=f"{name}: {content}" if several else content)


def _all_answered(waiting: Mapping[str, str]) -> None:
    if waiting:
        raise Refused(400, f"the call {next(iter(waiting))!r} has no function_call_output", param="input")
