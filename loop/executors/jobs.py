"""One job as both sides know it: what waits here, and what runs it in a worker process."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from loop.executors.failure import pack
from loop.executors.memory import trimmed


@dataclass
class Job:
    """A call that waits, runs or is done; ``tried`` counts the processes it was given to."""

    number: int
    call: Callable[[Any], Any]
    item: Any
    tried: int = 0
    done: bool = False
    result: Any = None
    error: BaseException | None = None

    def succeed(self, result: Any) -> None:
        """Done, with a result."""
        self.result, self.done = result, True

    def fail(self, error: BaseException) -> None:
        """Done, with an error that whoever asked for the result will meet."""
        self.error, self.done = error, True


class Worker:
    """The far side: one process that runs one job at a time."""

    def ready(self) -> int:
        """The process id, once the process is up."""
        return os.getpid()

    def run(self, call: Callable[[Any], Any], item: Any) -> tuple[bool, Any]:
        """(True, result), or (False, Raised): the carrier between the processes never sees the exception."""
        try:
            return True, trimmed(call, item)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the process boundary: the caller raises it again
            return False, pack(error)
