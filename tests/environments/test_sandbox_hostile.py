"""Hostile programs: each is contained, ends in bounded time, and is a failed run, not a broken sandbox."""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from loop.environments.sandbox import KINDS, Ending, Isolation, Limits, Run, check_isolation, run_python

ROOT = Path(__file__).parents[2]
SLACK_SECONDS = 20  # a loaded machine; the limits themselves are 1 s of CPU and 5 s of wall time


@pytest.fixture(scope="module", params=sorted(KINDS))
def wall(request: pytest.FixtureRequest) -> Isolation:
    """Each way of isolating that this machine has."""
    found = check_isolation(request.param)
    if not found.ok:
        pytest.skip(f"{request.param} does not isolate here: {found.fix}")
    return found


def hostile(source: str, wall: Isolation, argument: object = 0, limits: Limits | None = None) -> Run:
    """Run it once; then an honest program must still get its own result."""
    started = time.monotonic()
    run = run_python(source, "f", ((argument,),), limits, wall=wall)  # type: ignore[arg-type]
    assert time.monotonic() - started < SLACK_SECONDS
    honest = run_python("def f(a): return a + 1", "f", ((41,),), wall=wall)
    assert honest.outputs[0].value == 42
    return run


def failed(run: Run) -> bool:
    """Whether there is no value for the input."""
    return not run.outputs or run.outputs[0].error is not None


def test_a_fork_bomb_starts_nothing(wall: Isolation) -> None:
    run = hostile("import os\ndef f(a):\n    while True: os.fork()", wall)
    assert run.outputs[0].error in ("PermissionError", "BlockingIOError")


@pytest.mark.parametrize(
    "call", ["os.system('true')", "os.posix_spawn('/bin/true', ['true'], {})", "os.execv('/x', ['x'])"]
)
def test_no_other_program_is_started(call: str, wall: Isolation) -> None:
    run = hostile(f"import os\ndef f(a):\n    code = {call}\n    if code: raise OSError\n    return 'started'", wall)
    assert failed(run)


def test_threads_are_refused(wall: Isolation) -> None:
    source = "import threading\ndef f(a):\n    threading.Thread(target=print).start()\n    return 'started'"
    assert hostile(source, wall).outputs[0].error == "RuntimeError"


def test_memory_is_bounded(wall: Isolation) -> None:
    assert hostile("def f(a): return len(bytearray(10**10))", wall).outputs[0].error == "MemoryError"
    grown = hostile("def f(a):\n    x = [0]\n    while True: x += x", wall)
    assert failed(grown)


@pytest.mark.parametrize("catch", ["pass", "import signal; signal.signal(signal.SIGXCPU, signal.SIG_IGN)"])
def test_an_endless_loop_ends_even_when_it_ignores_the_signal(catch: str, wall: Isolation) -> None:
    run = hostile(
        (
            f"{catch}\ndef f(a):\n    while True:\n        try:\n            while True: pass\n"
            "        except BaseException: pass"
        ),
        wall,
    )
    assert run.ending in (Ending.TIMED_OUT, Ending.KILLED) and run.outputs == ()


def test_no_socket_of_any_kind_is_opened(wall: Isolation) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)
        port = server.getsockname()[1]
        for place in (f"('127.0.0.1', {port})", "('10.0.0.1', 80)", "('1.1.1.1', 53)"):
            source = f"import socket\ndef f(a):\n    socket.create_connection({place}, 1)\n    return 'connected'"
            assert hostile(source, wall).outputs[0].error == "PermissionError"
        with pytest.raises(TimeoutError):
            server.accept()
    for kind in ("socket.AF_UNIX", "socket.AF_INET6", "socket.AF_NETLINK"):
        source = f"import socket\ndef f(a):\n    socket.socket({kind}, socket.SOCK_DGRAM)\n    return 'opened'"
        assert failed(hostile(source, wall))


@pytest.mark.parametrize("folder", ["/", "/usr/lib/", "/tmp/", "/root/", "/work/../", "/etc/"])
def test_nothing_is_written_outside_its_folder(folder: str, wall: Isolation) -> None:
    path = f"{folder}x-{uuid4().hex}"  # a name of its own: whoever else uses the machine may have an x
    assert failed(hostile(f"def f(a):\n    open({path!r}, 'w').write('x')\n    return 'written'", wall))
    assert not Path(path).exists()


