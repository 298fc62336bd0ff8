"""Calls that mostly wait, made at once in threads that nothing has to wait for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class _Threads(Generic[Item, Result]):
    """Daemon threads over one queue of items; ``None`` on it sends a thread home."""

    def __init__(self, call: Callable[[Item], Result], workers: int) -> None:
        self.call, self.workers = call, workers
        self.waiting: SimpleQueue[tuple[Item] | None] = SimpleQueue()
        self.finished: SimpleQueue[tuple[Item, Result | None, BaseException | None]] = SimpleQueue()
        self.started, self.unfinished = 0, 0

    def add(self, items: Sequence[Item]) -> None:
        """Give the threads more to do."""
        self.unfinished += len(items)
        for item in items:
            self.waiting.put((item,))
        while self.started < min(self.workers, self.unfinished):
            Thread(target=self._work, name=f"call-{self.started}", daemon=True).start()
            self.started += 1

    def close(self) -> None:
        """Nothing new begins; what is running is left to end by itself."""
        while True:
            try:
                self.waiting.get_nowait()
            except Empty:
                break
        for _ in range(self.started):
            self.waiting.put(None)

    def _work(self) -> None:
        while (packed := self.waiting.get()) is not None:
            try:
                self.finished.put((packed[0], self.call(packed[0]), None))
            except BaseException as error:  # noqa: BLE001 - it is raised again by the caller's thread
                self.finished.put((packed[0], None, error))
                return


def as_done(
    call: Callable[[Item], Result],
    items: Sequence[Item],
    workers: int,
    then: Callable[[Item, Result], Sequence[Item]],
) -> None:
    """``call`` of each item, at most ``workers`` at once; ``then(item, result)`` may return further items.

    ``then`` runs in the caller's thread, once for each item, in the order in which they end.
    The first error is raised at once, and so is an interrupt: what has not begun is not
    begun, and what is running is left to end by itself. The threads of a pool would be
    joined instead, which at Ctrl-C means the longest timeout of a request.
    """
    threads = _Threads(call, workers)
    threads.add(items)
    try:
        while threads.unfinished:
            item, result, error = threads.finished.get()
            if error is not None:
                raise error
            threads.add(then(item, result))  # type: ignore[arg-type]  # without an error there is a result
            threads.unfinished -= 1
    finally:
        threads.close()


def in_order(call: Callable[[Item], Result], items: Sequence[Item], workers: int) -> list[Result]:
    """``call`` of each item, at most ``workers`` at once, in the order of the items; see ``as_done``."""
    results: dict[int, Result] = {}

    def keep(index: int, result: Result) -> Sequence[int]:
        results[index] = result
        return ()

    as_done(lambda index: call(items[index]), range(len(items)), workers, keep)
    return [results[index] for index in range(len(items))]
