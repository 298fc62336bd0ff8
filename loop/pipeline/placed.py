"""An environment whose specialist is chosen elsewhere: another label than its own, or whom the router names."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from loop.core.contract import Contract
from loop.core.conversation import Reply, Say
from loop.core.episode import Outcome, Split, Task
from loop.core.noun import Noun
from loop.core.pair import Harness
from loop.ports import Environment, Rollout


class Placed(Noun):
    """``inner`` (an Environment) as it is, but for who answers: ``label``, or the router's choice where ``routed``.

    A routed conversation is routed by its first message and stays with whoever answered it, as
    it would with a tool's results.
    """

    inner: Any
    label: str
    routed: bool = False

    @property
    def name(self) -> str:
        """The environment's name, so that tasks are the same."""
        return str(self.inner.name)

    @property
    def levels(self) -> int:
        """Rungs of the ladder."""
        return int(self.inner.levels)

    def tasks(self, contract: Contract, split: Split, count: int, seed: int, levels: Sequence[int]) -> tuple[Task, ...]:
        """The environment's own tasks."""
        found: tuple[Task, ...] = self.inner.tasks(contract, split, count, seed, levels)
        return found

    def text(self, task: Task, contract: Contract) -> str:
        """The environment's own text."""
        return str(self.inner.text(task, contract))

    def rollout(self, task: Task, harness: Harness, contract: Contract) -> Rollout:
        """The environment's own rollout, said to the label or to the router."""
        inner: Generator[Say, Reply, Outcome] = self.inner.rollout(task, harness, contract)
        reply: Reply | None = None
        while True:
            try:
                say = next(inner) if reply is None else inner.send(reply)
            except StopIteration as end:
                outcome: Outcome = end.value
                return outcome
            label = self.label if not self.routed else reply.label if reply is not None else ""
            reply = yield say.revise(label=label)


def routed(environments: Sequence[Environment], label: str = "") -> tuple[Environment, ...]:
    """The environments with every conversation left to the router; ``label`` is whose gain it counts as."""
    return tuple(Placed(inner=environment, label=label, routed=True) for environment in environments)
