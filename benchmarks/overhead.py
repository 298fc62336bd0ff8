"""What the loop costs beside the work: its wall time against bare generation plus bare training.

    python benchmarks/overhead.py --config examples/laptop.toml

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
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from loop.app import first_pair, make_plan, open_contract, open_loop, open_store
from loop.cli.progress import TerminalProgress
from loop.core.episode import Completion, Request
from loop.engines import weights
from loop.pipeline.generation import plant, run_generation
from loop.settings import load_settings


class Timed:
    """Passes every call on and adds up the seconds of the named methods, callbacks excluded."""

    def __init__(self, inner: Any, names: Sequence[str]) -> None:
        self._inner = inner
        self._names = names
        self.seconds = 0.0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        return self._timed(found) if name in self._names else found

    def _timed(self, call: Any) -> Any:
        def timed(*arguments: Any) -> Any:
            away = 0.0

            def outside(follow: Any) -> Any:
                def called(key: int, completion: Completion) -> Sequence[tuple[int, Request]]:
                    nonlocal away
                    began = time.perf_counter()
                    result = follow(key, completion)
                    away += time.perf_counter() - began
                    return result

                return called

            passed = [
                outside(a) if callable(a) and not isinstance(a, type) and i == 3 else a for i, a in enumerate(arguments)
            ]
            began = time.perf_counter()
            result = call(*passed)
            self.seconds += time.perf_counter() - began - away
            return result

        return timed


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
            engine, trainer = Timed(loop.engine, ("generate", "attest")), Timed(loop.trainer, ("train",))
            timed = dataclasses.replace(loop, engine=engine, trainer=trainer)  # type: ignore[arg-type]
            attest = AttestClock()
            began = time.perf_counter()
            child = run_generation(timed, root, plan)
            wall = time.perf_counter() - began
    bare = engine.seconds - attest.seconds + trainer.seconds
    table = Table(title="loop against bare generation and training (same run, same tokens)")
    for name in ("part", "seconds", "tokens", "share of wall"):
        table.add_column(name, justify="right")
    budget = child.budget
    generation = engine.seconds - attest.seconds
    table.add_row("generation", f"{generation:.1f}", f"{budget.generated_tokens:,}", f"{generation / wall:.1%}")
    table.add_row("training", f"{trainer.seconds:.1f}", f"{budget.trained_tokens:,}", f"{trainer.seconds / wall:.1%}")
    table.add_row("attestation", f"{attest.seconds:.1f}", "", f"{attest.seconds / wall:.1%}")
    rest = wall - bare - attest.seconds
    table.add_row("everything else", f"{rest:.1f}", "", f"{rest / wall:.1%}")
    table.add_row("loop", f"{wall:.1f}", "", "100 %")
    console.print(table)
    console.print(f"ratio loop / bare: {wall / bare:.3f}  (bar: at most 1.1)")


if __name__ == "__main__":
    main()
