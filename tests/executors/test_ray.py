"""Ray: equal results, one process a worker for good, dead workers replaced, errors as they are."""

from __future__ import annotations

import logging
import os
import pickle
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil
import pytest

from loop.core.errors import StoreConflict, UserError
from loop.executors.local import LocalExecutor
from loop.executors.ray import RayExecutor
from loop.remote.hosting import free_port

from . import jobs

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def executor() -> Iterator[RayExecutor]:
    """Two workers on a Ray of their own."""
    ray_executor = RayExecutor(workers=2)
    yield ray_executor
    ray_executor.close()


def test_results_equal_the_local_ones_and_come_in_order(executor: RayExecutor) -> None:
    items = list(range(50))
    assert list(executor.map(jobs.square, items)) == list(LocalExecutor().map(jobs.square, items))
    assert executor.call(jobs.square, 12) == 144
    assert list(executor.map(jobs.square, [])) == []


def test_each_worker_is_one_process_that_keeps_its_module_caches(executor: RayExecutor) -> None:
    met = list(executor.map(jobs.counted, list(range(10))))
    processes = {pid for pid, _ in met}
    assert len(processes) == 2
    assert max(count for _, count in met) >= 4
    assert os.getpid() not in processes


def test_two_jobs_run_side_by_side(executor: RayExecutor) -> None:
    (began_a, ended_a), (began_b, ended_b) = executor.map(jobs.slept, [0.5, 0.5])
    assert max(began_a, began_b) < min(ended_a, ended_b)


def test_no_more_than_in_flight_jobs_are_begun_before_results_are_taken(executor: RayExecutor, tmp_path: Path) -> None:
    paths = [str(tmp_path / str(number)) for number in range(6)]
    results = executor.map(jobs.marked, paths, in_flight=2)
    assert next(results) == paths[0]
    time.sleep(0.5)
    assert len(list(tmp_path.iterdir())) <= 2
    assert list(results) == paths[1:]


def test_a_killed_worker_is_replaced_and_its_job_runs_again(
    executor: RayExecutor, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="loop.executors.ray"):
        results = list(executor.map(jobs.dies_once, [str(tmp_path / name) for name in "ab"]))
    assert results == ["try 2", "try 2"]
    assert "job 0 lost its worker" in caplog.text
    assert "try 2 of 3" in caplog.text
    assert list(executor.map(jobs.square, [1, 2, 3])) == [1, 4, 9]


def test_a_worker_killed_from_outside_loses_no_result(executor: RayExecutor) -> None:
    results = executor.map(jobs.counted, list(range(12)))
    pid, _ = next(results)
    os.kill(pid, signal.SIGKILL)
    assert len(list(results)) == 11


def test_a_job_that_always_ends_its_worker_is_given_up_with_the_reason(executor: RayExecutor) -> None:
    with pytest.raises(RuntimeError, match=r"ended its worker 3 times.*process \d+ ended"):
        executor.call(jobs.dies_always, 0)


def test_a_crash_report_of_the_worker_is_the_reason_shown(executor: RayExecutor) -> None:
    with pytest.raises(RuntimeError, match="Segmentation fault"):
        executor.call(jobs.segfaults, 0)


def test_an_error_keeps_its_type_its_message_and_its_cause(executor: RayExecutor) -> None:
    with pytest.raises(StoreConflict) as caught:
        list(executor.map(jobs.fails_for_a_cause, [3]))
    assert type(caught.value) is StoreConflict
    assert str(caught.value) == "host a holds the lease"
    assert caught.value.exit_code == 3
    assert type(caught.value.__cause__) is ValueError
    assert str(caught.value.__cause__) == "the root cause of 3"
    assert "fails_for_a_cause" in caught.value.__notes__[0]


def test_an_implicit_chain_and_an_os_error_survive(executor: RayExecutor) -> None:
    with pytest.raises(OSError, match="No space left") as caught:
        executor.call(jobs.fails_in_context, 0)
    assert caught.value.errno == 28
    assert type(caught.value.__context__) is KeyError
    assert caught.value.__cause__ is None


def test_an_exception_that_cannot_travel_is_named(executor: RayExecutor) -> None:
    with pytest.raises(RuntimeError, match="Fussy: it broke because it was fussy"):
        executor.call(jobs.fails_fussily, 0)


def test_sys_exit_in_a_job_is_no_dead_worker(executor: RayExecutor) -> None:
    with pytest.raises(SystemExit, match="3"):
        executor.call(jobs.exits, 3)


def test_a_result_that_cannot_travel_is_an_error_of_the_job(executor: RayExecutor) -> None:
    with pytest.raises(TypeError, match="pickle"):
        executor.call(jobs.unpicklable, 0)


