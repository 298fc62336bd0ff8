"""Calls at once: in order, within bounds, and nobody waits for the others after an error."""

from __future__ import annotations

from threading import Barrier, Event, Lock

import pytest

from loop.remote.threads import in_order


def test_results_come_in_the_order_of_the_items() -> None:
    # Each pair meets at the barrier, so two calls are running at once, in either order.
    barrier = Barrier(2, timeout=60)

    def call(item: int) -> int:
        barrier.wait()
        return item * item

    assert in_order(call, range(6), 2) == [0, 1, 4, 9, 16, 25]
    assert in_order(call, [], 2) == []


def test_no_more_calls_run_at_once_than_there_are_workers() -> None:
    lock, running, most = Lock(), [0], [0]

    def call(item: int) -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        Event().wait(0.005)
        with lock:
            running[0] -= 1

    in_order(call, range(20), 3)
    assert most[0] <= 3


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_is_raised_while_another_call_still_hangs_and_nothing_new_begins(error: type[BaseException]) -> None:
    hangs, release, begun = Event(), Event(), list[int]()

    def call(item: int) -> None:
        begun.append(item)
        if item == 0:
            hangs.set()
            release.wait()
        else:
            hangs.wait()
            raise error

    with pytest.raises(error):
        in_order(call, range(50), 2)
    assert not release.is_set()
    release.set()
    assert sorted(begun) == [0, 1]
