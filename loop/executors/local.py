"""Jobs in this process, one after the other: the default on a laptop."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager

from pydantic import Field

from loop.core.noun import Noun
from loop.executors.hosting import hosted
from loop.ports import Item, Result


class LocalExecutor(Noun):
    """Runs each job here when its result is asked for; errors are raised as they are.

    ``start_seconds`` is how long ``host`` waits for a server to answer.
    """

    start_seconds: float = Field(default=120.0, gt=0)

    def map(
        self, call: Callable[[Item], Result], items: Sequence[Item], in_flight: int | None = None
    ) -> Iterator[Result]:
        """Results in order; item n runs when result n is asked for (``in_flight`` is 1 here)."""
        return map(call, items)

    def call(self, call: Callable[[Item], Result], item: Item, gpus: float = 0) -> Result:
        """One job; this process sees every GPU of the machine, so ``gpus`` asks for nothing."""
        return call(item)

    def host(self, command: Sequence[str], environment: Mapping[str, str]) -> AbstractContextManager[str]:
        """A server on this machine; see ``hosted`` for ``{port}`` and the errors."""
        return hosted(command, environment, start_seconds=self.start_seconds)

    @property
    def workers(self) -> int:
        """One job at a time."""
        return 1

    def close(self) -> None:
        """Nothing outlives a call here."""
