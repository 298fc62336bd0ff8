"""Route decisions as episodes: the cases of a routing bank put to the routers of pairs, in one batch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from loop.core.episode import (
    Ask,
    Completion,
    Episode,
    EpisodeShard,
    Record,
    Request,
    Split,
    Task,
    Turn,
    Usage,
    episode_seed,
)
from loop.core.noun import digest_of, seed_from
from loop.core.pair import Pair
from loop.core.routing import Route, RouteCase
from loop.gains.routing import Decided
from loop.mol.route import decide, route_ask
from loop.ports import Blobs, Engine

ENVIRONMENT = "routing"
SHARD_CASES = 32


@dataclass(frozen=True)
class RouteJob:
    """Cases that the router of each pair decides ``samples`` times, all in one batch.

    ``taught`` adds, where no sample of a case was right, an episode in which the reply is the
    first label wanted: what the bank says, not what the router said.
    """

    engine: Engine
    blobs: Blobs
    pairs: tuple[Pair, ...]
    cases: tuple[RouteCase, ...]
    split: Split
    samples: int
    temperature: float
    seed: int
    taught: bool = False

    @property
    def identity(self) -> str:
        """The digest of all that its episodes depend on."""
        parts = [self.engine, self.pairs, self.cases, self.split]
        return digest_of(["routes", *parts, [self.samples, self.temperature, self.seed, self.taught]])


@dataclass(eq=False)
class Question:
    """One case put to one router once, and what it replied."""

    case: RouteCase
    pair: Pair
    sample: int
    ask: Ask
    taught: bool = False
    reply: Completion | None = None
    siblings: list[Question] = field(default_factory=list)

    @property
    def is_right(self) -> bool:
        """Whether the reply is a label that the case wants."""
        return self.reply is not None and self.reply.text.strip() in self.case.wanted


def ask_routes(job: RouteJob) -> EpisodeShard:
    """One episode a decision, in the order of case, pair and sample; a taught one follows its case's samples.

    An engine that raises ends the job.
    """
    started = time.monotonic()
    questions = [question for case in job.cases for pair in job.pairs for question in _questions(job, case, pair)]

    def follow(key: int, completion: Completion) -> Sequence[tuple[int, Request]]:
        question = questions[key]
        question.reply = completion
        lesson = _lesson(question) if job.taught else None
        if lesson is None:
            return ()
        questions.append(lesson)
        return ((len(questions) - 1, _request(job, lesson)),)

    bases = {pair.base.digest: pair.base for pair in job.pairs}
    if len(bases) != 1:
        raise ValueError("the pairs of one job share one base")
    first = [(key, _request(job, question)) for key, question in enumerate(questions)]
    report = job.engine.generate(next(iter(bases.values())), job.blobs, first, follow)
    for failure in report.failures.values():
        raise RuntimeError(f"the {failure.boundary} left a case unanswered: {failure.message}")
    seconds = (time.monotonic() - started) / max(1, len(questions))
    places = {case.id: place for place, case in enumerate(job.cases)}
    pairs = {pair.digest: place for place, pair in enumerate(job.pairs)}
    ordered = sorted(questions, key=lambda q: (places[q.case.id], pairs[q.pair.digest], q.sample))
    return EpisodeShard(episodes=tuple(_episode(job, question, seconds) for question in ordered))


def _questions(job: RouteJob, case: RouteCase, pair: Pair) -> list[Question]:
    ask = route_ask(pair.harness, case.context)
    ask = ask.revise(sampling=ask.sampling.revise(temperature=job.temperature))
    siblings: list[Question] = []
    siblings += [Question(case, pair, sample, ask, siblings=siblings) for sample in range(job.samples)]
    return siblings


def _lesson(last: Question) -> Question | None:
    """The answer the bank gives, once every sample of a case is in and none was right."""
    if last.taught or any(q.reply is None or q.is_right for q in last.siblings):
        return None
    if last.case.label not in last.pair.harness.routing.labels:
        return None
    ask = last.ask.revise(choices=(last.case.label,), sampling=last.ask.sampling.revise(temperature=0.0))
    return Question(last.case, last.pair, len(last.siblings), ask, taught=True)


def task_of(case: RouteCase, split: Split) -> Task:
    """A case as the store knows it: its class and kind are the family, its words the seed."""
    return Task(environment=ENVIRONMENT, case=f"{case.label}/{case.kind}", split=split, seed=seed_from(case.digest))


def _request(job: RouteJob, question: Question) -> Request:
    seed = episode_seed(job.seed, task_of(question.case, job.split), question.sample)
    adapter = question.pair.adapter(question.ask.label)
    ask = question.ask
    return Request(messages=ask.messages, adapter=adapter, sampling=ask.sampling, seed=seed, choices=ask.choices)


def _episode(job: RouteJob, question: Question, seconds: float) -> Episode:
    """The last user message and the reply; the record holds what was wanted and what was decided."""
    reply, pair, task = question.reply, question.pair, task_of(question.case, job.split)
    if reply is None:
        raise RuntimeError("the engine returned without answering every request")
    adapter = pair.adapter(question.ask.label)
    route = decide(pair.harness, reply)
    said = Turn(
        role="assistant",
        content=reply.text,
        label=question.ask.label,
        adapter=adapter.digest if adapter else None,
        prompt_ids=reply.prompt_ids,
        token_ids=reply.token_ids,
        logprobs=reply.logprobs,
        finish=reply.finish,
    )
    return Episode(
        task=task,
        pair=pair.digest,
        sample=question.sample,
        seed=episode_seed(job.seed, task, question.sample),
        turns=(Turn(role="user", content=question.ask.messages[-1].content), said),
        record=Record(
            slots={"case": question.case.id, "wanted": list(question.case.wanted)},
            world={"route": route.model_dump(mode="json"), "right": question.is_right, "taught": question.taught},
        ),
        usage=Usage(
            prompt_tokens=len(reply.prompt_ids),
            cached_tokens=reply.cached_tokens,
            generated_tokens=len(reply.token_ids),
        ),
        seconds=seconds,
    )


def decided(cases: Sequence[RouteCase], episodes: Sequence[Episode], pair: str) -> tuple[Decided, ...]:
    """Each case with the route that a pair (digest) decided on it first."""
    routes: dict[str, Route] = {}
    for episode in episodes:
        if episode.pair == pair:
            routes.setdefault(str(episode.record.slots["case"]), Route.model_validate(episode.record.world["route"]))
    return tuple((case, routes[case.id]) for case in cases)


def route_jobs(job: RouteJob, purpose: str) -> dict[str, partial[RouteJob]]:
    """The job in shards, keyed ``<purpose>/000`` and on."""
    starts = range(0, len(job.cases), SHARD_CASES)
    return {
        f"{purpose}/{number:03d}": partial(replace, job, cases=job.cases[start : start + SHARD_CASES])
        for number, start in enumerate(starts)
    }
