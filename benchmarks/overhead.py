"""What the loop costs beside the work: its wall time against bare generation plus bare training.

    python -m benchmarks.overhead --config examples/laptop.toml

A generation is grown in one process with a clock around the engine (without the time it
spends calling back into the loop, and without attesting adapters) and around the trainer.
Their sum is what the same tokens cost bare, in the same run; the rest (attestation,
sandbox, judging, statistics, store, MLflow) is the overhead.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from loop.app import first_pair, make_plan, open_contract, open_loop, open_store
from loop.cli.progress import TerminalProgress
from loop.core.base import Base
from loop.core.episode import Completion, Request
from loop.core.noun import Noun
from loop.core.pair import Adapter, Message
from loop.core.training_set import TrainingJob, TrainingProfile, TrainingSet
from loop.engines import weights
from loop.engines.transformers import TransformersEngine
from loop.pipeline.generation import plant, run_generation
from loop.ports import Attestation, Blobs, EngineReport, Follow, Hear, Trained
from loop.settings import load_settings
from loop.trainers.lora import LoraTrainer

SECONDS: defaultdict[str, float] = defaultdict(float)


class TimedEngine(Noun):
    """An engine with a clock: seconds of its calls without those it spends calling back."""

    inner: TransformersEngine

    def generate(
        self,
        base: Base,
        blobs: Blobs,
        requests: Sequence[tuple[int, Request]],
        follow: Follow,
        hear: Hear | None = None,
    ) -> EngineReport:
        """Answer every request, with the clock running."""

        def called(key: int, completion: Completion) -> Sequence[tuple[int, Request]]:
            began = time.perf_counter()
            result = follow(key, completion)
            SECONDS["engine"] -= time.perf_counter() - began
            return result

        with clock("engine"):
            return self.inner.generate(base, blobs, requests, called, hear)

    def attest(self, base: Base, blobs: Blobs, adapter: Adapter) -> Attestation:
        """Attest an adapter, with the clock running."""
        with clock("engine"):
            return self.inner.attest(base, blobs, adapter)

    def render(self, base: Base, blobs: Blobs, messages: Sequence[Message]) -> tuple[int, ...]:
        """The token ids of a conversation."""
        return self.inner.render(base, blobs, messages)


class TimedTrainer(Noun):
    """A trainer with a clock."""

    inner: LoraTrainer

    def fresh(
        self, base: Base, blobs: Blobs, label: str, role: str, job_seed: int, profile: TrainingProfile
    ) -> Adapter:
        """A fresh adapter."""
        return self.inner.fresh(base, blobs, label, role, job_seed, profile)

    def train(
        self, job: TrainingJob, parent: Adapter, base: Base, blobs: Blobs, scratch: Path, training_set: TrainingSet
    ) -> Trained:
        """Train, with the clock running."""
        with clock("trainer"):
            return self.inner.train(job, parent, base, blobs, scratch, training_set)


@contextmanager
def clock(name: str) -> Iterator[None]:
    """Adds the seconds inside to the named sum."""
    began = time.perf_counter()
    try:
        yield
    finally:
        SECONDS[name] += time.perf_counter() - began


class AttestClock:
    """Adds up the seconds of attesting, which happens inside the engine when it loads an adapter."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._inner = weights.attested_copy
        weights.attested_copy = self  # type: ignore[assignment]

    def __call__(self, *arguments: Any) -> Any:
        """Attest, with the clock running."""
        began = time.perf_counter()
        result = self._inner(*arguments)
        self.seconds += time.perf_counter() - began
        return result


def main() -> None:
    """Grow one generation in a fresh home and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--config", type=Path, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="macaron-overhead-") as home:
        settings = load_settings(options.config).model_copy(update={"home": Path(home), "workers": 1})
        contract, store = open_contract(settings), open_store(settings)
        plan = make_plan(settings, contract)
        console = Console()
        with TerminalProgress(Console(stderr=True)) as progress, open_loop(settings, store, contract, progress) as loop:
            root = plant(loop, first_pair(settings, loop), settings.seed)
            engine = TimedEngine(inner=loop.engine)
            trainer = TimedTrainer(inner=loop.trainer)
            timed = dataclasses.replace(loop, engine=engine, trainer=trainer)
            attest = AttestClock()
            began = time.perf_counter()
            child = run_generation(timed, root, plan)
            wall = time.perf_counter() - began
    generation, training = SECONDS["engine"] - attest.seconds, SECONDS["trainer"]
    bare = generation + training
    table = Table(title="loop against bare generation and training (same run, same tokens)")
    for name in ("part", "seconds", "tokens", "share of wall"):
        table.add_column(name, justify="right")
    budget = child.budget
    table.add_row("generation", f"{generation:.1f}", f"{budget.generated_tokens:,}", f"{generation / wall:.1%}")
    table.add_row("training", f"{training:.1f}", f"{budget.trained_tokens:,}", f"{training / wall:.1%}")
    table.add_row("attestation", f"{attest.seconds:.1f}", "", f"{attest.seconds / wall:.1%}")
    rest = wall - bare - attest.seconds
    table.add_row("everything else", f"{rest:.1f}", "", f"{rest / wall:.1%}")
    table.add_row("loop", f"{wall:.1f}", "", "100 %")
    console.print(table)
    console.print(f"ratio loop / bare: {wall / bare:.3f}  (bar: at most 1.1)")


if __name__ == "__main__":
    main()
