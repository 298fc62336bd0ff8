"""Runs one untrusted Python program walled off from everything, and returns its outputs.

Only the program and its inputs go in; only plain values come out, over a channel that the
program may forge at will: the caller compares them with expected values that never enter.
Each run is its own process in its own namespaces, so that nothing one program does can
reach the caller, a judge's data or another program. See ``sandbox_isolation`` for the
walls and ``sandbox_runner`` for what the process does to itself before the program runs.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import tempfile
import time
from enum import StrEnum
from functools import lru_cache
from pathlib import Path

from pydantic import JsonValue

from loop.core.noun import Noun
from loop.environments.sandbox_isolation import ENVIRONMENT, FLAGS, PROBE, bubblewrap, interpreter, unshare

FOLDER_BYTES = 4 << 20
SEALED = b"sealed\n"
DEEPEST = 32  # brackets; a program's outputs are encoded to depth 8
KINDS = {"bubblewrap": bubblewrap, "unshare": unshare}
RUNNER = Path(__file__).with_name("sandbox_runner.py")

FIX = (
    "install bubblewrap (apt-get install bubblewrap) or util-linux, and allow user namespaces: "
    "sysctl user.max_user_namespaces=15000, on Ubuntu also kernel.apparmor_restrict_unprivileged_userns=0, "
    "in a container run it with --security-opt seccomp=unconfined --security-opt apparmor=unconfined"
)


class SandboxUnavailable(RuntimeError):
    """This machine cannot wall off untrusted code, or the wall broke: the message names the fix."""


class Limits(Noun):
    """What one run may use. Seconds and bytes; ``output_bytes`` is of the whole channel."""

    wall_seconds: float = 5.0
    cpu_seconds: int = 1
    memory_bytes: int = 256 << 20
    file_bytes: int = 1 << 20
    open_files: int = 16
    output_bytes: int = 64 << 10
    source_characters: int = 16_000


class Returned(Noun):
    """What the program gave for one input: a plain value, or the name of what it raised."""

    value: JsonValue = None
    error: str | None = None


class Ending(StrEnum):
    """How a run ended; everything but ``FINISHED`` is a limit that stopped it or a spoilt channel."""

    FINISHED = "finished"
    TIMED_OUT = "timed_out"
    KILLED = "killed"
    OVERFLOWED = "overflowed"
    MALFORMED = "malformed"


class Run(Noun):
    """The outputs in the order of the inputs; shorter than the inputs when the program was stopped."""

    outputs: tuple[Returned, ...]
    ending: Ending


class Isolation(Noun):
    """How code is walled off here (``bubblewrap``, ``unshare`` or ``none``), and the fix where it is not."""

    kind: str
    ok: bool
    fix: str = ""


def run_python(
    source: str,
    entry: str,
    inputs: tuple[tuple[JsonValue, ...], ...],
    limits: Limits | None = None,
    wall: Isolation | None = None,
) -> Run:
    """Call ``entry`` of the program once for each tuple of arguments, in one walled-off process.

    ``wall`` picks a way of isolating; by default it is the first that holds here. Raises
    SandboxUnavailable when none does or the wall itself broke; whatever the program does
    wrong is in the returned ``Run``.
    """
    wall = wall or isolation()
    if not wall.ok:
        raise SandboxUnavailable(f"untrusted code is not run here without isolation; {wall.fix}")
    command = _command(wall.kind)
    if command is None:
        raise SandboxUnavailable(f"{wall.kind} has gone since it was checked; {FIX}")
    return _run(command, source, entry, inputs, limits or Limits())


def isolation() -> Isolation:
    """The first way of isolating that holds against a real attempt to get out; checked once a process."""
    tried = [check_isolation(kind) for kind in KINDS]
    held = next((wall for wall in tried if wall.ok), None)
    reasons = "; ".join(f"{wall.kind}: {wall.fix}" for wall in tried)
    return held or Isolation(kind="none", ok=False, fix=f"{FIX} (tried {reasons})")


@lru_cache(maxsize=len(KINDS))
def check_isolation(kind: str) -> Isolation:
    """Whether one way of isolating holds here; ``fix`` says what is missing or what got out."""
    command = _command(kind)
    if command is None:
        return Isolation(kind=kind, ok=False, fix="not installed")
    leak = _leak(command)
    return Isolation(kind=kind, ok=not leak, fix=leak)


@lru_cache(maxsize=len(KINDS))
def _command(kind: str) -> tuple[str, ...] | None:
    return KINDS[kind](FOLDER_BYTES)


def _leak(command: tuple[str, ...]) -> str:
    """What a probe program managed to do that it must not, or why it could not run; empty when it held."""
    with socket.create_server(("127.0.0.1", 0)) as server, tempfile.NamedTemporaryFile("w") as canary:
        canary.write("canary")
        canary.flush()
        arguments: tuple[JsonValue, ...] = (canary.name, server.getsockname()[1])
        try:
            run = _run(command, PROBE, "probe", (arguments,), Limits())
        except (SandboxUnavailable, OSError) as error:
            return str(error)
        found = run.outputs[0].value if run.outputs else None
        if run.ending is not Ending.FINISHED or not isinstance(found, dict):
            return f"the probe did not finish ({run.ending.value})"
        return ", ".join(f"a program {name}" for name, done in found.items() if done)


def _run(
    command: tuple[str, ...], source: str, entry: str, inputs: tuple[tuple[JsonValue, ...], ...], limits: Limits
) -> Run:
    if len(source) > limits.source_characters:
        return Run(outputs=(), ending=Ending.OVERFLOWED)
    bounds = (limits.cpu_seconds, limits.memory_bytes, limits.file_bytes, limits.open_files)
    job = ascii((source, entry, inputs, bounds)).encode()
    # An unlinked file, not a pipe: writing can never block on a reader that is not there.
    with tempfile.TemporaryFile() as standard_input:
        standard_input.write(job)
        standard_input.seek(0)
        process = subprocess.Popen(
            [*command, interpreter(), *FLAGS, "-c", _runner()],
            stdin=standard_input,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=ENVIRONMENT,
            cwd="/",
            start_new_session=True,
        )
    try:
        said, ending = _listen(process, limits)
    finally:
        _end(process)
    if not said.startswith(SEALED):
        raise SandboxUnavailable(f"the sandbox ended before the program ran (exit {process.returncode}); {FIX}")
    return _parse(said[len(SEALED) :], len(inputs), ending)


@lru_cache(maxsize=1)
def _runner() -> str:
    return RUNNER.read_text(encoding="utf-8")


def _listen(process: subprocess.Popen[bytes], limits: Limits) -> tuple[bytes, Ending]:
    """Read the channel until it closes, the time is up or it overflows."""
    assert process.stdout is not None
    channel = process.stdout.fileno()
    deadline = time.monotonic() + limits.wall_seconds
    said = bytearray()
    with selectors.DefaultSelector() as selector:
        selector.register(channel, selectors.EVENT_READ)
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or not selector.select(left):
                return bytes(said), Ending.TIMED_OUT
            chunk = os.read(channel, 1 << 16)
            if not chunk:
                break
            said += chunk
            if len(said) > limits.output_bytes:
                return bytes(said[: limits.output_bytes]), Ending.OVERFLOWED
    try:
        code = process.wait(max(deadline - time.monotonic(), 0.01))
    except subprocess.TimeoutExpired:
        return bytes(said), Ending.TIMED_OUT
    if code in (-signal.SIGXCPU, 128 + signal.SIGXCPU):
        return bytes(said), Ending.TIMED_OUT
    return bytes(said), Ending.FINISHED if code == 0 else Ending.KILLED


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the group; the first process of the namespace dies with it, and with that all the others."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _parse(said: bytes, expected: int, ending: Ending) -> Run:
    """The channel's lines as outputs; the first that is not what the runner writes spoils the rest."""
    outputs: list[Returned] = []
    for line in said.decode("ascii", "replace").splitlines()[:expected]:
        returned = _returned(line)
        if returned is None:
            ending = Ending.MALFORMED if ending is Ending.FINISHED else ending
            break
        outputs.append(returned)
    return Run(outputs=tuple(outputs), ending=ending)


def _returned(line: str) -> Returned | None:
    """One line as an output, or None when it is not one; never raises on hostile text."""
    depth = deepest = 0
    for character in line:
        depth += (character in "[{") - (character in "]}")
        deepest = max(deepest, depth)
    if deepest > DEEPEST:
        return None
    try:
        parsed = json.loads(line)
    except ValueError:  # also an integer of more digits than Python converts
        return None
    match parsed:
        case [True, value]:
            return Returned(value=value)
        case [False, str(name)]:
            return Returned(error=name[:80])
    return None
