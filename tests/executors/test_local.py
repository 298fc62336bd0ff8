"""The local executor: lazy, in order, errors as they are, servers that end with their owner."""

from __future__ import annotations

import os
import pickle
import platform
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from loop.core.errors import StageFailed, StoreConflict
from loop.executors.local import LocalExecutor
from loop.remote.hosting import hosted

from . import jobs

ROOT = Path(__file__).parents[2]
SERVER = [sys.executable, "-m", "http.server", "{port}", "--bind", "{host}"]
STUBBORN = """
import signal, subprocess, sys, socket, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import signal, time; signal.signal(15, 1); time.sleep(600)"])
open(sys.argv[2], "w").write(str(child.pid))
with socket.create_server(("127.0.0.1", int(sys.argv[1]))):
    time.sleep(600)
"""


def test_results_are_in_order_and_a_job_runs_only_when_its_result_is_asked_for() -> None:
    jobs.CALLS.clear()
    results = LocalExecutor().map(jobs.counted, [7, 8, 9])
    assert jobs.CALLS == []
    assert next(results) == (os.getpid(), 1)
    assert jobs.CALLS == [7]


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries shrink their heap by themselves")
@pytest.mark.parametrize("processes", [1, 2])
def test_memory_that_a_job_left_free_is_given_back(processes: int) -> None:
    executor = LocalExecutor(processes=processes)
    try:
        first, *_, last = executor.map(jobs.litters, [3000] * 9)
    finally:
        executor.close()
        jobs.LITTER.clear()
    assert last - first < 150_000_000  # each job held 300 MB, and keeps 3


def test_an_error_is_raised_as_it_is_with_its_cause() -> None:
    with pytest.raises(StoreConflict, match="host a holds the lease") as caught:
        LocalExecutor().call(jobs.fails_for_a_cause, 3)
    assert isinstance(caught.value.__cause__, ValueError)


def test_it_pickles_and_closes_twice() -> None:
    executor = LocalExecutor()
    assert pickle.loads(pickle.dumps(executor)).digest == executor.digest
    executor.close()
    executor.close()
    assert executor.workers == 1


def test_a_hosted_server_answers_and_is_gone_afterwards(tmp_path: Path) -> None:
    with LocalExecutor().host([*SERVER, "--directory", str(tmp_path)], {"MARK": str(tmp_path)}) as url:
        with urllib.request.urlopen(url, timeout=5) as answer:
            assert answer.status == 200
        assert _processes_marked(tmp_path)
    assert not _processes_marked(tmp_path)
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(url, timeout=5)


def test_a_server_that_ignores_sigterm_is_killed_with_its_children(tmp_path: Path) -> None:
    child = tmp_path / "child"
    with hosted([sys.executable, "-c", STUBBORN, "{port}", str(child)], {}, grace_seconds=0.5):
        pid = int(child.read_text())
        assert psutil.pid_exists(pid)
    assert _gone(pid)


def test_a_server_ends_when_its_owner_is_killed(tmp_path: Path) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", _OWNER, sys.executable, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    assert owner.stdout.readline().startswith("http://")
    marked = _processes_marked(tmp_path)
    assert len(marked) >= 2  # the keeper and the server, beside the owner
    os.kill(owner.pid, signal.SIGKILL)
    owner.wait()
    assert all(_gone(pid) for pid in marked)


def test_a_server_that_exits_at_once_is_reported_with_its_own_words() -> None:
    command = [sys.executable, "-c", "import sys; print('the model is too big'); sys.exit(7)"]
    with pytest.raises(RuntimeError, match="status 7") as caught, LocalExecutor().host(command, {}):
        pass
    assert "the model is too big" in str(caught.value)


def test_a_server_that_never_answers_is_given_up() -> None:
    command = [sys.executable, "-c", "import time; print('loading', flush=True); time.sleep(60)"]
    executor = LocalExecutor(start_seconds=0.5)
    with pytest.raises(RuntimeError, match=r"did not answer on 127\.0\.0\.1"), executor.host(command, {}):
        pass


_OWNER = """
import sys, time
from loop.executors.local import LocalExecutor
python, mark = sys.argv[1:]
command = [python, "-m", "http.server", "{port}", "--bind", "{host}", "--directory", mark]
with LocalExecutor().host(command, {}) as url:
    print(url, flush=True)
    time.sleep(600)
"""


def _processes_marked(folder: Path) -> list[int]:
    """Processes other than an owner script whose arguments name the folder."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = process.info["cmdline"] or []
        if str(folder) in line and "http.server" in line:
            found.append(process.pid)
    return found


def _gone(pid: int, seconds: float = 5.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.05)
    return False


@pytest.fixture(scope="module")
def two() -> Iterator[LocalExecutor]:
    """Two worker processes of this machine."""
    executor = LocalExecutor(processes=2)
    yield executor
    executor.close()
    executor.close()


def test_worker_processes_give_results_in_order_and_stay(two: LocalExecutor) -> None:
    assert list(two.map(jobs.square, range(20))) == [n * n for n in range(20)]
    seen = list(two.map(jobs.counted, range(12)))
    pids = {pid for pid, _ in seen}
    assert os.getpid() not in pids and len(pids) <= 2
    assert max(count for _, count in seen) >= 6


def test_a_worker_that_is_killed_is_replaced_and_its_job_done(two: LocalExecutor, tmp_path: Path) -> None:
    assert list(two.map(jobs.dies_once, [str(tmp_path / "marker")])) == ["try 2"]


def test_a_job_that_kills_every_worker_fails_with_a_sentence(two: LocalExecutor) -> None:
    with pytest.raises(StageFailed, match="lost its worker process 3 times"):
        list(two.map(jobs.dies_always, [1]))
    assert list(two.map(jobs.square, [3])) == [9]


def test_an_error_in_a_worker_keeps_its_type_and_message(two: LocalExecutor) -> None:
    with pytest.raises(StoreConflict) as caught:
        list(two.map(jobs.fails_for_a_cause, [1, 2]))
    assert isinstance(caught.value.__cause__, ValueError)


def test_no_worker_outlives_a_killed_parent(tmp_path: Path) -> None:
    code = (
        "from loop.executors.local import LocalExecutor\nfrom tests.executors import jobs\nimport time\n"
        "if __name__ == '__main__':\n"
        "    seen = LocalExecutor(processes=2).map(jobs.counted, range(8))\n"
        "    print(*{pid for pid, _ in seen}, flush=True)\n    time.sleep(60)\n"
    )
    script = tmp_path / "parent.py"
    script.write_text(code)
    parent = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
    assert parent.stdout is not None
    workers = [int(pid) for pid in parent.stdout.readline().split()]
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 10
    while any(psutil.pid_exists(pid) for pid in workers) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert workers and not any(psutil.pid_exists(pid) for pid in workers)
