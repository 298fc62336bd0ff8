"""Ray installs signal handlers of its own; what this process had chosen before is put back."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def sigterm_kept() -> Iterator[None]:
    """Keep the process's own handler of SIGTERM, if it has one, through a library that replaces it.

    Ray's aborts the process, so that nobody could say any more what was kept. Only the main
    thread may set handlers, and Ray sets its own only there.
    """
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if callable(before) and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)
