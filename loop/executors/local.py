"""Jobs on this machine: in this process, or side by side in a few worker processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial

from pydantic import Field

from loop.core.noun import Noun
from loop.executors.memory import trimmed
from loop.executors.pool import Pool
from loop.ports import Item, Result
from loop.remote.hosting import hosted

_pools: dict[str, Pool] = {}


class LocalExecutor(Noun):
    """Runs jobs here; with ``processes`` above 1 in that many worker processes.

    One thread in each of two processes does more than two threads in one: the small
    matrices of a laptop's model are over before a second thread has begun. A job whose
    process died is tried ``tries`` times in all. ``start_seconds`` is how long ``host``
    waits for a server to answer.
    """

    processes: int = Field(default=1, gt=0)
    tries: int = Field(default=3, gt=0)
    start_seconds: float = Field(default=120.0, gt=0)

    def map(
        self, call: Callable[[Item], Result], items: Sequence[Item], in_flight: int | None = None
    ) -> Iterator[Result]:
        """Results in order; in one process, item n runs when result n is asked for."""
        if self.processes == 1:
            return map(partial(trimmed, call), items)
        return self._pool().map(call, items, in_flight)

    def call(self, call: Callable[[Item], Result], item: Item, gpus: float = 0) -> Result:
        """One job; it sees every GPU of the machine, so ``gpus`` asks for nothing."""
        return next(iter(self.map(call, [item])))

    def host(self, command: Sequence[str], environment: Mapping[str, str]) -> AbstractContextManager[str]:
        """A server on this machine; see ``hosted`` for ``{port}`` and the errors."""
        return hosted(command, environment, start_seconds=self.start_seconds)

    @property
    def workers(self) -> int:
        """How many jobs run at once."""
        return self.processes

    def close(self) -> None:
        """End the worker processes; safe to call twice."""
        pool = _pools.pop(self.digest, None)
        if pool is not None:
            pool.close()

    def _pool(self) -> Pool:
        if self.digest not in _pools:
            _pools[self.digest] = Pool(self.processes, self.tries)
        return _pools[self.digest]
