"""Measure how far an engine's answers depend on what they are batched with."""

from __future__ import annotations

from collections.abc import Sequence

from loop.core.base import Base
from loop.core.episode import Completion, Request
from loop.core.noun import Noun
from loop.ports import Blobs, Engine


class NoiseFloor(Noun):
    """The same requests alone and together.

    ``logprob`` is the largest |difference| (nats) over the tokens before a reply's first
    change, ``changed_tokens`` the share of tokens at and after one, ``changed_replies``
    the share of replies with one. ``tokens`` were compared.
    """

    logprob: float
    changed_tokens: float
    changed_replies: float
    tokens: int


def noise_floor(engine: Engine, base: Base, blobs: Blobs, requests: Sequence[Request]) -> NoiseFloor:
    """Answer the requests in one call, then each in a call of its own, and compare."""
    together = _answers(engine, base, blobs, requests)
    alone = [_answers(engine, base, blobs, [request])[0] for request in requests]
    largest, tokens, changed, replies = 0.0, 0, 0, 0
    for left, right in zip(together, alone, strict=True):
        same = _common(left.token_ids, right.token_ids)
        pairs = zip(left.logprobs[:same], right.logprobs[:same], strict=True)
        largest = max([largest, *(abs(a - b) for a, b in pairs)])
        longer = max(len(left.token_ids), len(right.token_ids))
        tokens, changed, replies = tokens + longer, changed + longer - same, replies + (same < longer)
    return NoiseFloor(
        logprob=largest,
        changed_tokens=changed / max(tokens, 1),
        changed_replies=replies / max(len(requests), 1),
        tokens=tokens,
    )


def _answers(engine: Engine, base: Base, blobs: Blobs, requests: Sequence[Request]) -> list[Completion]:
    found: dict[int, Completion] = {}

    def keep(key: int, completion: Completion) -> Sequence[tuple[int, Request]]:
        found[key] = completion
        return ()

    engine.generate(base, blobs, list(enumerate(requests)), keep)
    return [found[key] for key in range(len(requests))]


def _common(left: Sequence[int], right: Sequence[int]) -> int:
    same = 0
    while same < min(len(left), len(right)) and left[same] == right[same]:
        same += 1
    return same
