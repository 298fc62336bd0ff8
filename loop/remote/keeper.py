"""Keeps one server alive for as long as its owner lives, then ends its whole process group.

Run as ``python keeper.py SECONDS COMMAND...`` with a pipe on standard input that only the
owner holds: end of file there means that the owner closed the context, or died, even by
SIGKILL. A server of many processes must not outlive the run that started it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time

POLL_SECONDS = 0.05


def keep(command: list[str], grace: float) -> int:
    """Run the command until it exits (its status is returned) or the owner goes away (0)."""
    # Ctrl-C on the terminal is the owner's affair: it closes the pipe when it is ready.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    while server.poll() is None:
        owner_gone, _, _ = select.select([sys.stdin], [], [], POLL_SECONDS)
        if owner_gone:
            end_group(server, grace)
            return 0
    end_group(server, grace)
    return server.returncode if server.returncode >= 0 else 128 - server.returncode


def end_group(server: subprocess.Popen[bytes], grace: float) -> None:
    """SIGTERM the group, wait up to ``grace`` seconds for all of it, then SIGKILL what is left."""
    deadline = time.monotonic() + grace
    with contextlib.suppress(ProcessLookupError):
        os.killpg(server.pid, signal.SIGTERM)
        while time.monotonic() < deadline:
            server.poll()  # reaps the leader; the group is gone when no member is left
            os.killpg(server.pid, 0)
            time.sleep(POLL_SECONDS)
        os.killpg(server.pid, signal.SIGKILL)
    server.wait()


if __name__ == "__main__":
    sys.exit(keep(sys.argv[2:], float(sys.argv[1])))
