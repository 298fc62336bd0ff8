"""The words between agent and world: how a reply is parsed, and how a final report is read."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Literal

from pydantic import JsonValue

from loop.core.noun import Noun
from loop.environments.tools_world import PARAMETERS, Answer, fits

Reported = Literal["success", "failure", "none"]


class Reply(Noun):
    """One parsed reply: a call (``tool``), a final report (``say``), or a fault with its reason.

    ``tool`` is named whenever it is one that was offered, even if the arguments were wrong.
    """

    tool: str = ""
    arguments: dict[str, JsonValue] = {}
    say: str | None = None
    error: str = ""


def parse(text: str, tools: Sequence[str]) -> Reply:
    """Read a reply as exactly one JSON object, a call of one of ``tools`` or a say."""
    try:
        value = json.loads(text.strip(), parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):
        return Reply(error="not one JSON object")
    if not isinstance(value, dict) or not _storable(value):
        return Reply(error="not one JSON object")
    if set(value) == {"say"} and isinstance(value["say"], str) and value["say"].strip():
        return Reply(say=value["say"])
    tool = value.pop("tool", None)
    if not isinstance(tool, str) or tool not in tools:
        return Reply(error="unknown tool")
    if not fits(tool, value):
        return Reply(tool=tool, error=f"{tool} takes {', '.join(PARAMETERS[tool])}")
    return Reply(tool=tool, arguments=value)


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError("the number is too large")
    return number


def _storable(value: JsonValue) -> bool:
    """Whether the text can be stored anywhere: no lone surrogate and no NUL."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\\u0000" not in text


def show(answer: Answer) -> str:
    """A tool's answer as the agent is shown it."""
    return "result: " + json.dumps(answer, ensure_ascii=False)


_FAILURE = re.compile(
    r"\b(fail(s|ed|ure)?|error|not|cannot|can't|couldn't|could\s?n.t|didn't|wasn't|won't|isn't|unable|unknown|"
    r"no|none|nothing|impossible|sorry|unfortunately|blocked|full|broken|down|busy|refused)\b",
    re.IGNORECASE,
)
_SUCCESS = re.compile(
    r"\b(done|ok|okay|yes|added|scheduled|booked|sent|set|placed|ordered|bought|moved|cancell?ed|found|converted|"
    r"success(ful|fully)?|finished|completed?|confirmed|ready|status|price|phone|email|stock|is)\b",
    re.IGNORECASE,
)


def reported(say: str | None, asked: Sequence[JsonValue]) -> Reported:
    """What a final report claims: a word of failure wins, then a word of success or every asked value."""
    if say is None:
        return "none"
    if _FAILURE.search(say):
        return "failure"
    if _SUCCESS.search(say) or (asked and tells(say, asked)):
        return "success"
    return "none"


def tells(say: str, asked: Sequence[JsonValue]) -> bool:
    """Whether the report contains every asked value as a whole word."""
    folded = say.casefold()
    return all(
        re.search(rf"(?<![\w.]){re.escape(str(value).casefold())}(?!\w|\.\d)", folded) is not None for value in asked
    )
