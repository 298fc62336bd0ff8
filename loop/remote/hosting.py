"""A server in its own process group: started, waited for, and ended with all its children."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

KEEPER = Path(__file__).with_name("keeper.py")
POLL_SECONDS = 0.05
LOG_LINES = 20


@dataclass(frozen=True)
class Hosted:
    """A server that was started: its URL, and how it fares."""

    url: str
    keeper: subprocess.Popen[bytes]
    output: IO[bytes]

    def last_words(self) -> str | None:
        """The end of its output once it has ended; None while it runs."""
        return None if self.keeper.poll() is None else _tail(self.output)


@contextlib.contextmanager
def hosted(
    command: Sequence[str],
    environment: Mapping[str, str],
    bind: str = "127.0.0.1",
    start_seconds: float = 120.0,
    grace_seconds: float = 10.0,
) -> Iterator[str]:
    """``watched`` for those who need only its URL."""
    with watched(command, environment, bind, start_seconds, grace_seconds) as server:
        yield server.url


@contextlib.contextmanager
def watched(
    command: Sequence[str],
    environment: Mapping[str, str],
    bind: str = "127.0.0.1",
    start_seconds: float = 120.0,
    grace_seconds: float = 10.0,
) -> Iterator[Hosted]:
    """Keep ``command`` up while the context is open, at ``http://<bind>:<port>``.

    ``{port}`` and ``{host}`` in the arguments are replaced by a free port and by ``bind``;
    ``environment`` is added to this process's own. The context opens when the port accepts
    a connection. Raises RuntimeError, with the end of the server's output, when it exits
    first or does not answer within ``start_seconds``.
    """
    port = free_port(bind)
    argv = [part.replace("{port}", str(port)).replace("{host}", bind) for part in command]
    with tempfile.TemporaryFile() as output:
        keeper = subprocess.Popen(
            [sys.executable, "-I", "-S", str(KEEPER), str(grace_seconds), *argv],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            start_new_session=True,
        )
        try:
            _wait_for_port(keeper, argv, bind, port, start_seconds, output)
            yield Hosted(f"http://{bind}:{port}", keeper, output)
        finally:
            if keeper.stdin is not None:
                keeper.stdin.close()
            keeper.wait()


def free_port(bind: str = "127.0.0.1") -> int:
    """A TCP port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind((bind, 0))
        return int(probe.getsockname()[1])


def _wait_for_port(
    keeper: subprocess.Popen[bytes], argv: list[str], bind: str, port: int, seconds: float, output: IO[bytes]
) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        status = keeper.poll()
        if status is not None:
            raise RuntimeError(f"{argv[0]} exited with status {status} before it answered:\n{_tail(output)}")
        with contextlib.suppress(OSError), socket.create_connection((bind, port), timeout=1):
            return
        time.sleep(POLL_SECONDS)
    raise RuntimeError(f"{argv[0]} did not answer on {bind}:{port} within {seconds:.0f} s:\n{_tail(output)}")


def _tail(output: IO[bytes]) -> str:
    output.seek(0)
    return b"\n".join(output.read().splitlines()[-LOG_LINES:]).decode(errors="replace")
