"""The parts a run is made of, all behind ports; ``loop.app`` names the concrete ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from loop.core.budget import Budget
from loop.core.contract import Contract
from loop.core.episode import Split
from loop.core.generation import Generation
from loop.core.plan import Plan
from loop.core.routing import RouteBank
from loop.ports import (
    Attempt,
    Blobs,
    Curator,
    Embedder,
    Engine,
    Environment,
    Executor,
    Explorer,
    Judge,
    Progress,
    Store,
    Tracker,
    Trainer,
)

# Asked before each step that is not recorded yet: it returns to go on, and raises to stop there.
Brake = Callable[[Attempt], None]


def go_on(attempt: Attempt) -> None:
    """The brake of a run that nothing but its end stops."""


@dataclass(frozen=True)
class Loop:
    """Everything ``run_generation`` talks to; ``family`` names the lineage it grows."""

    family: str
    contract: Contract
    environments: tuple[Environment, ...]
    engine: Engine
    judge: Judge
    embedder: Embedder
    explorer: Explorer
    curator: Curator
    trainer: Trainer
    executor: Executor
    store: Store
    blobs: Blobs
    tracker: Tracker
    progress: Progress
    scratch: Path
    canaries: Environment | None = None
    routing: Callable[[Split], RouteBank] | None = None
    brake: Brake = go_on

    def environment(self, name: str) -> Environment:
        """The environment of that name; KeyError when the run has none."""
        return next(e for e in self.environments if e.name == name)


@dataclass(frozen=True)
class Run:
    """One attempt at growing ``parent`` under ``plan``."""

    loop: Loop
    parent: Generation
    plan: Plan
    attempt: Attempt

    @property
    def seed(self) -> tuple[object, ...]:
        """What every random draw of this attempt is keyed by: not the lineage, so that arms meet alike luck."""
        return self.seed_of(0)

    def seed_of(self, later: int) -> tuple[object, ...]:
        """The key of the first attempt at the generation that comes ``later`` generations after this one."""
        return (self.plan.seed, self.parent.number + later, self.attempt.trial)

    def spent(self) -> Budget:
        """What the attempt has spent so far, over every resume."""
        total = Budget()
        for part in self.attempt.budget().values():
            total = total.plus(part)
        return total
