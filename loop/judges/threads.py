"""Calls that mostly wait, made at once in threads that nothing has to wait for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from threading import Thread
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_order(call: Callable[[Item], Result], items: Sequence[Item], workers: int) -> list[Result]:
    """``call`` of each item, at most ``workers`` at once, in the order of the items.

    The first error is raised at once, and so is an interrupt: what has not begun is not
    begun, and what is running is left to end by itself. The threads of a pool would be
    joined instead, which at Ctrl-C means the longest timeout of a request.
    """
    waiting: SimpleQueue[int] = SimpleQueue()
    finished: SimpleQueue[tuple[int, Result | None, BaseException | None]] = SimpleQueue()
    for index in range(len(items)):
        waiting.put(index)

    def work() -> None:
        while (index := _next(waiting)) is not None:
            try:
                finished.put((index, call(items[index]), None))
            except BaseException as error:  # noqa: BLE001 - it is raised again by the caller's thread
                finished.put((index, None, error))
                return

    for number in range(min(workers, len(items))):
        Thread(target=work, name=f"judge-{number}", daemon=True).start()
    results: dict[int, Result | None] = {}
    try:
        while len(results) < len(items):
            index, result, error = finished.get()
            if error is not None:
                raise error
            results[index] = result
    finally:
        while _next(waiting) is not None:
            continue
    return [results[index] for index in range(len(items))]  # type: ignore[misc]


def _next(waiting: SimpleQueue[int]) -> int | None:
    try:
        return waiting.get_nowait()
    except Empty:
        return None
