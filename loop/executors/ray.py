"""Jobs on Ray: a local one, or a cluster by address. No other file of the project knows Ray.

A fixed set of worker processes (one Ray actor each) is started on the first job and kept,
so that models cached by a worker's modules are loaded once. Each worker has one job at a
time. Ray's own retries are off: a worker that dies is replaced by a fresh process here,
after the old one is known to be gone, and its job runs again from the start; an exception
in a job comes back as itself. One thread drives an executor.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import socket
import tempfile
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, cast

from pydantic import Field

import loop
from loop.core.errors import UserError
from loop.core.noun import Noun
from loop.executors.failure import Raised, unpack
from loop.executors.jobs import Job, Worker
from loop.executors.signals import sigterm_kept
from loop.ports import Item, Result
from loop.remote.hosting import hosted

# Ray prints its own account of a dead worker to standard output, where results go; it reads this on import.
os.environ.setdefault("RAY_DEDUP_LOGS_SKIP_REGEX", ".")

import ray
from ray.exceptions import RayError, RaySystemError, RayTaskError

logger = logging.getLogger(__name__)

OBJECT_STORE_BYTES = 256 * 2**20
LONGEST_TEMPORARY_PATH = 40  # characters; Ray's socket paths under it stay below the 107 of AF_UNIX
POLL_SECONDS = 1.0
CONNECT_SECONDS = 5.0
WINDOW_PER_WORKER = 4
DETAIL = "Worker exit detail: "
FORWARDED = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "TOKENIZERS_PARALLELISM", "CUBLAS_WORKSPACE_CONFIG")


class RayExecutor(Noun):
    """Runs jobs on ``workers`` processes of ``threads`` cores each.

    ``address`` joins that cluster (its nodes get this package's code); None starts a Ray
    of our own on this machine, which ends with ``close`` or with this process.
    ``gpus_per_worker`` may be a fraction. A job whose worker dies is tried ``tries`` times
    in all. ``start_seconds`` bounds the wait for workers and for hosted servers;
    ``environment`` is added to the workers' own.
    """

    address: str | None = None
    workers: int = Field(default=2, gt=0)
    threads: int = Field(default=1, gt=0)
    gpus_per_worker: float = Field(default=0.0, ge=0)
    tries: int = Field(default=3, gt=0)
    start_seconds: float = Field(default=180.0, gt=0)
    environment: dict[str, str] = {}

    def map(
        self, call: Callable[[Item], Result], items: Sequence[Item], in_flight: int | None = None
    ) -> Iterator[Result]:
        """Results in order; at most ``in_flight`` jobs are begun and not yet handed out.

        Closing the iterator early, or an error in a job, ends the other jobs of this call.
        """
        return _map(_pool(self), call, items, in_flight or WINDOW_PER_WORKER * self.workers)

    def call(self, call: Callable[[Item], Result], item: Item, gpus: float = 0) -> Result:
        """One job; when it needs more GPUs than a worker has, on a worker of its own."""
        if gpus <= self.gpus_per_worker:
            return cast(Result, next(_map(_pool(self), call, [item], 1)))
        _connect(self)
        alone = _Pool(self.revise(workers=1, gpus_per_worker=gpus), cores=0)
        try:
            return cast(Result, next(_map(alone, call, [item], 1)))
        finally:
            alone.close()

    @contextlib.contextmanager
    def host(self, command: Sequence[str], environment: Mapping[str, str]) -> Generator[str]:
        """A server on a node of the cluster, with one worker's GPUs; see ``hosted``."""
        _connect(self)
        node = _actor(_Host, self, cores=0)
        try:
            yield str(_get(node.open.remote(list(command), dict(environment), self.start_seconds)))
            _get(node.close.remote())
        finally:
            ray.kill(node)

    def close(self) -> None:
        """End the workers, and the Ray that was started or joined; safe to call twice."""
        pool = _Session.pools.pop(self.digest, None)
        if pool is not None:
            pool.close()
        if not _Session.pools:
            _disconnect()


class _Session:
    """What this process has open: one Ray at most, and the pools of its executors."""

    pools: ClassVar[dict[str, _Pool]] = {}
    address: ClassVar[str | None] = None
    ours: ClassVar[bool] = False
    folder: ClassVar[str | None] = None
    variables: ClassVar[tuple[str, ...]] = ()
    token: ClassVar[str] = secrets.token_hex(16)  # one a process: Ray's core keeps the first it reads


class _Host:
    """The far side of ``host``: owns one server on its node."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()

    def open(self, command: list[str], environment: dict[str, str], seconds: float) -> str:
        """Start the server on this node's address; its URL."""
        bind = ray.util.get_node_ip_address()
        return self._stack.enter_context(hosted(command, environment, bind=bind, start_seconds=seconds))

    def close(self) -> None:
        """End the server; its keeper would also do so when this process dies."""
        self._stack.close()


@dataclass
class _Running:
    """A worker process; ``job`` is None while it starts or waits, ``pid`` 0 until it is up."""

    actor: Any
    since: float
    pid: int = 0
    job: Job | None = None


@dataclass
class _Pool:
    """The worker processes of one executor, and the jobs that wait for them."""

    executor: RayExecutor
    cores: float
    idle: list[_Running] = field(default_factory=list)
    busy: dict[Any, _Running] = field(default_factory=dict)
    queue: deque[Job] = field(default_factory=deque)
    failed_starts: int = 0

    def __post_init__(self) -> None:
        for _ in range(self.executor.workers):
            self._start()

    def submit(self, job: Job) -> None:
        """Give the job to a free worker, or queue it; workers that were ended with their jobs are started again."""
        while len(self.idle) + len(self.busy) < self.executor.workers:
            self._start()
        self.queue.append(job)
        self._dispatch()

    def finish(self, job: Job) -> None:
        """Wait until the job is done, moving every other job along."""
        while not job.done:
            self._step()

    def abandon(self, jobs: Sequence[Job]) -> None:
        """End these jobs, running ones with their processes; none is started, for most often we are about to close."""
        dropped = {id(job) for job in jobs if not job.done}
        self.queue = deque(job for job in self.queue if id(job) not in dropped)
        for ref, worker in list(self.busy.items()):
            if worker.job is not None and id(worker.job) in dropped:
                del self.busy[ref]
                ray.kill(worker.actor)

    def close(self) -> None:
        """End every worker."""
        for worker in (*self.idle, *self.busy.values()):
            ray.kill(worker.actor)
        self.idle, self.busy = [], {}

    def _start(self) -> None:
        worker = _Running(_actor(Worker, self.executor, self.cores), time.monotonic())
        self.busy[worker.actor.ready.remote()] = worker

    def _replace(self, worker: _Running) -> None:
        # Killed even when Ray reports it dead or out of reach: two tries of a job never run at once.
        ray.kill(worker.actor)
        self._start()

    def _dispatch(self) -> None:
        while self.idle and self.queue:
            worker, job = self.idle.pop(0), self.queue.popleft()
            worker.job = job
            job.tried += 1
            self.busy[worker.actor.run.remote(job.call, job.item)] = worker

    def _step(self) -> None:
        """Wait for one event of a worker (a second at most) and deal with it."""
        finished, _ = ray.wait(list(self.busy), num_returns=1, timeout=POLL_SECONDS)
        if not finished:
            self._check_starts()
            return
        worker = self.busy.pop(finished[0])
        job, worker.job = worker.job, None
        try:
            reply = ray.get(finished[0])
        except (RayTaskError, RaySystemError) as error:
            # Raised around the job and not in it: its arguments or its result did not travel.
            _settle(job, (False, getattr(error, "cause", None) or error))
        except RayError as error:
            self._died(worker, job, _reason(error, worker.pid))
            return
        else:
            worker.pid = worker.pid or reply
            _settle(job, reply)
        self.idle.append(worker)
        self._dispatch()

    def _died(self, worker: _Running, job: Job | None, reason: str) -> None:
        self._replace(worker)
        if job is None:
            self.failed_starts += 1
            if self.failed_starts >= self.executor.tries:
                raise RuntimeError(f"Ray workers do not start: {reason}")
            logger.warning("a Ray worker died while it started: %s; another is started", reason)
        elif job.tried >= self.executor.tries:
            job.fail(RuntimeError(f"job {job.number} ended its worker {job.tried} times; the last time {reason}"))
        else:
            again = f"try {job.tried + 1} of {self.executor.tries}"
            logger.warning("job %d lost its worker: %s; it runs again on a new one, %s", job.number, reason, again)
            self.queue.appendleft(job)

    def _check_starts(self) -> None:
        """Some workers are enough to go on; with none after ``start_seconds`` the cluster is too small."""
        starting = [worker for worker in self.busy.values() if worker.job is None]
        late = [w for w in starting if time.monotonic() - w.since > self.executor.start_seconds]
        if self.queue and len(late) == len(self.busy) and not self.idle:
            have = {name: ray.cluster_resources().get(name, 0) for name in ("CPU", "GPU")}
            raise UserError(
                f"No Ray worker started in {self.executor.start_seconds:.0f} s: each asks for {self.cores:g} cores and"
                f" {self.executor.gpus_per_worker:g} GPUs, the cluster has {have}; lower threads or gpus_per_worker."
            )


def _map(pool: _Pool, call: Callable[[Any], Any], items: Sequence[Any], window: int) -> Generator[Any]:
    waiting: deque[Job] = deque()
    jobs = iter(Job(number, call, item) for number, item in enumerate(items))
    try:
        while True:
            while len(waiting) < window and (job := next(jobs, None)) is not None:
                waiting.append(job)
                pool.submit(job)
            if not waiting:
                return
            pool.finish(waiting[0])
            done = waiting.popleft()
            if done.error is not None:
                raise done.error
            yield done.result
    finally:
        pool.abandon(waiting)


def _settle(job: Job | None, reply: Any) -> None:
    """Note what a worker answered; the answer to ``ready`` (no job) says nothing more."""
    if job is None:
        if isinstance(reply, tuple):
            raise reply[1]
        return
    good, value = reply
    if good:
        job.succeed(value)
    else:
        job.fail(unpack(value) if isinstance(value, Raised) else value)


def _reason(error: RayError, pid: int = 0) -> str:
    """Why a process died, in one line, with the last line it wrote (a crash report, when there is one)."""
    text = " ".join(str(error).split())
    if DETAIL in text:
        text = text.split(DETAIL)[1].split(" Some common causes")[0]
    text = f"process {pid or '?'} ended ({text.strip().rstrip('.')})"
    last = _last_words(pid) if pid else ""
    return f"{text}, last words: {last}" if last else f"{text}, killed from outside or out of memory"


def _last_words(pid: int) -> str:
    """The line in which a worker of our own Ray reported its crash (faulthandler), or nothing."""
    for path in Path(_Session.folder or ".").glob(f"session_*/logs/worker-*-{pid}.err"):
        fatal = [line for line in path.read_text(errors="replace").splitlines() if "Fatal" in line or "SIG" in line]
        if fatal:
            return fatal[-1].strip()
    return ""


def _get(ref: Any) -> Any:
    """A result of the host actor; its error is raised as it is."""
    try:
        return ray.get(ref)
    except RayTaskError as error:
        raise error.cause from None
    except RayError as error:
        raise RuntimeError(f"the Ray process that hosts the server died: {_reason(error)}") from error


def _actor(kind: type, executor: RayExecutor, cores: float) -> Any:
    """A new process for ``kind``, without any of Ray's own retries."""
    options = {"num_cpus": cores, "num_gpus": executor.gpus_per_worker, "max_restarts": 0, "max_task_retries": 0}
    return ray.remote(kind).options(**options, runtime_env={"env_vars": _variables(executor)}).remote()


def _variables(executor: RayExecutor) -> dict[str, str]:
    """The workers' environment beside what their node has."""
    threads = {name: str(executor.threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    forwarded = {name: os.environ[name] for name in FORWARDED if name in os.environ}
    return {**forwarded, **threads, **executor.environment}


def _pool(executor: RayExecutor) -> _Pool:
    """The executor's workers, started on first use."""
    _connect(executor)
    if executor.digest not in _Session.pools:
        _Session.pools[executor.digest] = _Pool(executor, cores=executor.threads)
    return _Session.pools[executor.digest]


def _connect(executor: RayExecutor) -> None:
    if ray.is_initialized():
        if _Session.ours and _Session.address != executor.address:
            raise UserError(f"This process uses the Ray at {_Session.address or 'local'} already; close that first.")
        return
    quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
    with sigterm_kept():
        if executor.address is None:
            _start_local(executor, quiet)
        else:
            _join(executor.address, quiet)
    _Session.ours, _Session.address = True, executor.address


def _join(address: str, quiet: dict[str, Any]) -> None:
    """Become a driver of a running cluster; UserError when it does not answer or refuses."""
    host, _, port = address.rpartition(":")
    try:
        if host and port.isdigit() and "/" not in host:
            # Ray itself would go on for more than a minute.
            socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
        # Its nodes get the code of this package as it is here, whatever is installed there.
        ray.init(address=address, runtime_env={"py_modules": [str(Path(loop.__file__).parent)]}, **quiet)
    except (OSError, RuntimeError, ValueError, RayError) as error:
        raise UserError(
            f"The Ray cluster at {address} cannot be joined ({str(error).splitlines()[0]}); check the address,"
            " and set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN when it asks for a token."
        ) from error


def _start_local(executor: RayExecutor, quiet: dict[str, Any]) -> None:
    """A Ray of our own: its own folder and ports, and its own token instead of one under the home folder."""
    defaults = {
        "RAY_AUTH_TOKEN": _Session.token,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    }
    if os.environ.get("RAY_AUTH_MODE", "token") != "token" or "RAY_AUTH_TOKEN_PATH" in os.environ:
        del defaults["RAY_AUTH_TOKEN"]
    unset = ("RAY_AUTH_MODE", *defaults)
    _Session.variables = tuple(name for name in unset if name not in os.environ)
    os.environ.update({name: value for name, value in defaults.items() if name not in os.environ})
    if len(tempfile.gettempdir()) <= LONGEST_TEMPORARY_PATH - 20:
        _Session.folder = tempfile.mkdtemp(prefix="macaron-ray-")
    ray.init(
        address="local",
        num_cpus=executor.workers * executor.threads,
        include_dashboard=False,
        object_store_memory=OBJECT_STORE_BYTES,
        _temp_dir=_Session.folder,
        **quiet,
    )


def _disconnect() -> None:
    """Leave the Ray we opened, and take back what starting it put into this process and on disk."""
    if not _Session.ours:
        return
    ray.shutdown()
    for name in _Session.variables:
        os.environ.pop(name, None)
    if _Session.folder is not None:
        shutil.rmtree(_Session.folder, ignore_errors=True)
    _Session.ours, _Session.address, _Session.folder, _Session.variables = False, None, None, ()