def test_a_file_of_the_caller_is_neither_read_nor_changed(wall: Isolation, tmp_path: Path) -> None:
    secret = tmp_path / "lineage.sqlite"
    secret.write_text("secret")
    for path in (secret, ROOT / "loop" / "ports.py", ROOT / "pyproject.toml", Path("/etc/passwd"), Path("/etc/shadow")):
        assert failed(hostile(f"def f(a): return open({str(path)!r}).read(20)", wall))
        assert failed(hostile(f"def f(a): return open({str(path)!r}, 'a').write('x')", wall))
    assert secret.read_text() == "secret"


def test_the_process_table_is_not_visible(wall: Isolation) -> None:
    for path in (
        f"/proc/{os.getpid()}/environ",
        "/proc/self/environ",
        "/proc/1/root/etc/passwd",
        "/dev/vda",
        "/dev/mem",
    ):
        assert failed(hostile(f"def f(a): return len(open({path!r}, 'rb').read(10))", wall))


def test_the_environment_of_the_caller_does_not_come_in(wall: Isolation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MACARON_SECRET", "hunter2")
    run = hostile("import os\ndef f(a): return dict(os.environ)", wall)
    found = run.outputs[0].value
    assert isinstance(found, dict)
    assert set(found) <= {"PYTHONHASHSEED", "LC_CTYPE", "PWD", "OLDPWD"}


def test_a_huge_output_is_cut_off(wall: Isolation) -> None:
    for value in ("'x' * 10**7", "[0] * 10**6", "dict.fromkeys(map(str, range(10**5)))"):
        assert hostile(f"def f(a): return {value}", wall).outputs[0].error == "ValueError"
    wide = hostile("def f(a): return [['x' * 999] * 99] * 9", wall)
    assert wide.ending is Ending.OVERFLOWED and wide.outputs == ()
    poured = hostile(
        (
            "import os\ndef f(a):\n    while True:\n        for n in range(3, 9):\n"
            "            try: os.write(n, b'x' * 9999)\n            except OSError: pass"
        ),
        wall,
    )
    assert poured.ending is Ending.OVERFLOWED and poured.outputs == ()


def test_a_huge_file_and_many_files_hit_the_folder_s_end(wall: Isolation) -> None:
    source = (
        "def f(a):\n    with open('big', 'wb') as file:\n"
        "        for _ in range(64): file.write(bytes(1 << 20))\n    return 'written'"
    )
    assert hostile(source, wall).outputs[0].error == "OSError"
    many = (
        "def f(a):\n    for n in range(64):\n"
        "        with open(f'{n}', 'wb') as file: file.write(bytes(1 << 20))\n    return 'written'"
    )
    assert hostile(many, wall).outputs[0].error == "OSError"


def test_nothing_survives_the_end(wall: Isolation) -> None:
    before = set(psutil.Process().children(recursive=True))
    born: set[psutil.Process] = set()  # told apart by pid and start time: a pid is used again
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            born.update(set(psutil.Process().children(recursive=True)) - before)
            time.sleep(0.02)

    watcher = threading.Thread(target=watch)
    watcher.start()
    source = (
        "import os, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ndef f(a):\n"
        "    os.closerange(0, 99)\n    time.sleep(60)"
    )
    run = run_python(source, "f", ((0,),), Limits(wall_seconds=2.0), wall=wall)
    done.set()
    watcher.join()
    assert run.ending is Ending.TIMED_OUT
    assert len(born) >= 2  # the wall's own process and the program's
    gone = time.monotonic() + 5
    while any(child.is_running() for child in born) and time.monotonic() < gone:
        time.sleep(0.05)
    assert not [child for child in born if child.is_running()]


def test_a_spoilt_runner_spoils_only_its_own_result(wall: Isolation) -> None:
    spoils = (
        "import sys, posix\nmain = sys.modules['__main__']\nmain.encode = lambda *_: '\"forged\"'\ndef f(a): return 1",
        "import posix\nposix.write = lambda *_: None\ndef f(a): return 1",
        (
            "import os\nos.close(3)\nfor n in range(9):\n    try: os.write(n, b'garbage\\n')\n"
            "    except OSError: pass\ndef f(a): return 1"
        ),
    )
    for source in spoils:
        run = hostile(source, wall)
        assert all(output.value in ("forged", 1, None) for output in run.outputs)


def test_the_channel_s_nonsense_is_a_malformed_run(wall: Isolation) -> None:
    for said in (
        "b'[' * 50000 + b'\\n'",
        "b'{\"a\":' * 9000 + b'\\n'",
        "b'\\xff\\x00\\n'",
        "b'[true,' + b'9' * 9000 + b']\\n'",
        "b'[true]\\n'",
        "b'[false,[1]]\\n'",
    ):
        source = (
            f"import os\ndef f(a):\n    for n in range(3, 9):\n        try: os.write(n, {said})\n"
            "        except OSError: pass\n    os._exit(0)"
        )
        run = hostile(source, wall)
        assert run.ending is Ending.MALFORMED and run.outputs == ()


def test_leaving_early_with_code_0_gives_no_output(wall: Isolation) -> None:
    for way in ("__import__('os')._exit(0)", "raise SystemExit(0)", "__import__('sys').exit(0)"):
        assert failed(hostile(f"def f(a):\n    {way}", wall))
        assert failed(hostile(f"{way}\ndef f(a): return 1", wall))


def test_signals_reach_nobody(wall: Isolation) -> None:
    for target in ("os.getppid()", "1", "-1", str(os.getpid()), "0"):
        run = hostile(f"import os\ndef f(a):\n    os.kill({target}, 9)\n    return 'sent'", wall)
        assert failed(run)


def test_deep_recursion_ends(wall: Isolation) -> None:
    assert hostile("def f(a): return f(a)", wall).outputs[0].error == "RecursionError"
    source = "import sys\nsys.setrecursionlimit(10**9)\ndef f(a): return [f(a)].__len__()"
    assert failed(hostile(source, wall))


def test_a_deeply_nested_value_is_refused(wall: Isolation) -> None:
    run = hostile("def f(a):\n    x = []\n    for _ in range(100000): x = [x]\n    return x", wall)
    assert failed(run)
    looped = hostile("def f(a):\n    x = []\n    x.append(x)\n    return x", wall)
    assert looped.outputs[0].error == "ValueError"


@pytest.mark.parametrize(
    "call",
    [
        "ptrace(16, 1, 0, 0)",
        "unshare(0x10000000)",
        "mount(b'none', b'/work', b'tmpfs', 0, None)",
        "chroot(b'/work')",
        "process_vm_readv(1, None, 0, None, 0, 0)",
        "setns(0, 0)",
        "shmget(0, 1 << 28, 0o1600)",
        "syscall(319, b'x', 0)" if os.uname().machine == "x86_64" else "syscall(279, b'x', 0)",
    ],
)
def test_a_dangerous_system_call_is_refused(call: str, wall: Isolation) -> None:
    source = (
        "import ctypes\ndef f(a):\n    libc = ctypes.CDLL(None, use_errno=True)\n"
        f"    return [libc.{call}, ctypes.get_errno()]"
    )
    assert hostile(source, wall).outputs[0].value == [-1, 1]  # EPERM


def test_limits_cannot_be_raised(wall: Isolation) -> None:
    source = (
        "import resource\ndef f(a):\n"
        "    resource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40))\n    return 'raised'"
    )
    assert failed(hostile(source, wall))


def test_a_program_finds_its_inputs_and_nothing_else_in_its_process(wall: Isolation) -> None:
    source = (
        "import sys\ndef f(a):\n    frame, found = sys._getframe(), []\n    while frame:\n"
        "        found.append(repr(sorted(map(str, frame.f_locals.items()))))\n"
        "        frame = frame.f_back\n    return found[1:]"
    )
    run = hostile(source, wall, argument="an-input")
    text = str(run.outputs[0].value)
    assert "an-input" in text
    assert "pytest" not in text and str(ROOT) not in text
