"""What the tests let other processes do to a store: races, and deaths at chosen moments."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from loop.core.budget import Budget
from loop.core.errors import LoopError
from loop.core.noun import Noun
from loop.core.stage import Stage
from loop.store.blobs import FsBlobs
from loop.store.migrate import upgrade
from loop.store.sql import SqlStore
from tests.store import lineage

ROOT = Path(__file__).parents[2]
SECONDS = 120.0

# Real processes, forked from a server that has the imports done: no connection or thread is inherited.
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["pytest", "tests.store.children"])


@dataclass(frozen=True)
class Outcome:
    """How a child ended: exit code (negative: the signal), what it returned, the sentence of its error."""

    code: int
    out: Any = None
    error: str = ""


@dataclass(frozen=True)
class Child:
    """A running child and the pipe to it."""

    process: BaseProcess
    pipe: Connection

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        assert self.process.pid is not None
        with suppress(ProcessLookupError):  # it may have ended by itself in this moment
            os.kill(self.process.pid, signal.SIGKILL)
        self.process.join(SECONDS)


def start(command: str, *arguments: str) -> Child:
    """Start a child on one of the commands below."""
    mine, its = _context.Pipe()
    process = _context.Process(target=run, args=(its, command, arguments), daemon=True)
    process.start()
    its.close()
    return Child(process, mine)


def wait_for(child: Child, word: str) -> None:
    """Wait until the child says the word."""
    assert child.pipe.poll(SECONDS), f"the child did not say {word}"
    said = child.pipe.recv()
    assert said == word, said


def race(*racers: Child) -> list[Outcome]:
    """Let children that are ready act at once; their outcomes in order."""
    for child in racers:
        wait_for(child, "ready")
    for child in racers:
        child.pipe.send("go")
    return [finish(child) for child in racers]


def finish(child: Child) -> Outcome:
    """Wait for a child to end."""
    said: Any = None
    try:
        while not isinstance(said, Outcome):
            assert child.pipe.poll(SECONDS), "the child hangs"
            said = child.pipe.recv()
    except EOFError:
        said = None
    child.process.join(SECONDS)
    code = child.process.exitcode
    assert code is not None
    return said if isinstance(said, Outcome) else Outcome(code)


def run(pipe: Connection, command: str, arguments: tuple[str, ...]) -> None:
    """In the child: run the command; a LoopError ends with its exit code and sentence."""
    try:
        outcome = Outcome(0, COMMANDS[command](pipe, *arguments))
    except LoopError as error:
        outcome = Outcome(error.exit_code, error=str(error))
    pipe.send(outcome)


def python(script: str) -> Outcome:
    """Run a few lines in a fresh interpreter."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def _ready(pipe: Connection) -> None:
    pipe.send("ready")
    pipe.recv()


def _migrate(pipe: Connection, url: str) -> None:
    upgrade(url)


def _hold(pipe: Connection, url: str, blobs: str, family: str) -> None:
    """Take the lease when told to, and keep it for two seconds."""
    store = SqlStore(url, FsBlobs(url=blobs))
    _ready(pipe)
    with store.lease(family, "the child"):
        pipe.send("held")
        time.sleep(2.0)


def _keep(pipe: Connection, url: str, blobs: str, family: str) -> None:
    """Take the lease at once and keep it for a minute: to be killed."""
    with SqlStore(url, FsBlobs(url=blobs)).lease(family, "the child"):
        pipe.send("held")
        time.sleep(SECONDS)


def _begin(pipe: Connection, url: str, blobs: str, seed: str) -> str:
    store = SqlStore(url, FsBlobs(url=blobs))
    plan, root = lineage.plan(seed=int(seed)), lineage.root()
    _ready(pipe)
    return store.begin(lineage.FAMILY, root, plan).digest


def _register(pipe: Connection, url: str, blobs: str, blob: str) -> None:
    store = SqlStore(url, FsBlobs(url=blobs))
    child = lineage.child(lineage.root(), blob)
    _ready(pipe)
    store.register(child, None)


def _record(pipe: Connection, url: str, blobs: str, start_at: str) -> None:
    """Record the step collect/s0 with a shard that begins at an index."""
    store = SqlStore(url, FsBlobs(url=blobs))
    attempt = store.begin(lineage.FAMILY, lineage.root(), lineage.plan())
    shard = lineage.shard(int(start_at))
    _ready(pipe)
    attempt.record(Stage.COLLECT, shard, Budget(generated_tokens=7), "s0")


def _die_before_row(pipe: Connection, url: str, blobs: str) -> None:
    """Record a first shard; die by SIGKILL with the second shard's blob written and its row not."""

    class DyingBlobs(Noun):
        """Blobs that kill the process right after the nth put is durable."""

        inner: FsBlobs
        after: Path

        def put(self, data: bytes) -> str:
            digest = self.inner.put(data)
            if self.after.exists():
                os.kill(os.getpid(), signal.SIGKILL)
            self.after.touch()
            return digest

        def get(self, digest: str) -> bytes:
            return self.inner.get(digest)

        def put_tree(self, folder: Path) -> str:
            return self.inner.put_tree(folder)

        def get_tree(self, digest: str) -> Path:
            return self.inner.get_tree(digest)

        def has(self, digest: str) -> bool:
            return self.inner.has(digest)

    store = SqlStore(url, DyingBlobs(inner=FsBlobs(url=blobs), after=Path(blobs).with_name("first")))
    with store.lease(lineage.FAMILY, "the child"):
        attempt = store.begin(lineage.FAMILY, lineage.root(), lineage.plan())
        attempt.record(Stage.COLLECT, lineage.shard(0), Budget(generated_tokens=7), "s0")
        attempt.record(Stage.COLLECT, lineage.shard(3), Budget(generated_tokens=7), "s1")


def _work(pipe: Connection, url: str, blobs: str) -> None:
    """A whole small attempt, to be killed anywhere: ten shards, a training set, a registration."""
    store = SqlStore(url, FsBlobs(url=blobs))
    root, plan = lineage.root(), lineage.plan()
    with store.lease(lineage.FAMILY, "the worker"):
        pipe.send("started")
        if store.result(lineage.FAMILY, root, plan) is not None:
            return
        attempt = store.begin(lineage.FAMILY, root, plan)
        for index in range(10):
            shard = lineage.shard(index * 20, 20)
            if attempt.find(Stage.COLLECT, type(shard), f"s{index}") is None:
                attempt.record(Stage.COLLECT, shard, Budget(generated_tokens=7), f"s{index}")
        rows = lineage.training_set(lineage.shard(0, 20))
        attempt.once(Stage.CURATE, type(rows), lambda: rows, "L0")
        store.register(lineage.child(root), attempt)


def _put_tree(pipe: Connection, blobs: str, folder: str) -> None:
    pipe.send("started")
    FsBlobs(url=blobs).put_tree(Path(folder))


COMMANDS: dict[str, Callable[..., Any]] = {
    "migrate": _migrate,
    "hold": _hold,
    "keep": _keep,
    "begin": _begin,
    "register": _register,
    "record": _record,
    "die-before-row": _die_before_row,
    "work": _work,
    "put-tree": _put_tree,
}
