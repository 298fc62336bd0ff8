"""Train: a new adapter revision for each specialist that has enough rows."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from loop.core.base import Base
from loop.core.budget import Budget
from loop.core.noun import digest_of, seed_from
from loop.core.pair import Adapter
from loop.core.stage import Stage
from loop.core.training_set import TrainingJob, TrainingSet
from loop.pipeline.parts import Run
from loop.pipeline.steps import each
from loop.ports import Blobs, Trained, Trainer


@dataclass(frozen=True)
class Lesson:
    """One specialist's training with everything it needs, so that it can run anywhere."""

    trainer: Trainer
    blobs: Blobs
    base: Base
    parent: Adapter
    job: TrainingJob
    training_set: TrainingSet
    scratch: Path

    @property
    def identity(self) -> str:
        """The digest of all that the adapter depends on; the job names parent, rows and recipe."""
        return digest_of(["train", self.trainer, self.base.digest, self.job])


def train(run: Run, sets: Mapping[str, TrainingSet]) -> dict[str, Trained]:
    """The trainings of the labels with at least the profile's ``min_rows``, by label.

    They go to the executor together, so that they run side by side where it has workers. A
    plan without weights trains nothing.
    """
    ready = {
        label: training_set
        for label, training_set in sorted(sets.items())
        if run.plan.weights and len(training_set.rows) >= run.plan.profile.min_rows and run.parent.pair.adapter(label)
    }
    lessons = {
        label: partial(_lesson, run, label, training_set, allowed(run.plan.allowance.train, training_set, ready))
        for label, training_set in ready.items()
    }
    trained = each(run, Stage.TRAIN, Trained, lessons, teach, _cost)
    for label in lessons:
        shutil.rmtree(_scratch(run, label), ignore_errors=True)
    return trained


def allowed(tokens: int | None, training_set: TrainingSet, ready: Mapping[str, TrainingSet]) -> int | None:
    """One training's part of an allowance of trained tokens: in proportion to its rows' tokens."""
    return None if tokens is None else round(tokens * training_set.tokens / sum(s.tokens for s in ready.values()))


def _lesson(run: Run, label: str, training_set: TrainingSet, tokens: int | None) -> Lesson:
    pair = run.parent.pair
    parent = pair.adapter(label)
    if parent is None:
        raise KeyError(label)
    job = TrainingJob(
        label=label,
        role=parent.role,
        base=pair.base.digest,
        parent=parent.digest,
        training_set=training_set.digest,
        profile=run.plan.profile.revise(tokens=tokens),
        seed=seed_from("train", *run.seed, label),
        licence=pair.base.licence,
    )
    loop = run.loop
    return Lesson(loop.trainer, loop.blobs, pair.base, parent, job, training_set, _scratch(run, label))


def _scratch(run: Run, label: str) -> Path:
    return run.loop.scratch / run.attempt.digest[:16] / label


def teach(lesson: Lesson) -> Trained:
    """Run one training; a module-level function, so that a cluster can."""
    return lesson.trainer.train(
        lesson.job, lesson.parent, lesson.base, lesson.blobs, lesson.scratch, lesson.training_set
    )


def _cost(trained: Trained) -> Budget:
    return Budget(trained_tokens=trained.trained_tokens)
