"""The bodies of ``/v1/chat/completions``, as OpenAI's clients send them."""

from __future__ import annotations

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


class SystemMessage(Open):
    """Instructions."""

    role: Literal["system", "developer"]
    content: Content


class UserMessage(Open):
    """What the user says."""

    role: Literal["user"]
    content: Content


class CalledFunction(Open):
    """A call's tool, and its arguments as a JSON text."""

    name: ToolName
    arguments: Text


class ToolCall(Open):
    """A call as it was given to the client."""

    id: Annotated[Text, Field(min_length=1, max_length=128)]
    type: Literal["function"] = "function"
    function: CalledFunction


class AssistantMessage(Open):
    """An earlier reply."""

    role: Literal["assistant"]
    content: Content | None = None
    tool_calls: tuple[ToolCall, ...] | None = None


class ToolMessage(Open):
    """What a call came to."""

    role: Literal["tool"]
    content: Content
    tool_call_id: Annotated[Text, Field(max_length=128)]


ChatMessage = Annotated[SystemMessage | UserMessage | AssistantMessage | ToolMessage, Field(discriminator="role")]


class Function(Noun):
    """A function that may be called; ``parameters`` is a JSON schema."""

    name: ToolName
    description: Text | None = None
    parameters: Schema | None = None
    strict: bool | None = None


class FunctionTool(Noun):
    """A tool; functions are the only kind."""

    type: Literal["function"]
    function: Function


class NamedFunction(Noun):
    """Its name."""

    name: ToolName


class NamedTool(Noun):
    """The tool that must be called."""

    type: Literal["function"]
    function: NamedFunction


class JsonSchema(Noun):
    """The schema that the reply must fit."""

    name: ToolName
    description: Text | None = None
    structure: Schema = Field(alias="schema")
    strict: bool | None = None


class TextFormat(Noun):
    """Any text, or any JSON object."""

    type: Literal["text", "json_object"]


class SchemaFormat(Noun):
    """JSON of a schema."""

    type: Literal["json_schema"]
    json_schema: JsonSchema


class StreamOptions(Noun):
    """Whether the last event tells the tokens."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class ChatRequest(Noun):
    """A chat completion. The fields of the last block are taken and change nothing."""

    model: Name
    messages: tuple[ChatMessage, ...] = Field(min_length=1, max_length=MOST_MESSAGES)
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: Temperature | None = None
    top_p: TopP | None = None
    max_tokens: Tokens | None = None
    max_completion_tokens: Tokens | None = None
    stop: Stop | Annotated[tuple[Stop, ...], Field(max_length=4)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    n: Literal[1] | None = None
    logprobs: bool | None = None
    top_logprobs: Literal[0] | None = None
    response_format: Annotated[TextFormat | SchemaFormat, Field(discriminator="type")] | None = None
    tools: Annotated[tuple[FunctionTool, ...], Field(max_length=MOST_TOOLS)] | None = None
    tool_choice: Literal["auto", "none", "required"] | NamedTool | None = None
    frequency_penalty: Annotated[float, Field(ge=0, le=0)] | None = None
    presence_penalty: Annotated[float, Field(ge=0, le=0)] | None = None
    logit_bias: Annotated[dict[str, float], Field(max_length=0)] | None = None
    modalities: tuple[Literal["text"], ...] | None = None

    parallel_tool_calls: bool | None = None
    user: Text | None = None
    metadata: dict[str, Text] | None = None
    store: bool | None = None
    service_tier: Text | None = None
    safety_identifier: Text | None = None
    prompt_cache_key: Text | None = None
    prompt_cache_retention: Text | None = None
    reasoning_effort: Text | None = None
    verbosity: Text | None = None

    @property
    def said(self) -> tuple[Message, ...]:
        """The messages as turns know them; Refused where calls and results do not belong together."""
        return tuple(_said(self.messages))

    @property
    def drawing(self) -> Drawing:
        """What was chosen of the sampling."""
        return Drawing(
            temperature=self.temperature,
            top_p=self.top_p,
            max_tokens=self.max_completion_tokens or self.max_tokens,
            stop=(self.stop,) if isinstance(self.stop, str) else self.stop,
            seed=self.seed,
        )

    @property
    def offers(self) -> tuple[Offered, ...]:
        """The tools; Refused for a schema that is none."""
        functions = [tool.function for tool in self.tools or ()]
        return offered([(f.name, f.description, f.parameters, bool(f.strict)) for f in functions])

    @property
    def choice(self) -> str:
        """Whether a tool is called; Refused where none of that name is offered."""
        if isinstance(self.tool_choice, NamedTool):
            return self.tool_choice.function.name
        return {None: AUTO, "auto": AUTO, "none": NONE, "required": REQUIRED}[self.tool_choice]

    @property
    def shape(self) -> Shape:
        """The form of the reply; Refused for a schema that cannot be checked."""
        if isinstance(self.response_format, SchemaFormat):
            return shape_of(self.response_format.json_schema.structure)
        return Shape(kind=self.response_format.type if self.response_format else "text")


def _said(messages: tuple[Any, ...]) -> Iterator[Message]:
    waiting: dict[str, str] = {}
    several = False
    for message in messages:
        if waiting and not isinstance(message, ToolMessage):
            raise Refused(400, f"the call {next(iter(waiting))!r} has no result in a tool message", param="messages")
        if isinstance(message, AssistantMessage):
            calls = message.tool_calls or ()
            waiting = {call.id: call.function.name for call in calls}
            several = len(calls) > 1
            if len(waiting) < len(calls):
                raise Refused(400, "two calls of one message have the same id", param="messages")
            made = [Call(name=call.function.name, arguments=call.function.arguments) for call in calls]
            yield Message(role="assistant", content=written(joined(message.content), made))
        elif isinstance(message, ToolMessage):
            name = waiting.pop(message.tool_call_id, None)
            if name is None:
                raise Refused(400, f"no call {message.tool_call_id!r} waits for a result", param="messages")
            content = joined(message.content)
            yield Message(role="tool", content=f"{name}: {content}" if several else content)
        else:
            role = "user" if isinstance(message, UserMessage) else "system"
            yield Message.model_validate({"role": role, "content": joined(message.content)})
    if waiting:
        raise Refused(400, f"the call {next(iter(waiting))!r} has no result in a tool message", param="messages")
