"""A real PostgreSQL server for the tests: own folder, own socket, gone at the end."""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

UNPRIVILEGED = ("postgres", "nobody")
START_SECONDS = 30.0


def find_binaries() -> Path | None:
    """The folder that holds initdb and postgres, or None."""
    places = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep)]
    if config := shutil.which("pg_config"):
        shown = subprocess.run([config, "--bindir"], capture_output=True, text=True, check=True)
        places.insert(0, Path(shown.stdout.strip()))
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((place for place in places if (place / "initdb").exists() and (place / "postgres").exists()), None)


def account() -> pwd.struct_passwd:
    """Who runs the server: PostgreSQL refuses root, so then an unprivileged account."""
    if os.getuid() != 0:
        return pwd.getpwuid(os.getuid())
    for name in UNPRIVILEGED:
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise LookupError(f"running as root and none of the accounts {', '.join(UNPRIVILEGED)} exists")


def _die_with_parent() -> None:
    """Linux: the server gets SIGQUIT (immediate shutdown) when the test process is gone, however it went."""
    ctypes.CDLL(None).prctl(1, signal.SIGQUIT)


@contextmanager
def server(binaries: Path) -> Iterator[str]:
    """Start a server on a Unix socket in a temporary folder; yields its URL without a database name."""
    who = account()
    # A socket's path is limited to 107 bytes: pytest's folders are too deep. Memory spares the disk.
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="pg", dir=memory if os.access(memory, os.W_OK) else None))
    os.chown(folder, who.pw_uid, who.pw_gid)
    as_user: dict[str, Any] = {"user": who.pw_uid, "group": who.pw_gid, "extra_groups": []} if os.getuid() == 0 else {}
    data, environment = folder / "data", os.environ | {"HOME": str(folder), "LC_ALL": "C"}
    initdb = [str(binaries / "initdb"), "-D", str(data), "-U", "tester", "-A", "trust", "-E", "UTF8", "--no-sync"]
    subprocess.run(initdb, check=True, capture_output=True, cwd=folder, env=environment, **as_user)
    options = ["-c", "listen_addresses=", "-c", "fsync=off", "-c", "max_connections=200", "-k", str(folder)]
    log = open(folder / "server.log", "wb")  # noqa: SIM115 - closed below, after the server
    process = subprocess.Popen(
        [str(binaries / "postgres"), "-D", str(data), *options],
        stdout=log,
        stderr=subprocess.STDOUT,
        cwd=folder,
        env=environment,
        preexec_fn=_die_with_parent,
        **as_user,
    )
    try:
        _wait(folder, process)
        yield f"postgresql+psycopg://tester@/{{name}}?host={folder}"
    finally:
        process.send_signal(signal.SIGQUIT)
        process.wait(START_SECONDS)
        log.close()
        shutil.rmtree(folder, ignore_errors=True)


def _wait(folder: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            psycopg.connect(host=str(folder), user="tester", dbname="postgres").close()
            return
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((folder / "server.log").read_text()) from None
            time.sleep(0.05)
