"""The engine behind a URL: any server of OpenAI's completions API that takes prompts of token ids."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from pydantic import ConfigDict, Field

from loop.core.base import Base
from loop.core.episode import Completion, Failure, Request
from loop.core.errors import UserError
from loop.core.noun import Noun
from loop.core.pair import Adapter, Message
from loop.engines.choices import beginnings
from loop.engines.reply import chosen, ended, given_up, settled, too_long
from loop.engines.served_model import EXTRAS, Answer, Heard, ServedModel
from loop.engines.shelf import served_name, shelf_of
from loop.engines.tokens import Tokens, load_tokens
from loop.ports import Attestation, Blobs, EngineReport, Follow, Hear
from loop.remote.endpoint import Endpoint
from loop.remote.line import NoAnswer, TryAgain, opened
from loop.remote.threads import as_done

LARGEST_REPLY = 64 << 20  # bytes; the probe of one adapter or a long prompt scored is some megabytes
SEED_BITS = 31  # what every server takes
GONE = 404  # a model that was served is no longer


class OpenAIEngine(Noun):
    """Asks a server (vLLM, SGLang, llama.cpp) that serves the base under ``endpoint.model``.

    A choice is scored (``scoring``) by a server that tells probabilities of given tokens
    (``extras``, vLLM's) or else echoes prompts; otherwise ``structured`` "vllm" lets the
    server hold the reply to its options, and the reply is matched.
    ``lora`` "vllm" loads adapters by vLLM's requests, at most ``most_adapters`` at once; the
    server must see the blobs' folder. Where ``mixes_base`` is off (vLLM's CPU build gives the
    base's requests an adapter's change when both share a batch), the base is asked as an
    adapter that changes nothing, once any is loaded. ``extras`` sends what these servers know beyond OpenAI's
    API: no other sampling than was asked for, the end tokens, and that the reply's token ids
    be told. Where they are not, its text is tokenised again and log-probabilities are absent.
    ``processed_logprobs`` says that log-probabilities are those after temperature and top_p
    (vLLM's ``--logprobs-mode processed_logprobs``); otherwise they are kept only where both
    change nothing. ``timeout`` and ``backoff`` (the first pause between tries) are in seconds.
    """

    # A key that was put in the wrong place must not show in the error that says so.
    model_config = ConfigDict(hide_input_in_errors=True)

    endpoint: Endpoint = Endpoint(url="http://127.0.0.1:8000/v1", model="base")
    structured: Literal["none", "vllm"] = "none"
    scoring: bool = True
    lora: Literal["none", "vllm"] = "vllm"
    most_adapters: int = Field(default=8, gt=0)
    mixes_base: bool = True
    extras: bool = True
    processed_logprobs: bool = False
    in_flight: int = Field(default=32, ge=1, le=96)
    timeout: float = Field(default=300.0, gt=0)
    retries: int = Field(default=4, ge=0, le=10)
    backoff: float = Field(default=1.0, gt=0, le=60)

    def generate(
        self,
        base: Base,
        blobs: Blobs,
        requests: Sequence[tuple[int, Request]],
        follow: Follow,
        hear: Hear | None = None,
    ) -> EngineReport:
        """Answer every request, ``in_flight`` at once; see the port."""
        started = time.perf_counter()
        if not requests:
            return EngineReport()
        tokens = load_tokens(base, blobs)
        answered: list[Completion] = []
        failures: dict[int, Failure] = {}

        def asked(more: Sequence[tuple[int, Request]]) -> list[_Asked]:
            return [_Asked(key, request, tokens.render(request.messages)) for key, request in more]

        def keep(one: _Asked, found: Completion | Failure) -> Sequence[_Asked]:
            if isinstance(found, Failure):
                failures[one.key] = found
                return ()
            answered.append(found)
            return asked(follow(one.key, found))

        with self._server() as server:
            call = _Call(self, server, tokens, base, blobs, hear)
            as_done(call.answer, asked(requests), self.in_flight, keep)
        return EngineReport(
            prompt_tokens=sum(len(completion.prompt_ids) for completion in answered),
            cached_tokens=sum(completion.cached_tokens for completion in answered),
            generated_tokens=sum(len(completion.token_ids) for completion in answered),
            seconds=time.perf_counter() - started,
            failures=failures,
        )

    def attest(self, base: Base, blobs: Blobs, adapter: Adapter) -> Attestation:
        """Have the server load the adapter if need be; what its check found, or AttestationFailed on any doubt."""
        try:
            with self._server() as server, self.lent(server, base, blobs, adapter) as (_, found):
                return found
        except NoAnswer as error:
            raise UserError(f"{self.endpoint.url} could not be asked about adapter {adapter.label}: {error}.") from None

    def render(self, base: Base, blobs: Blobs, messages: Sequence[Message]) -> tuple[int, ...]:
        """The token ids of a conversation up to and with the generation prompt."""
        return load_tokens(base, blobs).render(messages)

    @contextmanager
    def _server(self) -> Iterator[ServedModel]:
        """A line to the server, which is there and serves the base; UserError otherwise."""
        url, name = self.endpoint.url, self.endpoint.model
        with opened(
            (self.endpoint,), timeout=self.timeout, retries=self.retries, backoff=self.backoff, largest=LARGEST_REPLY
        ) as (line,):
            server = ServedModel(line, self.mixes_base)
            try:
                names = server.models()
            except NoAnswer as error:
                raise UserError(
                    f"no usable server at {url} ({error}): start it, or correct the engine's endpoint."
                ) from None
            if name not in names:
                raise UserError(f"{url} serves no model {name!r}, it serves: {', '.join(sorted(names)) or 'none'}.")
            yield server

    def lent(
        self, server: ServedModel, base: Base, blobs: Blobs, adapter: Adapter
    ) -> AbstractContextManager[tuple[str, Attestation]]:
        """The adapter's served name and attestation, for as long as the context is open."""
        if self.lora == "none":
            raise UserError(
                f"the engine is told that {self.endpoint.url} takes no adapters (lora = 'none'), and adapter "
                f"{adapter.label} ({adapter.short}) is to answer: serve it by vLLM, or run without adapters."
            )
        return shelf_of(self.endpoint.url).lend(server, base, blobs, adapter, self.most_adapters)


class _GivenUp(Exception):
    """Nobody wants the reply any more."""


class _Asked(NamedTuple):
    """A request with the caller's key and its prompt's token ids."""

    key: int
    request: Request
    prompt: tuple[int, ...]


@dataclass(frozen=True)
class _Call:
    """What one ``generate`` call needs to answer a request; its threads share it."""

    engine: OpenAIEngine
    server: ServedModel
    tokens: Tokens
    base: Base
    blobs: Blobs
    hear: Hear | None

    def answer(self, one: _Asked) -> Completion | Failure:
        """The completion, or why there is none."""
        room = self.base.context_length - len(one.prompt)
        longest = max((len(self.tokens.whole(choice)) for choice in one.request.choices), default=0)
        if room <= longest:
            return too_long(one.request, one.prompt)
        heard = self._heard(one)
        try:
            if heard is not None:
                heard("", ())
            return self._answered(one, heard)
        except _GivenUp:
            return given_up()
        except NoAnswer as error:
            return Failure(boundary="engine", message=f"{self.engine.endpoint.url}: {error}")

    def _heard(self, one: _Asked) -> Heard | None:
        """Tells a growing reply, and raises _GivenUp where nobody wants it; None where nobody is to be told."""
        hear = self.hear
        if hear is None or one.request.choices:
            return None

        def heard(text: str, token_ids: Sequence[int] | None) -> None:
            said = text if token_ids is None else self.tokens.text(token_ids)
            if not hear(one.key, settled(said, one.request)):
                raise _GivenUp

        return heard

    def _answered(self, one: _Asked, heard: Heard | None) -> Completion:
        shelf, adapter = shelf_of(self.engine.endpoint.url), one.request.adapter
        name = shelf.stand_in if adapter is None else served_name(adapter)
        try:
            return self._by(adapter, one, heard)
        except NoAnswer as error:
            if error.status != GONE or name is None:
                raise
        # The server was started again and has lost the adapter: once more, loaded and attested anew.
        shelf.forget(name)
        return self._by(adapter, one, heard)

    def _by(self, adapter: Adapter | None, one: _Asked, heard: Heard | None) -> Completion:
        if adapter is None:
            return self._ask(shelf_of(self.engine.endpoint.url).stand_in or self.engine.endpoint.model, one, heard)
        with self.engine.lent(self.server, self.base, self.blobs, adapter) as (name, _):
            return self._ask(name, one, heard)

    def _ask(self, name: str, one: _Asked, heard: Heard | None) -> Completion:
        choices = one.request.choices
        if not choices:
            return self._reply(one, self.server.complete(name, one.prompt, self._body(one), heard))
        scored = self._tried(self._followed, name, one) or self._tried(self._echoed, name, one)
        if scored is not None:
            return scored
        held = {"structured_outputs": {"choice": list(choices)}} if self.engine.structured == "vllm" else {}
        return self._matched(one, self.server.complete(name, one.prompt, self._body(one) | held))

    def _tried(self, scored: Callable[[str, _Asked], Completion | None], name: str, one: _Asked) -> Completion | None:
        """None where this way of scoring is switched off or the server does not know it."""
        try:
            return scored(name, one) if self.engine.scoring else None
        except TryAgain:
            raise
        except NoAnswer as error:
            if error.status == GONE:
                raise
            return None

    def _body(self, one: _Asked) -> dict[str, Any]:
        """Sampling as the API names it; a choice has room for its longest option."""
        sampling, room = one.request.sampling, self.base.context_length - len(one.prompt)
        options = [len(self.tokens.whole(choice)) for choice in one.request.choices]
        body: dict[str, Any] = {
            "max_tokens": max(options) if options else min(sampling.max_tokens, room),
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": one.request.seed % (1 << SEED_BITS),
        }
        if sampling.stop and not options:
            body["stop"] = list(sampling.stop)
        if self.engine.extras:
            body |= EXTRAS | {"stop_token_ids": sorted(self.tokens.ends)}
        return body

    def _reply(self, one: _Asked, answer: Answer) -> Completion:
        sampling = one.request.sampling
        if answer.token_ids:
            unchanged = sampling.temperature == 0 or (sampling.temperature == 1 and sampling.top_p == 1)
            known = len(answer.logprobs) == len(answer.token_ids)
            logprobs = answer.logprobs if known and (unchanged or self.engine.processed_logprobs) else ()
            return ended(self.tokens, one.request, one.prompt, answer.token_ids, logprobs, answer.cached_tokens)
        # Where stop strings were given, nobody says whether one of them or the end token ended it.
        by_end = answer.finish == "stop" and not sampling.stop
        return Completion(
            text=answer.text,
            prompt_ids=one.prompt,
            token_ids=self.tokens.whole(answer.text) if by_end else self.tokens.plain(answer.text),
            logprobs=(),
            finish=answer.finish,
            cached_tokens=answer.cached_tokens,
        )

    def _followed(self, name: str, one: _Asked) -> Completion | None:
        """By what may follow the prompt, and then what of the options has begun; in this order, the cache helps."""
        shelf = shelf_of(self.engine.endpoint.url)
        if not (self.engine.extras and shelf.follows):
            return None
        options = tuple(self.tokens.whole(choice) for choice in one.request.choices)
        begun = beginnings(options)
        tokens = sorted({token for option in options for token in option})
        try:
            first, cached = self.server.following(name, [one.prompt], tokens)
            rest = self.server.following(name, [(*one.prompt, *each) for each in begun], tokens)[0] if begun else []
        except NoAnswer as error:
            shelf.follows = isinstance(error, TryAgain) or error.status is not None
            raise
        after = {
            each: dict(zip(tokens, row, strict=True)) for each, row in zip([(), *begun], first + rest, strict=True)
        }
        logprobs = [[after[option[:place]][token] for place, token in enumerate(option)] for option in options]
        return chosen(one.request, one.prompt, options, logprobs, cached)

    def _echoed(self, name: str, one: _Asked) -> Completion | None:
        if self.engine.structured != "none":
            return None
        options = [self.tokens.whole(choice) for choice in one.request.choices]
        rows = self.server.score(name, [[*one.prompt, *option] for option in options])
        logprobs = [row[-len(option) :] for row, option in zip(rows, options, strict=True)]
        return chosen(one.request, one.prompt, options, logprobs, 0)

    def _matched(self, one: _Asked, answer: Answer) -> Completion:
        """The option that the reply is or, the longest first, begins with; probabilities stay unknown."""
        said = answer.text.strip()
        fitting = [choice for choice in one.request.choices if said.startswith(choice.strip())]
        if not fitting:
            raise NoAnswer("the reply is none of the choices")
        choice = max(fitting, key=len)
        return Completion(
            text=choice,
            prompt_ids=one.prompt,
            token_ids=self.tokens.whole(choice),
            logprobs=(),
            finish="choice",
            cached_tokens=answer.cached_tokens,
        )
