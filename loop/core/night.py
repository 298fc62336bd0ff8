"""A night's run for those who read of it in the morning: how it ended, what it spent, what comes next."""

from __future__ import annotations

from enum import StrEnum

from loop.core.budget import Budget
from loop.core.gate import Interval
from loop.core.noun import Noun
from loop.core.stage import Stage


class Ending(StrEnum):
    """How a nightly run ended; each has an exit code of its own."""

    PROMOTED = "promoted"
    REJECTED = "rejected"
    NOTHING_TO_DO = "nothing to do"
    OUT_OF_BUDGET = "out of budget"
    OUTSIDE_WINDOW = "outside the window"
    WINDOW_CLOSED = "the window closed"
    FAILED = "failed"
    REFUSED = "refused"
    HELD = "held by another run"
    INTERRUPTED = "interrupted"

    @property
    def exit_code(self) -> int:
        """What a monitor sees; 10 to 14 need nobody's attention."""
        return _EXIT_CODES[self]

    @property
    def calm(self) -> bool:
        """Whether nobody has to look into it."""
        return self is Ending.PROMOTED or 10 <= self.exit_code <= 14


_EXIT_CODES = {
    Ending.PROMOTED: 0,
    Ending.FAILED: 1,
    Ending.REFUSED: 2,
    Ending.HELD: 3,
    Ending.REJECTED: 10,
    Ending.NOTHING_TO_DO: 11,
    Ending.OUT_OF_BUDGET: 12,
    Ending.OUTSIDE_WINDOW: 13,
    Ending.WINDOW_CLOSED: 14,
    Ending.INTERRUPTED: 130,
}


class Night(Noun):
    """The post-mortem of one nightly run; times are ISO 8601 in UTC.

    ``spent`` and ``judge_cost`` are tonight's alone; ``failures`` are the sentences of the
    tries that broke, oldest first. ``generation`` is the digest of what was registered.
    """

    date: str
    family: str
    ending: Ending
    text: str
    next_step: str
    started: str
    ended: str
    seconds: float
    parent: str | None = None
    parent_number: int | None = None
    attempt: str | None = None
    trial: int | None = None
    resumed: bool = False
    tries: int = 0
    failures: tuple[str, ...] = ()
    generation: str | None = None
    number: int | None = None
    score: Interval | None = None
    gain: Interval | None = None
    reasons: tuple[str, ...] = ()
    spent: dict[Stage, Budget] = {}
    judge_cost: float = 0.0
