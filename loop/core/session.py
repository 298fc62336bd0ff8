"""How a conversation is kept: a harness's ``[session]`` table."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from loop.core.noun import Noun

_SUM_UP = (
    "Sum up for a colleague what was asked and what came of it, in the language of the conversation. "
    "Names and numbers exactly, nothing that was not said."
)


class SessionRules(Noun):
    """What is split, summed up and told to others.

    ``intents`` "split" answers each intent of a message by its own specialist, "single" all
    by one. ``summaries`` "long" has the model write one only where a reply is longer than
    ``summary_tokens`` (a shorter one is its own summary), "always" for every reply. More
    than ``told_parts`` parts of others in a view are replaced by a digest. The router sees the
    last ``routed_after`` summaries. ``workspace`` is what an episode's folder starts as.
    """

    intents: Literal["single", "split"] = "single"
    summaries: Literal["long", "always"] = "long"
    summary_tokens: int = Field(default=192, gt=0, le=192)
    summary_prompt: str = _SUM_UP
    told_parts: int = Field(default=12, gt=1)
    routed_after: int = Field(default=2, ge=0)
    workspace: Literal["fresh"] = "fresh"
