"""Nights of the loop of fakes: in this process, and as a process of their own to race with and to kill."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from loop.cli.nightly import terminated_like_interrupted
from loop.core.night import Night
from loop.core.noun import Noun
from loop.core.plan import Plan
from loop.executors.ray import RayExecutor
from loop.pipeline.nightly import Terms, Tonight
from loop.pipeline.parts import Loop
from loop.store.blobs import FsBlobs
from loop.store.sql import SqlStore
from tests import fakes

BEGINS = datetime(2026, 1, 10, 21, 0, tzinfo=UTC)
Opener = Callable[[], Loop]


@dataclass
class TickingClock:
    """Every look at it takes ``tick`` seconds; waiting takes no time but moves it on."""

    tick: float = 0.0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self.pauses: list[float] = []

    def now(self) -> datetime:
        self.seconds += self.tick
        return BEGINS + timedelta(seconds=self.seconds - self.tick)

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.seconds += seconds


class SlowExecutor(Noun):
    """Runs jobs in this process, and says so before each: time enough to be killed in the middle."""

    seconds: float

    def map(self, call: Callable[..., Noun], items: Sequence[object], in_flight: int | None = None) -> Iterator[Noun]:
        for item in items:
            print("working", flush=True)
            time.sleep(self.seconds)
            yield call(item)

    def call(self, call: Callable[..., Noun], item: object, gpus: float = 0) -> Noun:
        return next(iter(self.map(call, [item])))

    def close(self) -> None: ...


class SlowEngine(fakes.ScriptedEngine):
    """The scripted engine, a while later."""

    seconds: float

    def generate(self, *arguments: object) -> fakes.EngineReport:
        time.sleep(self.seconds)
        return super().generate(*arguments)  # type: ignore[arg-type]


class Telling(fakes.Silence):
    """Says so whenever a step is recorded."""

    def advance(self, done: int, total: int, detail: str) -> None:
        print("working", flush=True)


def parts(home: Path, **changes: object) -> Loop:
    """A loop of fakes around the store in a folder."""
    blobs = FsBlobs(url=str(home / "blobs"))
    return fakes.loop(SqlStore(f"sqlite:///{home / 'loop.db'}", blobs), blobs, home / "scratch", **changes)


def night(
    open_parts: Opener, terms: Terms | None = None, plan: Plan | None = None, clock: TickingClock | None = None
) -> Night:
    """One night; ``open_parts`` is called for each try."""

    @contextmanager
    def opened() -> Iterator[Loop]:
        yield open_parts()

    store = open_parts().store
    assert isinstance(store, SqlStore)
    return Tonight(
        store=store,
        family="test",
        plan=plan or fakes.plan(),
        terms=terms or Terms(),
        clock=clock or TickingClock(),
        date="2026-01-10",
        champion=lambda: store.champion("test"),
        open_loop=opened,
        first_pair=lambda loop: fakes.pair(),
    ).run()


def main() -> None:
    """When told to, run one night in the folder that is named, slowly; print how it ended."""
    home, seconds, executor = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
    if executor == "ray":
        ray = RayExecutor(workers=1)
        made = parts(home, executor=ray, engine=SlowEngine(seconds=seconds), progress=Telling())
    else:
        made = parts(home, executor=SlowExecutor(seconds=seconds))
    print("ready", flush=True)
    sys.stdin.readline()
    with terminated_like_interrupted():
        ended = night(lambda: made)
    made.executor.close()
    print(ended.model_dump_json(), flush=True)
    sys.exit(ended.ending.exit_code)


if __name__ == "__main__":
    main()
