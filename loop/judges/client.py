"""One sample of a judge from one endpoint: the chat completion's text, with what it cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from loop.remote.line import Line, NoAnswer, fetch, persist

CHAT = "/chat/completions"
SPENT = "the budget of judge calls is spent"


class NoStructure(NoAnswer):
    """The endpoint refused the request while it asked for structured output."""


class _Message(BaseModel):
    content: str | None = None
    refusal: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Completion(BaseModel):
    choices: list[_Choice]


@dataclass(frozen=True)
class Reply:
    """What an exchange came to: the model's text, or None and why; and the requests it cost."""

    content: str | None
    problem: str
    calls: int


def exchange(line: Line, body: dict[str, Any], response_format: dict[str, Any]) -> Reply:
    """Ask until there is a text, the failure is final, or the retries or the allowance are spent.

    All of these are a Reply; only what is no failure of the endpoint raises.
    """
    calls = 0

    def once(structured: bool) -> str:
        nonlocal calls
        if calls and not line.allowance.take():
            raise NoAnswer(SPENT)
        calls += 1
        try:
            return _text(fetch(line, CHAT, body | ({"response_format": response_format} if structured else {})))
        except NoAnswer as error:
            if structured and error.status in (400, 422):
                raise NoStructure(str(error), error.status) from None
            raise

    def either() -> str:
        if not line.structured:
            return once(structured=False)
        try:
            return once(structured=True)
        except NoStructure:
            content = once(structured=False)
            line.structured = False  # the same request went through without: it was the structure
            return content

    try:
        return Reply(persist(line, either), "", calls)
    except NoAnswer as error:
        return Reply(None, str(error), calls)


def _text(data: bytes) -> str:
    try:
        choice = _Completion.model_validate_json(data).choices[0]
    except (ValidationError, IndexError):
        raise NoAnswer("malformed: not a chat completion") from None
    if choice.message.refusal or choice.finish_reason == "content_filter":
        raise NoAnswer("refused")
    if choice.finish_reason == "length":
        raise NoAnswer("malformed: the answer was cut off")
    if not choice.message.content:
        raise NoAnswer("malformed: the answer is empty")
    return choice.message.content
