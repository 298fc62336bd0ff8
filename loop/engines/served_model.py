"""The completions API of one server as an engine needs it: token ids in, token ids and log-probabilities out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from loop.core.errors import AttestationFailed, UserError
from loop.core.noun import Noun
from loop.remote.line import Line, NoAnswer, TryAgain, events, fetch, persist

COMPLETIONS = "/completions"
STREAMED = {"stream": True, "stream_options": {"include_usage": True}}
LAST_EVENT = "[DONE]"
# Servers have defaults of their own, and vLLM takes those of the model's generation_config.json.
EXTRAS = {"return_token_ids": True, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
# How vLLM writes the token of a log-probability, and what it writes for minus infinity.
TOKEN, NEVER = "token_id:{}", -9999.0
_Top = TypeAdapter(list[dict[str, float]])

# Told the text so far, and its token ids where the server tells them.
Heard = Callable[[str, Sequence[int] | None], None]


class _Token(BaseModel):
    logprob: float


class _Logprobs(BaseModel):
    """As OpenAI's completions write them (``token_logprobs``), or as its chat does (``content``)."""

    token_logprobs: list[float | None] | None = None
    content: list[_Token] | None = None
    top_logprobs: object = None  # servers differ; only ``following`` reads it

    def values(self) -> list[float | None]:
        """One a token; None where there is nothing before it."""
        return self.token_logprobs or [token.logprob for token in self.content or ()]


class _Choice(BaseModel):
    index: int = 0
    text: str = ""
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None


class _Details(BaseModel):
    cached_tokens: int | None = None


class _Usage(BaseModel):
    prompt_tokens: int | None = None
    prompt_tokens_details: _Details | None = None


class _Reply(BaseModel):
    model: str
    choices: list[_Choice]
    usage: _Usage | None = None

    def ordered(self, count: int) -> list[_Choice]:
        """The choices in the order of their prompts; NoAnswer unless there is one for each."""
        if len(self.choices) != count:
            raise NoAnswer(f"malformed: {len(self.choices)} choices for {count} prompts")
        return sorted(self.choices, key=lambda choice: choice.index)

    def cached_tokens(self) -> int:
        """What of the prompts the server had already computed; 0 where it does not tell."""
        details = self.usage.prompt_tokens_details if self.usage is not None else None
        return (details.cached_tokens or 0) if details is not None else 0


def _joined(pieces: Sequence[_Reply]) -> _Reply:
    """The pieces of a streamed reply as the reply they make."""
    parts = [choice for piece in pieces for choice in piece.choices]
    told = [part.token_ids for part in parts if part.token_ids is not None]
    values = [value for part in parts if part.logprobs is not None for value in part.logprobs.values()]
    choice = _Choice(
        text="".join(part.text for part in parts),
        finish_reason=next((part.finish_reason for part in reversed(parts) if part.finish_reason), None),
        logprobs=_Logprobs(token_logprobs=values),
        token_ids=[token for ids in told for token in ids] if told else None,
        prompt_token_ids=next((part.prompt_token_ids for part in parts if part.prompt_token_ids is not None), None),
    )
    usage = next((piece.usage for piece in reversed(pieces) if piece.usage is not None), None)
    return _Reply(model=pieces[-1].model, choices=[choice], usage=usage)


def _told(choice: _Choice, tokens: Sequence[int]) -> list[float]:
    """The log-probabilities of tokens at a reply's first place; NoAnswer where one is lacking."""
    try:
        first = _Top.validate_python(choice.logprobs.top_logprobs if choice.logprobs is not None else None)[0]
        values = [first[TOKEN.format(token)] for token in tokens]
    except (ValidationError, IndexError, KeyError):
        raise NoAnswer("the server gives no log-probabilities of tokens it is asked for") from None
    if min(values, default=0.0) <= NEVER:
        raise NoAnswer("the server gives a token that it is asked for no probability")
    return values


class _Model(BaseModel):
    id: str


class _Models(BaseModel):
    data: list[_Model]


class Answer(Noun):
    """One reply as the server told it; ``token_ids`` None and ``logprobs`` empty where it gave none."""

    text: str
    finish: str
    token_ids: tuple[int, ...] | None
    logprobs: tuple[float, ...]
    cached_tokens: int


