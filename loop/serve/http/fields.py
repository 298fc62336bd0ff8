"""What the bodies of several protocols share: texts that can be stored, tools, and sampling's bounds."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field

from loop.core.noun import Noun

MOST_MESSAGES = 512
MOST_TOOLS = 128


def _storable(text: str) -> str:
    """Databases and UTF-8 take neither; ValueError."""
    if "\x00" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
        raise ValueError("a text holds neither a NUL nor half a surrogate pair")
    return text


Text = Annotated[str, AfterValidator(_storable)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:/-]{1,128}$")]
ToolName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
Temperature = Annotated[float, Field(ge=0, le=2)]
TopP = Annotated[float, Field(gt=0, le=1)]
Tokens = Annotated[int, Field(gt=0, le=1_000_000)]
Stop = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_storable)]
Schema = dict[str, Any]


class Open(Noun):
    """A form whose unknown fields are passed over: what clients send back of what servers once sent them."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class TextPart(Open):
    """A piece of a message; pieces that are no text are refused by their type."""

    type: Literal["text", "input_text", "output_text"]
    text: Text


Content = Text | tuple[TextPart, ...]


def joined(content: Content | None) -> str:
    """The text of a message, its parts one after the other."""
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(part.text for part in content)