def test_a_failed_call_leaves_no_job_running(executor: RayExecutor, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    results = executor.map(jobs.fails_or_marks, ["", str(mark)])
    with pytest.raises(ValueError, match="nothing to mark"):
        list(results)
    time.sleep(2.5)
    assert not mark.exists() or mark.read_text() == "begun"


def test_interleaved_maps_do_not_block_each_other(executor: RayExecutor) -> None:
    first, second = executor.map(jobs.square, range(20)), executor.map(jobs.square, range(20))
    assert list(zip(first, second, strict=True)) == [(n * n, n * n) for n in range(20)]


def test_workers_see_the_threads_and_the_environment_asked_for(executor: RayExecutor) -> None:
    assert executor.call(jobs.variable, "OMP_NUM_THREADS") == "1"
    assert executor.call(jobs.variable, "RAY_AUTH_MODE") == "token"


def test_a_hosted_server_answers_and_ends(executor: RayExecutor, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "http.server", "{port}", "--bind", "{host}", "--directory", str(tmp_path)]
    with executor.host(command, {}) as url, urllib.request.urlopen(url, timeout=5) as answer:
        assert answer.status == 200
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(url, timeout=5)
    with pytest.raises(RuntimeError, match="status 7"), executor.host([sys.executable, "-c", "exit(7)"], {}):
        pass


def test_another_ray_on_the_machine_does_not_clash(executor: RayExecutor) -> None:
    executor.call(jobs.square, 1)
    code = "from loop.executors.ray import RayExecutor as R; e = R(workers=1); print(e.call(abs, -5)); e.close()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=ROOT)
    assert done.stdout == "5\n", done.stderr
    assert executor.call(jobs.square, 3) == 9


def test_ctrl_c_ends_every_process() -> None:
    code = (
        # A shell ignores Ctrl-C for what it runs in the background, and a test run may be just that.
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "import tests.executors.jobs as j; from loop.executors.ray import RayExecutor as R\n"
        "e = R(workers=2); results = e.map(j.slept, [0.01, 0.01, 60, 60])\n"
        "next(results); next(results); print('up', flush=True)\n"
        "try: next(results)\nfinally: e.close()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    started = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert "KeyboardInterrupt" in errors
    _, alive = psutil.wait_procs(started, timeout=10)
    assert [p for p in alive if p.status() != psutil.STATUS_ZOMBIE] == []


def test_it_pickles_and_refuses_a_second_cluster_and_an_address_nobody_answers(executor: RayExecutor) -> None:
    executor.call(jobs.square, 1)
    other = RayExecutor(address="127.0.0.1:1")
    assert pickle.loads(pickle.dumps(other)).digest == other.digest
    with pytest.raises(UserError, match="uses the Ray at local already"):
        other.call(jobs.square, 1)
    executor.close()
    with pytest.raises(UserError, match=r"127\.0\.0\.1:1 cannot be joined .*refused"):
        other.call(jobs.square, 1)


def test_a_named_cluster_is_joined_and_gets_our_code(tmp_path: Path) -> None:
    """A real head node started by the command line; the driver is a process of its own."""
    port = free_port()
    environment = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 32}
    code = (
        "def where(_):\n    import loop\n    return loop.__file__\n"
        "from loop.executors.ray import RayExecutor as R\n"
        f"e = R(address='127.0.0.1:{port}', workers=2); print(e.call(where, 0)); e.close()"
    )
    driver = {**environment, "PYTHONPATH": str(ROOT)}  # the node's processes do not have it
    with _head_node(port, environment, tmp_path):
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, cwd=tmp_path, env=driver
        )
    assert done.returncode == 0, done.stderr
    assert "runtime_resources" in done.stdout  # the folder of what Ray copied to the node


@contextmanager
def _head_node(port: int, environment: dict[str, str], folder: Path) -> Iterator[None]:
    """``ray start --head`` with one core, up while the context is open."""
    with TemporaryDirectory(prefix="r") as short:  # socket paths are at most 107 characters
        command = [str(Path(sys.executable).with_name("ray")), "start", "--head", "--block", f"--port={port}"]
        sizes = ["--num-cpus=1", "--object-store-memory=100000000", "--include-dashboard=false"]
        ports = ["--min-worker-port=0", "--max-worker-port=0", f"--temp-dir={short}", "--disable-usage-stats"]
        with open(folder / "head.log", "wb") as log:
            head = subprocess.Popen([*command, *sizes, *ports], env=environment, stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + 60
            while "--block" not in (folder / "head.log").read_text():
                assert head.poll() is None, (folder / "head.log").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.1)
            yield
        finally:
            for process in psutil.Process(head.pid).children(recursive=True):
                process.kill()
            head.kill()
            head.wait()