@dataclass(frozen=True)
class ServedModel:
    """An open line to a server. Every method raises NoAnswer when retries did not help.

    ``mixes_base`` is False where the server errs on requests to the base beside those to adapters.

    AttestationFailed is raised where another model answers than was asked, and UserError
    where the server reads another prompt than was sent.
    """

    line: Line
    mixes_base: bool = True

    def models(self) -> tuple[str, ...]:
        """The names that are served."""
        try:
            found = _Models.model_validate_json(persist(self.line, lambda: fetch(self.line, "/models")))
        except ValidationError:
            raise NoAnswer("malformed: not a list of models") from None
        return tuple(model.id for model in found.data)

    def post(self, path: str, body: dict[str, Any]) -> bytes:
        """Any request, with retries."""
        return persist(self.line, lambda: fetch(self.line, path, body))

    def complete(self, name: str, prompt: Sequence[int], body: dict[str, Any], heard: Heard | None = None) -> Answer:
        """One reply to a prompt of token ids; ``body`` holds what else is asked for.

        With ``heard`` the reply is streamed; whatever that raises breaks it off and is raised.
        """
        asked = {"prompt": list(prompt), "logprobs": 1} | body
        reply = self._ask(name, asked) if heard is None else self._streamed(name, asked, heard)
        if len(reply.choices) != 1:
            raise NoAnswer(f"malformed: {len(reply.choices)} choices instead of one")
        choice = reply.choices[0]
        self._check_prompt(prompt, choice, reply.usage)
        if choice.finish_reason not in ("stop", "length"):
            raise NoAnswer(f"the reply ended by {choice.finish_reason!r}")
        values = choice.logprobs.values() if choice.logprobs is not None else []
        return Answer(
            text=choice.text,
            finish=choice.finish_reason,
            token_ids=None if choice.token_ids is None else tuple(choice.token_ids),
            logprobs=tuple(value for value in values if value is not None),
            cached_tokens=reply.cached_tokens(),
        )

    def following(
        self, name: str, prompts: Sequence[Sequence[int]], tokens: Sequence[int]
    ) -> tuple[list[list[float]], int]:
        """The log-probability of each of ``tokens`` as the next one, by prompt, and the cached tokens; one request.

        By vLLM's ``logprob_token_ids`` (0.22 and later), at most 128 of them; a server that
        echoes prompts can ``score`` instead. Raises NoAnswer where it cannot.
        """
        body = EXTRAS | {"max_tokens": 1, "temperature": 1.0, "top_p": 1.0, "logprobs": 1}
        told = {"logprob_token_ids": list(tokens), "return_tokens_as_token_ids": True}
        reply = self._ask(name, body | told | {"prompt": [list(prompt) for prompt in prompts]})
        rows: list[list[float]] = []
        for prompt, choice in zip(prompts, reply.ordered(len(prompts)), strict=True):
            self._check_prompt(prompt, choice, reply.usage if len(prompts) == 1 else None)
            rows.append(_told(choice, tokens))
        return rows, reply.cached_tokens()

    def score(self, name: str, prompts: Sequence[Sequence[int]]) -> list[list[float]]:
        """The log-probability of each prompt's tokens but the first, by the model alone, in one request.

        The server repeats ("echoes") the prompts. Raises NoAnswer where it cannot.
        """
        body = {"prompt": [list(prompt) for prompt in prompts], "echo": True, "logprobs": 1, "max_tokens": 1}
        reply = self._ask(name, body | {"temperature": 0.0})
        scored: list[list[float]] = []
        for prompt, choice in zip(prompts, reply.ordered(len(prompts)), strict=True):
            values = choice.logprobs.values() if choice.logprobs is not None else []
            own = [value for value in values[1 : len(prompt)] if value is not None]
            if len(own) != len(prompt) - 1:
                raise NoAnswer("the server gives no log-probabilities of a prompt")
            scored.append(own)
        return scored

    def _ask(self, name: str, body: dict[str, Any]) -> _Reply:
        return self._read(name, self.post(COMPLETIONS, {"model": name} | body))

    def _streamed(self, name: str, body: dict[str, Any], heard: Heard) -> _Reply:
        """A reply told as it comes; it is not asked for again once part of it was told, for it may come otherwise."""
        pieces: list[_Reply] = []

        def once() -> None:
            try:
                self._take_in(name, body, pieces, heard)
            except TryAgain as error:
                if not pieces:
                    raise
                raise NoAnswer(f"{error}, after part of the reply", error.status) from None

        persist(self.line, once)
        if not pieces:
            raise NoAnswer("malformed: not a completion")
        return _joined(pieces)

    def _take_in(self, name: str, body: dict[str, Any], pieces: list[_Reply], heard: Heard) -> None:
        text, token_ids = "", list[int]()
        with closing(events(self.line, COMPLETIONS, {"model": name} | body | STREAMED)) as found:
            for data in takewhile(lambda data: data != LAST_EVENT, found):
                pieces.append(self._read(name, data))
                for part in pieces[-1].choices:
                    text += part.text
                    token_ids += part.token_ids or ()
                heard(text, token_ids or None)

    def _read(self, name: str, data: str | bytes) -> _Reply:
        try:
            reply = _Reply.model_validate_json(data)
        except ValidationError:
            raise NoAnswer("malformed: not a completion") from None
        if reply.model != name:
            raise AttestationFailed(
                f"{self.line.endpoint.url} was asked for model {name!r} and answered as {reply.model!r}: "
                "nothing of it was kept; serve that model, or correct the engine's endpoint."
            )
        return reply

    def _check_prompt(self, prompt: Sequence[int], choice: _Choice, usage: _Usage | None) -> None:
        read = choice.prompt_token_ids
        count = len(read) if read is not None else usage.prompt_tokens if usage is not None else None
        if (read is not None and read != list(prompt)) or count not in (None, len(prompt)):
            raise UserError(
                f"{self.line.endpoint.url} was sent a prompt of {len(prompt)} tokens and read {count} others: "
                "switch off what it adds or cuts, and serve the base with its own tokenizer."
            )
