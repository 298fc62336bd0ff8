"""Small conversations for the tests of checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from pydantic import JsonValue

from loop.core.case import Transcript
from loop.core.contract import Contract, Criterion
from loop.core.episode import ToolCall
from loop.judges.finding import Finding
from loop.judges.rules import Question, Rules
from loop.library import default_root, load_contract


@cache
def contract() -> Contract:
    """The contract in this checkout."""
    return load_contract(default_root())


def talk(
    *replies: str,
    user: str | Sequence[str] = "",
    calls: Sequence[ToolCall] = (),
    world: Mapping[str, JsonValue] | None = None,
    shown: str = "",
    finish: str = "stop",
) -> Transcript:
    """A transcript in which the user spoke before the first reply."""
    users = (user,) if isinstance(user, str) else tuple(user)
    return Transcript(
        users=users,
        replies=replies,
        shown=tuple("\n".join((*users, shown)) for _ in replies),
        finishes=tuple(finish for _ in replies),
        calls=tuple(calls),
        world=dict(world or {}),
    )


def found(check: Mapping[str, object], transcript: Transcript) -> Finding:
    """What the rules find for one check."""
    fields = {"id": "c", "axiom": "a", "text": "t", "check": dict(check)}
    question = Question(check=Criterion.model_validate(fields).check, transcript=transcript)
    return Rules().decide(contract(), [question])[0]


def value(check: Mapping[str, object], transcript: Transcript) -> float | None:
    """The value alone."""
    return found(check, transcript).value
