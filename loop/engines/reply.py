"""From requests to rows and from finished rows to completions: text, stops and choices."""

from __future__ import annotations

import math
from collections.abc import Sequence

from loop.core.episode import Completion, Failure, Request
from loop.core.noun import seed_from
from loop.core.pair import Message
from loop.engines.rows import Job, Row
from loop.engines.sampling import uniforms
from loop.engines.tokens import Tokens
from loop.engines.weights import LoadedBase

# What a decoder writes for the bytes of a character that has not wholly come.
CUT_CHARACTER = "\ufffd"


class Replies:
    """Knows the tokenizer's side of one ``generate`` call."""

    def __init__(self, loaded: LoadedBase) -> None:
        self.tokens = loaded.tokens
        self.rendered: dict[tuple[Message, ...], tuple[int, ...]] = {}
        self.context = int(loaded.model.config.max_position_embeddings)  # type: ignore[arg-type, union-attr]

    def job(self, key: int, order: int, request: Request) -> Job:
        """A request made ready: its exact prompt, and what room the context leaves for a reply."""
        prompt = self.rendered.get(request.messages)
        if prompt is None:
            prompt = self.rendered[request.messages] = self.tokens.render(request.messages)
        choices = tuple(self.tokens.whole(choice) for choice in request.choices)
        budget = min(request.sampling.max_tokens, self.context - len(prompt))
        if choices and max(map(len, choices)) > self.context - len(prompt):
            budget = 0
        return Job(key, order, request, prompt, budget, choices)

    def is_finished(self, row: Row) -> bool:
        """Whether the reply ended by itself, by a stop string, or by its budget."""
        return row.tokens[-1] in self.tokens.ends or len(row.tokens) >= row.job.budget or self._stopped(row)

    def growing(self, row: Row) -> str:
        """What is settled of an unfinished row's text."""
        return settled(self.tokens.text(row.tokens), row.job.request)

    def completion(self, row: Row) -> Completion:
        """What a finished row says."""
        job = row.job
        return ended(self.tokens, job.request, job.prompt, row.tokens, row.logprobs, job.cached_tokens)

    def _stopped(self, row: Row) -> bool:
        stops = row.job.request.sampling.stop
        return bool(stops) and any(stop in self.tokens.text(row.tokens) for stop in stops)


def too_long(request: Request, prompt: tuple[int, ...]) -> Completion:
    """What is said when the prompt leaves no room in the context: nothing, cut by length.

    For a constrained choice every option has the same probability, since none was scored.
    """
    even = tuple(1 / len(request.choices) for _ in request.choices)
    return Completion(text="", prompt_ids=prompt, token_ids=(), logprobs=(), finish="length", probabilities=even)


def given_up() -> Failure:
    """Why a request that nobody wants any more has no completion."""
    return Failure(boundary="cancelled", message="the request was given up by who asked it")


def settled(text: str, request: Request) -> str:
    """What of a growing reply's text no later token changes: whole characters, and no part of a stop string."""
    end = _stop(text, request)
    if end is not None:
        return text[:end]
    whole = text.rstrip(CUT_CHARACTER)
    held = (n for stop in request.sampling.stop for n in range(1, len(stop)) if whole.endswith(stop[:n]))
    return whole[: len(whole) - max(held, default=0)]


def _stop(text: str, request: Request) -> int | None:
    """Where the first stop string begins; None where there is none."""
    return min((text.index(stop) for stop in request.sampling.stop if stop in text), default=None)


def ended(
    tokens: Tokens,
    request: Request,
    prompt: tuple[int, ...],
    token_ids: Sequence[int],
    logprobs: Sequence[float],
    cached_tokens: int,
) -> Completion:
    """A reply of these tokens: its text up to the first stop string, and what ended it."""
    text = tokens.text(token_ids)
    stop = _stop(text, request)
    return Completion(
        text=text[:stop],
        prompt_ids=prompt,
        token_ids=tuple(token_ids),
        logprobs=tuple(logprobs),
        finish="stop" if stop is not None or token_ids[-1] in tokens.ends else "length",
        cached_tokens=cached_tokens,
    )


def chosen(
    request: Request,
    prompt: tuple[int, ...],
    options: Sequence[tuple[int, ...]],
    logprobs: Sequence[Sequence[float]],
    cached_tokens: int,
) -> Completion:
    """The choice among ``options`` (token ids of whole choices) by the log-probabilities of their tokens.

    Probabilities are those of the whole choices at temperature 1, normalised over the
    choices. Temperature 0 takes the likeliest (the first of equals); above, the choice is drawn
    from the probabilities raised to 1/T. Log-probabilities are the model's own.
    """
    totals = [math.fsum(each) for each in logprobs]
    temperature = request.sampling.temperature
    if temperature > 0:
        luck = float(uniforms(seed_from("choice", request.seed), 1)[0])
        index = _pick(_softmax(totals, temperature), luck)
    else:
        index = totals.index(max(totals))
    return Completion(
        text=request.choices[index],
        prompt_ids=prompt,
        token_ids=options[index],
        logprobs=tuple(logprobs[index]),
        finish="choice",
        cached_tokens=cached_tokens,
        probabilities=_softmax(totals, 1.0),
    )


def _softmax(totals: Sequence[float], temperature: float) -> tuple[float, ...]:
    highest = max(totals)
    weights = [math.exp((total - highest) / temperature) for total in totals]
    return tuple(weight / math.fsum(weights) for weight in weights)


def _pick(probabilities: Sequence[float], luck: float) -> int:
    passed = 0.0
    for index, probability in enumerate(probabilities):
        passed += probability
        if luck < passed:
            return index
    return len(probabilities) - 1
