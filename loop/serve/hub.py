"""One engine for many callers: requests that arrive while others are answered join the running batch."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from itertools import count

from loop.core.base import Base
from loop.core.episode import Completion, Request
from loop.core.errors import LoopError
from loop.core.pair import Adapter
from loop.ports import Attestation, Blobs, Engine

Waiting = tuple[int, Request]


class Busy(LoopError):
    """So many requests wait that one more would wait too long; try again later."""


class Answer(Future[Completion]):
    """A reply to come. Cancelled before it began, it never begins; later, the engine is told to give it up.

    ``hear`` is told its text so far while it grows, on any thread.
    """

    def __init__(self, hear: Callable[[str], None]) -> None:
        super().__init__()
        self.hear, self.is_wanted = hear, True

    def cancel(self) -> bool:
        """Give the reply up; whether it had not begun. ``result`` raises CancelledError either way, soon."""
        self.is_wanted = False
        return super().cancel()


class Hub:
    """Answers requests on a thread of its own, continuously batched.

    New requests join whenever one of the batch completes. At most ``most_waiting`` wait. An engine
    that raises fails the requests it had, and the next begin afresh.
    """

    def __init__(self, engine: Engine, base: Base, blobs: Blobs, most_waiting: int = 256) -> None:
        self._engine, self.base, self._blobs, self._most = engine, base, blobs, most_waiting
        self._changed = threading.Condition()
        self._waiting: deque[Waiting] = deque()
        self._open: dict[int, Answer] = {}
        self._unattested: deque[tuple[Adapter, Future[Attestation]]] = deque()
        self._keys = count()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="hub", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """How many requests have not begun."""
        return len(self._waiting)

    def ask(self, request: Request, hear: Callable[[str], None] = lambda text: None) -> Answer:
        """The future reply; raises Busy when too many wait or the hub is closing."""
        with self._changed:
            if self._closing or len(self._waiting) >= self._most:
                raise Busy("the server is closing" if self._closing else f"{len(self._waiting)} requests wait already")
            key, reply = next(self._keys), Answer(hear)
            self._open[key] = reply
            self._waiting.append((key, request))
            self._changed.notify()
        return reply

    def attest(self, adapter: Adapter) -> Future[Attestation]:
        """Load and check an adapter while nobody is answered: what was begun ends first, what waits begins after."""
        reply = Future[Attestation]()
        with self._changed:
            if self._closing:
                raise Busy("the server is closing")
            self._unattested.append((adapter, reply))
            self._changed.notify()
        return reply

    def close(self, timeout: float | None = None) -> None:
        """Take nothing new, answer what was asked, and end; ``timeout`` in seconds."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._unattested or self._closing)
                if not self._waiting and not self._unattested:
                    return
            while self._unattested:
                self._attest(*self._unattested.popleft())
            batch = self._arrivals()
            if not batch:
                continue
            try:
                report = self._engine.generate(self.base, self._blobs, batch, self._follow, self._hear)
                for key, failure in report.failures.items():
                    self._end(key, LoopError(failure.message))
                self._fail(LoopError("the engine returned without answering"))
            except Exception as error:  # noqa: BLE001 - whatever broke, those who wait must hear of it
                self._fail(error)

    def _arrivals(self) -> list[Waiting]:
        """Take what waits and was not cancelled meanwhile."""
        with self._changed:
            taken = list(self._waiting)
            self._waiting.clear()
        return [item for item in taken if self._begins(item[0])]

    def _begins(self, key: int) -> bool:
        if self._open[key].set_running_or_notify_cancel():
            return True
        del self._open[key]
        return False

    def _follow(self, key: int, completion: Completion) -> Sequence[Waiting]:
        self._open.pop(key).set_result(completion)
        return () if self._unattested else self._arrivals()

    def _attest(self, adapter: Adapter, reply: Future[Attestation]) -> None:
        if not reply.set_running_or_notify_cancel():
            return
        try:
            reply.set_result(self._engine.attest(self.base, self._blobs, adapter))
        except Exception as error:  # noqa: BLE001 - it belongs to the caller
            reply.set_exception(error)

    def _hear(self, key: int, text: str) -> bool:
        """Tell a growing reply; False gives up one that was cancelled, or whose listener broke."""
        reply = self._open.get(key)
        if reply is None:
            return False
        try:
            if reply.is_wanted:
                reply.hear(text)
                return True
            self._end(key, CancelledError())
        except Exception as error:  # noqa: BLE001 - a listener's fault is its own request's alone
            self._end(key, error)
        return False

    def _end(self, key: int, error: BaseException) -> None:
        reply = self._open.pop(key, None)
        if reply is not None:
            reply.set_exception(error)

    def _fail(self, error: Exception) -> None:
        """End what was begun and not answered; what still waits is not touched."""
        with self._changed:
            kept = {key for key, _ in self._waiting}
            begun = [key for key in list(self._open) if key not in kept]
        for key in begun:
            self._end(key, error)
