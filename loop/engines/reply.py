"""From requests to rows and from finished rows to completions: text, stops and choices."""

from __future__ import annotations

import math
from collections.abc import Sequence

from loop.core.episode import Completion, Request
from loop.core.noun import seed_from
from loop.core.pair import Message
from loop.engines.rows import Job, Row
from loop.engines.sampling import uniforms
from loop.engines.weights import LoadedBase


class Replies:
    """Knows the tokenizer's side of one ``generate`` call."""

    def __init__(self, loaded: LoadedBase) -> None:
        self.loaded = loaded
        self.rendered: dict[tuple[Message, ...], tuple[int, ...]] = {}
        self.partial: dict[int, list[Row]] = {}
        self.context = int(loaded.model.config.max_position_embeddings)  # type: ignore[arg-type, union-attr]

    def job(self, key: int, order: int, request: Request) -> Job:
        """A request made ready: its exact prompt, and what room the context leaves for a reply."""
        prompt = self.rendered.get(request.messages)
        if prompt is None:
            prompt = self.rendered[request.messages] = self.loaded.render(request.messages)
        choices = tuple(self._choice_tokens(choice) for choice in request.choices)
        budget = min(request.sampling.max_tokens, self.context - len(prompt))
        if choices and max(map(len, choices)) > self.context - len(prompt):
            budget = 0
        return Job(key, order, request, prompt, budget, choices)

    def rows(self, job: Job) -> list[Row]:
        """One row, or one for each choice."""
        return [Row(job, forced=choice) for choice in job.choices] or [Row(job)]

    def is_finished(self, row: Row) -> bool:
        """Whether the reply ended by itself, by a stop string, or by its budget."""
        if row.forced:
            return len(row.tokens) == len(row.forced)
        return row.tokens[-1] in self.loaded.ends or len(row.tokens) >= row.job.budget or self._stopped(row)

    def completions(self, finished: Sequence[Row]) -> list[tuple[Job, Completion]]:
        """The jobs that these rows complete, in the order in which the jobs arrived."""
        ready: list[tuple[Job, Completion]] = []
        for row in sorted(finished, key=lambda row: row.job.order):
            if not row.forced:
                ready.append((row.job, self._completion(row)))
                continue
            scored = self.partial.setdefault(row.job.order, [])
            scored.append(row)
            if len(scored) == row.job.width:
                del self.partial[row.job.order]
                ready.append((row.job, self._chosen(row.job, scored)))
        return ready

    def too_long(self, job: Job) -> Completion:
        """What is said when the prompt leaves no room in the context: nothing, cut by length.

        For a constrained choice every option has the same probability, since none was scored.
        """
        if not job.request.choices:
            return Completion(text="", prompt_ids=job.prompt, token_ids=(), logprobs=(), finish="length")
        even = tuple(1 / len(job.request.choices) for _ in job.request.choices)
        return Completion(
            text="", prompt_ids=job.prompt, token_ids=(), logprobs=(), finish="length", probabilities=even
        )

    def _choice_tokens(self, choice: str) -> tuple[int, ...]:
        """The choice as a whole reply: with the end token, so that no choice is a beginning of another."""
        tokens = self.loaded.tokenizer(choice, add_special_tokens=False)["input_ids"]
        return (*tokens, int(self.loaded.tokenizer.eos_token_id))

    def _stopped(self, row: Row) -> bool:
        stops = row.job.request.sampling.stop
        return bool(stops) and any(stop in self._text(row.tokens) for stop in stops)

    def _text(self, tokens: Sequence[int]) -> str:
        kept = [token for token in tokens if token not in self.loaded.ends]
        text: str = self.loaded.tokenizer.decode(kept, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text

    def _completion(self, row: Row) -> Completion:
        text = self._text(row.tokens)
        cuts = [text.index(stop) for stop in row.job.request.sampling.stop if stop in text]
        ended = bool(cuts) or row.tokens[-1] in self.loaded.ends
        return Completion(
            text=text[: min(cuts)] if cuts else text,
            prompt_ids=row.job.prompt,
            token_ids=tuple(row.tokens),
            logprobs=tuple(row.logprobs),
            finish="stop" if ended else "length",
            cached_tokens=row.job.cached_tokens,
        )

    def _chosen(self, job: Job, scored: Sequence[Row]) -> Completion:
        """Probabilities of the whole choices at temperature 1, normalised over the choices.

        Temperature 0 takes the likeliest (the first of equals); above, the choice is drawn
        from the probabilities raised to 1/T. Log-probabilities are the model's own.
        """
        rows = [next(row for row in scored if row.forced == choice) for choice in job.choices]
        totals = [math.fsum(row.logprobs) for row in rows]
        probabilities = _softmax(totals, 1.0)
        temperature = job.request.sampling.temperature
        if temperature > 0:
            luck = float(uniforms(seed_from("choice", job.request.seed), 1)[0])
            index = _pick(_softmax(totals, temperature), luck)
        else:
            index = totals.index(max(totals))
        return Completion(
            text=job.request.choices[index],
            prompt_ids=job.prompt,
            token_ids=tuple(rows[index].tokens),
            logprobs=tuple(rows[index].logprobs),
            finish="choice",
            cached_tokens=job.cached_tokens,
            probabilities=probabilities,
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
