"""Playing episodes: many live rollouts on one engine, continuously batched.

``play`` is a stateless job: everything it needs comes with it, so it runs here or on a
cluster and gives the same episodes.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

from loop.core.contract import Contract
from loop.core.conversation import HopRecord, Say
from loop.core.episode import (
    Ask,
    Completion,
    Episode,
    EpisodeShard,
    Failure,
    Outcome,
    Record,
    Request,
    Task,
    Turn,
    Usage,
    episode_seed,
)
from loop.core.noun import digest_of, seed_from
from loop.core.pair import Pair, Sampling
from loop.mol.runtime import conversation
from loop.ports import Blobs, Engine, Environment


@dataclass(frozen=True)
class PlayJob:
    """A shard: each task met ``samples`` times by each pair, all in one batch.

    Pairs meet the same tasks with the same seeds, interleaved, so that a comparison of two
    pairs sees the same luck and the same machine. ``temperature`` None keeps the harness's.
    """

    engine: Engine
    blobs: Blobs
    environments: tuple[Environment, ...]
    contract: Contract
    pairs: tuple[Pair, ...]
    tasks: tuple[Task, ...]
    samples: int
    temperature: float | None
    seed: int
    first_sample: int = 0

    @property
    def identity(self) -> str:
        """The digest of all that its episodes depend on."""
        return digest_of(
            [
                "play",
                self.engine,
                self.environments,
                self.contract.digest,
                self.pairs,
                self.tasks,
                [self.samples, self.first_sample, self.temperature, self.seed],
            ]
        )


@dataclass
class Live:
    """One episode being played."""

    task: Task
    pair: Pair
    sample: int
    seed: int
    asking: Generator[Ask, Completion, Outcome]
    turns: list[Turn]
    hops: list[HopRecord] = field(default_factory=list)
    asked: float = 0.0
    usage: Usage = Usage()
    outcome: Outcome | None = None


def play(job: PlayJob) -> EpisodeShard:
    """Play every episode of the job; the order is task, pair, sample.

    A rollout that raises ends as a Failure at the environment's boundary, never as a bad
    score; an engine that raises ends the job, for then nothing about the rest is known.
    """
    started = time.monotonic()
    lives = [
        _live(job, task, pair, job.first_sample + sample)
        for task in job.tasks
        for pair in job.pairs
        for sample in range(job.samples)
    ]
    first = [(key, request) for key, live in enumerate(lives) if (request := _step(job, live, None)) is not None]

    def follow(key: int, completion: Completion) -> Sequence[tuple[int, Request]]:
        request = _step(job, lives[key], completion)
        return [] if request is None else [(key, request)]

    bases = {pair.base.digest: pair.base for pair in job.pairs}
    if len(bases) != 1:
        raise ValueError("the pairs of one job share one base")
    report = job.engine.generate(next(iter(bases.values())), job.blobs, first, follow)
    for key, failure in report.failures.items():
        lives[key].outcome = Outcome(record=Record(), failure=failure)
    seconds = (time.monotonic() - started) / max(1, len(lives))
    return EpisodeShard(episodes=tuple(_episode(live, seconds) for live in lives))


def _live(job: PlayJob, task: Task, pair: Pair, sample: int) -> Live:
    environment = next(e for e in job.environments if e.name == task.environment)
    seed = episode_seed(job.seed, task, sample)
    turns: list[Turn] = []

    def heard(say: Say) -> None:
        """Keep what was said; the harness's own prompt is not repeated in episodes."""
        turns.extend(Turn(role=message.role, content=message.content) for message in say.messages)

    rollout = environment.rollout(task, pair.harness, job.contract)
    return Live(task, pair, sample, seed, conversation(pair.harness, rollout, heard), turns)


def _step(job: PlayJob, live: Live, completion: Completion | None) -> Request | None:
    """Advance one rollout by a completion; the next request, or None when it ended."""
    try:
        if completion is None:
            ask = next(live.asking)
        else:
            _note_reply(live, completion)
            ask = live.asking.send(completion)
    except StopIteration as stop:
        live.outcome = stop.value
        return None
    except Exception as error:  # noqa: BLE001 - the boundary: an environment may break in any way
        failure = Failure(boundary=live.task.environment, message=f"{type(error).__name__}: {error}")
        live.outcome = Outcome(record=Record(), failure=failure)
        return None
    live.turns.append(Turn(role="assistant", content="", label=ask.label, hop=ask.hop))
    live.asked = time.monotonic()
    return _request(job, live, ask)


def _request(job: PlayJob, live: Live, ask: Ask) -> Request:
    sampling = ask.sampling
    if job.temperature is not None:
        sampling = Sampling.model_validate(sampling.model_dump() | {"temperature": job.temperature})
    position = sum(turn.role == "assistant" for turn in live.turns)
    return Request(
        messages=ask.messages,
        adapter=live.pair.adapter(ask.label),
        sampling=sampling,
        seed=seed_from("turn", live.seed, position),
        choices=ask.choices,
    )


def _note_reply(live: Live, completion: Completion) -> None:
    asked = live.turns.pop()
    adapter = live.pair.adapter(asked.label)
    live.turns.append(
        asked.revise(
            content=completion.text,
            adapter=adapter.digest if adapter else None,
            prompt_ids=completion.prompt_ids,
            token_ids=completion.token_ids,
            logprobs=completion.logprobs,
            finish=completion.finish,
        )
    )
    live.hops.append(
        HopRecord(
            hop=asked.hop,
            label=asked.label,
            adapter=adapter.digest if adapter else "",
            prompt_tokens=len(completion.prompt_ids),
            cached_tokens=completion.cached_tokens,
            generated_tokens=len(completion.token_ids),
            seconds=time.monotonic() - live.asked,
        )
    )
    live.usage = Usage(
        prompt_tokens=live.usage.prompt_tokens + len(completion.prompt_ids),
        cached_tokens=live.usage.cached_tokens + completion.cached_tokens,
        generated_tokens=live.usage.generated_tokens + len(completion.token_ids),
    )


def _episode(live: Live, seconds: float) -> Episode:
    outcome = live.outcome
    if outcome is None:
        failure = Failure(boundary="engine", message="the engine returned without answering every request")
        outcome = Outcome(record=Record(), failure=failure)
    return Episode(
        task=live.task,
        pair=live.pair.digest,
        sample=live.sample,
        seed=live.seed,
        turns=tuple(live.turns),
        record=outcome.record,
        usage=live.usage,
        failure=outcome.failure,
        seconds=seconds,
        hops=tuple(live.hops),
    )
