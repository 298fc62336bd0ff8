"""Recorded steps: a list of jobs of one stage, each done once in a store and remembered."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol, TypeVar

from loop.core.budget import Budget
from loop.core.episode import EpisodeShard
from loop.core.noun import Noun
from loop.core.stage import Stage
from loop.pipeline.parts import Run


class Job(Protocol):
    """A stateless piece of work; ``identity`` is the digest of all that its result depends on."""

    @property
    def identity(self) -> str:
        """Equal identities give equal results."""
        ...


JobT = TypeVar("JobT", bound=Job)
NounT = TypeVar("NounT", bound=Noun)


def each(
    run: Run,
    stage: Stage,
    kind: type[NounT],
    jobs: Mapping[str, Callable[[], JobT]],
    call: Callable[[JobT], NounT],
    cost: Callable[[NounT], Budget],
) -> dict[str, NounT]:
    """The results of keyed jobs in order: recorded ones are taken, the others run and recorded.

    ``jobs`` maps a key to what builds the job, so that a finished stage builds none. Each
    result is recorded as it arrives: a crash keeps those before it. A job that another
    attempt of the store has done is taken from there, with what it cost there.
    """
    if not jobs:
        return {}
    results = {key: run.attempt.find(stage, kind, key) for key in jobs}
    built = {key: jobs[key]() for key, found in results.items() if found is None}
    for key, job in built.items():
        results[key] = _taken(run, stage, kind, key, job)
    missing = [key for key, found in results.items() if found is None]
    progress, total = run.loop.progress, len(jobs)
    part = purpose(jobs)
    progress.stage(stage, f"{part}, {total - len(missing)} of {total} recorded")
    started = last = time.monotonic()
    todo = [built[key] for key in missing]
    for key, result in zip(braked(run, missing), run.loop.executor.map(call, todo), strict=True):
        now = time.monotonic()
        spent = cost(result)
        run.attempt.record(stage, result, spent.plus(Budget(wall_seconds=now - last)), key, built[key].identity)
        results[key] = result
        last = now
        progress.advance(sum(found is not None for found in results.values()), total, rate(spent, now - started))
    progress.finished(stage, f"{part}, {total} steps", time.monotonic() - started, reused=not missing)
    return {key: found for key, found in results.items() if found is not None}


def _taken(run: Run, stage: Stage, kind: type[NounT], key: str, job: Job) -> NounT | None:
    """The result of an equal job of another attempt, recorded here too."""
    found = run.attempt.elsewhere(job.identity, kind)
    if found is None:
        return None
    result, spent = found
    if isinstance(result, EpisodeShard) and any(episode.failure for episode in result.episodes):
        return None  # what broke there may be mended by now
    run.attempt.record(stage, result, spent, key, job.identity)
    return result


def braked(run: Run, keys: Iterable[str]) -> Iterator[str]:
    """The keys, each after the run's brake was asked: with no budget left nothing more is begun."""
    for key in keys:
        run.loop.brake(run.attempt)
        yield key


def purpose(keys: Iterable[str]) -> str:
    """What a list of steps is for, for a person: ``exam`` of ``exam/000``, else the keys."""
    names = list(keys)
    return names[0].rsplit("/", 1)[0] if names and "/" in names[0] else " ".join(names)


def rate(spent: Budget, seconds: float) -> str:
    """What a step made, for a person: tokens generated or trained."""
    tokens = spent.generated_tokens or spent.trained_tokens
    return f"{tokens} tokens" if tokens else f"{seconds:.0f} s"
