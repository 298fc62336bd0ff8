"""Jobs for the executors' tests: module-level, so that a worker can import them."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

import psutil

from loop.core.errors import StoreConflict

CALLS: list[int] = []
LITTER: list[bytes] = []


class Fussy(Exception):
    """An exception that pickle cannot rebuild: its constructor wants two arguments."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what} because {why}")


def square(number: int) -> int:
    """A deterministic job."""
    return number * number


def counted(number: int) -> tuple[int, int]:
    """The process, and how many jobs it has met: a module-level cache like a loaded model."""
    CALLS.append(number)
    time.sleep(0.05)
    return os.getpid(), len(CALLS)


def litters(count: int) -> int:
    """Fills the heap with blocks too small to be mapped, keeps one in a hundred; this process's bytes before."""
    before = psutil.Process().memory_info().rss
    LITTER.extend([bytes([1]) * 100_000 for _ in range(count)][::-100])
    return before


def slept(seconds: float) -> tuple[float, float]:
    """When the job began and ended."""
    began = time.time()
    time.sleep(seconds)
    return began, time.time()


def dies_once(marker: str) -> str:
    """SIGKILLs its own process on the first try; says on which try it ended."""
    tries = Path(marker)
    count = len(tries.read_text()) if tries.exists() else 0
    tries.write_text("x" * (count + 1))
    if count == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"try {count + 1}"


def dies_always(_: int) -> None:
    """SIGKILLs its own process each time."""
    os.kill(os.getpid(), signal.SIGKILL)


def fails_for_a_cause(number: int) -> None:
    """Raises one of our own errors from a ValueError."""
    try:
        raise ValueError(f"the root cause of {number}")
    except ValueError as error:
        raise StoreConflict("host a holds the lease") from error


def fails_in_context(_: int) -> None:
    """Raises while another exception is handled."""
    try:
        raise KeyError("first")
    except KeyError:
        raise OSError(28, "No space left on device")  # noqa: B904 - the implicit chain is what is tested


def fails_fussily(_: int) -> None:
    """Raises what does not survive pickle."""
    raise Fussy("it broke", "it was fussy")


def exits(status: int) -> None:
    """Calls sys.exit."""
    sys.exit(status)


def unpicklable(_: int) -> object:
    """Returns what cannot travel."""
    return (line for line in ("a", "b"))


def variable(name: str) -> str | None:
    """An environment variable of the worker."""
    return os.environ.get(name)


def marked(path: str) -> str:
    """Writes a mark and returns its path."""
    Path(path).write_text("ran")
    return path


def segfaults(_: int) -> None:
    """Crashes the interpreter."""
    ctypes.string_at(0)


def fails_or_marks(path: str) -> None:
    """Fails when there is no path; else writes a mark, and two seconds later another."""
    if not path:
        raise ValueError("nothing to mark")
    Path(path).write_text("begun")
    time.sleep(2)
    Path(path).write_text("ended")
