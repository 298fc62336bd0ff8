"""The same plan here and on Ray: equal digests, also when a worker dies in the middle."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from loop.core.contract import Contract
from loop.core.episode import Task
from loop.core.errors import StageFailed
from loop.core.generation import Generation
from loop.core.pair import Harness
from loop.executors.ray import RayExecutor
from loop.pipeline.generation import grow, plant
from loop.ports import Executor, Rollout
from loop.store.blobs import FsBlobs
from loop.store.migrate import upgrade
from loop.store.sql import SqlStore
from tests import fakes


class DiesOnce(fakes.TwoTurns):
    """Kills the process it runs in, once: the first rollout to find no marker leaves it and dies."""

    marker: str

    def rollout(self, task: Task, harness: Harness, contract: Contract) -> Rollout:
        try:
            os.close(os.open(self.marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return (yield from super().rollout(task, harness, contract))
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("unreachable")


@pytest.fixture(scope="module")
def ray_executor() -> Iterator[RayExecutor]:
    executor = RayExecutor(workers=2)
    yield executor
    executor.close()


def _grown(home: Path, executor: Executor | None, **parts: object) -> Generation:
    home.mkdir()
    url = f"sqlite:///{home / 'loop.db'}"
    upgrade(url)
    blobs = FsBlobs(url=str(home / "blobs"))
    chosen = {} if executor is None else {"executor": executor}
    loop = fakes.loop(SqlStore(url, blobs), blobs, home / "scratch", **(chosen | parts))
    plant(loop, fakes.pair(), 1)
    return grow(loop, 0, 1, fakes.plan())[-1]


def test_local_and_ray_with_two_workers_give_equal_digests(tmp_path: Path, ray_executor: RayExecutor) -> None:
    assert _grown(tmp_path / "local", None).digest == _grown(tmp_path / "ray", ray_executor).digest


def test_a_worker_killed_in_the_middle_of_collect_is_replaced(tmp_path: Path, ray_executor: RayExecutor) -> None:
    marker = tmp_path / "died"
    broken = _grown(tmp_path / "ray", ray_executor, environments=(DiesOnce(marker=str(marker)),))
    assert marker.exists()
    assert broken.digest == _grown(tmp_path / "local", None).digest


def test_an_exception_in_a_worker_is_its_own_root_cause(tmp_path: Path, ray_executor: RayExecutor) -> None:
    with pytest.raises(StageFailed, match="device fell off the bus") as caught:
        _grown(tmp_path / "ray", ray_executor, engine=fakes.ScriptedEngine(breaks=True))
    assert isinstance(caught.value.__cause__, RuntimeError)
