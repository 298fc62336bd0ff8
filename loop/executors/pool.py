"""Worker processes on this machine: each keeps its loaded models from job to job."""

from __future__ import annotations

import ctypes
import logging
import multiprocessing
import signal
import sys
import warnings
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from loop.core.errors import StageFailed
from loop.executors.failure import unpack
from loop.executors.jobs import Worker

logger = logging.getLogger(__name__)

PR_SET_PDEATHSIG = 1
WINDOW_PER_WORKER = 2


def run(call: Callable[[Any], Any], item: Any) -> tuple[bool, Any]:
    """What a worker process runs: (True, result), or (False, Raised)."""
    return Worker().run(call, item)


def _begin() -> None:
    """A worker leaves Ctrl-C to its parent, and dies with it: a killed run leaves no process behind."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.simplefilter("ignore", FutureWarning)  # libraries' notes to each other, not to the user
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Pool:
    """``workers`` processes; a job whose process died is tried ``tries`` times in all."""

    def __init__(self, workers: int, tries: int) -> None:
        self.workers, self.tries = workers, tries
        self._processes = self._start()

    def map(self, call: Callable[[Any], Any], items: Sequence[Any], window: int | None) -> Generator[Any]:
        """Results in order; at most ``window`` jobs are begun and not yet handed out."""
        width = window or WINDOW_PER_WORKER * self.workers
        waiting: deque[tuple[int, Future[tuple[bool, Any]]]] = deque()
        tried = [0] * len(items)
        following = 0
        try:
            while waiting or following < len(items):
                while following < len(items) and len(waiting) < width:
                    waiting.append((following, self._submit(call, items[following])))
                    tried[following] += 1
                    following += 1
                number, future = waiting[0]
                try:
                    done, result = future.result()
                except BrokenProcessPool:
                    waiting = self._again(call, items, [at for at, _ in waiting], tried)
                    continue
                waiting.popleft()
                if not done:
                    raise unpack(result)
                yield result
        finally:
            for _, future in waiting:
                future.cancel()

    def close(self) -> None:
        """End the processes."""
        self._processes.shutdown(wait=True, cancel_futures=True)

    def _start(self) -> ProcessPoolExecutor:
        # spawn: a forked copy of a process that has run torch's threads can hang.
        context = multiprocessing.get_context("spawn")
        return ProcessPoolExecutor(self.workers, mp_context=context, initializer=_begin)

    def _submit(self, call: Callable[[Any], Any], item: Any) -> Future[tuple[bool, Any]]:
        try:
            return self._processes.submit(run, call, item)
        except BrokenProcessPool:
            self._processes = self._start()
            return self._processes.submit(run, call, item)

    def _again(
        self, call: Callable[[Any], Any], items: Sequence[Any], numbers: list[int], tried: list[int]
    ) -> deque[tuple[int, Future[tuple[bool, Any]]]]:
        """Replace the broken processes and begin the unfinished jobs again."""
        worn = [number for number in numbers if tried[number] >= self.tries]
        if worn:
            raise StageFailed(
                f"job {worn[0]} lost its worker process {self.tries} times (killed, or out of memory); "
                "what was recorded is kept: free memory or set fewer workers, and run the same command to resume."
            )
        logger.warning("a worker process died; it is replaced and %d jobs begin again", len(numbers))
        self._processes.shutdown(wait=True, cancel_futures=True)
        self._processes = self._start()
        for number in numbers:
            tried[number] += 1
        return deque((number, self._submit(call, items[number])) for number in numbers)
