"""One unattended night: grow the champion's successor within a window and a budget, and say what came of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Protocol

from loop.core.budget import Budget
from loop.core.errors import Halted, LoopError, StageFailed, StoreConflict, UserError
from loop.core.gate import Standing
from loop.core.generation import Generation
from loop.core.night import Ending, Night
from loop.core.pair import Pair
from loop.core.plan import Plan
from loop.core.stage import Stage
from loop.pipeline.generation import grow, plant
from loop.pipeline.parts import Loop
from loop.ports import Attempt, Store

HOLDER = "macaron-loop nightly"
POLL_SECONDS = 20.0

ENDINGS = (
    (StoreConflict, Ending.HELD),
    (UserError, Ending.REFUSED),
    (LoopError, Ending.FAILED),
    (KeyboardInterrupt, Ending.INTERRUPTED),
)


class Clock(Protocol):
    """The time, and waiting."""

    def now(self) -> datetime:
        """This moment, with its zone."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


@dataclass(frozen=True)
class Terms:
    """What tonight may take; None is no limit.

    ``tokens`` are generated plus trained ones, ``seconds`` count from the start of the
    command, the judges' cost is their calls times ``judge_price``, ``closes`` ends the
    window. A stage that broke is tried ``retries`` times more, after a pause that doubles.
    ``waits`` lets a run that still holds the lineage end first, if tonight has an end.
    """

    tokens: int | None = None
    seconds: float | None = None
    judge_cost: float | None = None
    judge_price: float = 0.0
    closes: datetime | None = None
    retries: int = 0
    pause_seconds: float = 30.0
    fresh: bool = False
    waits: bool = False

    def left(self, started: datetime, now: datetime) -> float:
        """Seconds until the window closes or the seconds are spent; infinite without either."""
        ends = [math.inf]
        if self.closes is not None:
            ends.append((self.closes - now).total_seconds())
        if self.seconds is not None:
            ends.append(self.seconds - (now - started).total_seconds())
        return min(ends)

    def reached(self, spent: Budget, started: datetime, now: datetime) -> tuple[Ending, str] | None:
        """The first limit that is reached, with a sentence; None while there is room."""
        if self.closes is not None and now >= self.closes:
            return Ending.WINDOW_CLOSED, f"the window closed at {stamp(self.closes)}"
        tokens = spent.generated_tokens + spent.trained_tokens
        seconds = (now - started).total_seconds()
        cost = spent.judge_calls * self.judge_price
        if self.tokens is not None and tokens >= self.tokens:
            return Ending.OUT_OF_BUDGET, f"{tokens:,} tokens are spent of {self.tokens:,}"
        if self.seconds is not None and seconds >= self.seconds:
            return Ending.OUT_OF_BUDGET, f"{seconds:,.0f} seconds are spent of {self.seconds:,.0f}"
        if self.judge_cost is not None and cost >= self.judge_cost:
            return Ending.OUT_OF_BUDGET, f"{cost:,.2f} is spent on judges of {self.judge_cost:,.2f}"
        return None


@dataclass
class Tonight:
    """A night in progress: what it grows from, what it has spent, what went wrong.

    ``champion`` is asked what to grow from (None: the lineage is empty, and ``first_pair``
    makes generation 0's pair), ``open_loop`` opens the parts of one try, ``date`` names the
    night.
    """

    store: Store
    family: str
    plan: Plan
    terms: Terms
    clock: Clock
    date: str
    champion: Callable[[], Generation | None]
    open_loop: Callable[[], AbstractContextManager[Loop]]
    first_pair: Callable[[Loop], Pair]
    parent: Generation | None = None
    attempt: Attempt | None = None
    child: Generation | None = None
    before: dict[Stage, Budget] = field(default_factory=dict)
    spent: dict[Stage, Budget] = field(default_factory=dict)
    resumed: bool = False
    tries: int = 0
    failures: list[str] = field(default_factory=list)
    limit: Ending | None = None
    started: datetime = field(init=False)

    def __post_init__(self) -> None:
        """The night starts when it is described."""
        self.started = self.clock.now()

    def run(self) -> Night:
        """Grow one generation, or stop cleanly; whatever happens ends in a post-mortem.

        Only one runs at a time: the store's lease is held from beginning to end.
        """
        try:
            with broken_as_stage_failed("the night"), ExitStack() as stack:
                self._enter_lease(stack)
                ending, text = self._grow()
        except Halted as stop:
            ending, text = self.limit or Ending.OUT_OF_BUDGET, str(stop)
        except (LoopError, KeyboardInterrupt) as error:
            ending = next(ending for kind, ending in ENDINGS if isinstance(error, kind))
            text = str(error) if isinstance(error, LoopError) else "it was told to stop (Ctrl-C or SIGTERM)"
        return self._post_mortem(ending, text)

    def _enter_lease(self, stack: ExitStack) -> None:
        while True:
            try:
                stack.enter_context(self.store.lease(self.family, HOLDER))
                return
            except StoreConflict:
                left = self.terms.left(self.started, self.clock.now())
                if not self.terms.waits or not 0 < left < math.inf:
                    raise
            self.clock.sleep(min(POLL_SECONDS, left))

    def _grow(self) -> tuple[Ending, str]:
        while True:
            self.tries += 1
            try:
                return self._try()
            except StageFailed as error:
                self.failures.append(str(error))
                pause = self.terms.pause_seconds * 2 ** (self.tries - 1)
                no_room = pause >= self.terms.left(self.started, self.clock.now())
                if self.tries > self.terms.retries or no_room:
                    raise
            self.clock.sleep(pause)

    def _try(self) -> tuple[Ending, str]:
        with broken_as_stage_failed("preparing tonight's run"), self.open_loop() as opened:
            loop = replace(opened, brake=self._brake)
            self.parent = parent = self.champion() or self._plant(loop)
            successor = self._successor(parent)
            if successor is not None:
                return Ending.NOTHING_TO_DO, (
                    f"generation {successor.number} ({successor.short}) is promoted already, "
                    f"and the champion is generation {parent.number}"
                )
            self._begin(parent)
            self.child = grow(loop, parent.number, parent.number + 1, self.plan)[-1]
        promoted = self.child.decision.standing is Standing.PROMOTED
        text = f"generation {self.child.number} ({self.child.short}) is {self.child.decision.standing.value}"
        return (Ending.PROMOTED if promoted else Ending.REJECTED), text

    def _plant(self, loop: Loop) -> Generation:
        loop.progress.stage("base", "preparing the base model and fresh adapters")
        return plant(loop, self.first_pair(loop), self.plan.seed)

    def _successor(self, parent: Generation) -> Generation | None:
        """The promoted generation above a champion that was rolled back."""
        for known in self.store.generations(self.family):
            if known.number == parent.number + 1 and known.decision.standing is Standing.PROMOTED:
                return known
        return None

    def _begin(self, parent: Generation) -> None:
        """Resume the open attempt; begin another trial when the last one ended in a rejection."""
        first = self.attempt is None
        rejected = self.store.result(self.family, parent, self.plan) is not None
        fresh = rejected or (first and self.terms.fresh)
        self.attempt = self.store.begin(self.family, parent, self.plan, fresh=fresh)
        if first:
            self.before = self.attempt.budget()
            self.resumed = bool(self.before)

    def _brake(self, attempt: Attempt) -> None:
        self.spent = self._spent_on(attempt)
        reached = self.terms.reached(total(self.spent), self.started, self.clock.now())
        if reached is not None:
            self.limit, text = reached
            raise Halted(text)

    def _spent_on(self, attempt: Attempt) -> dict[Stage, Budget]:
        """What tonight alone has spent on the attempt, by stage."""
        spent = {stage: now.minus(self.before.get(stage, Budget())) for stage, now in attempt.budget().items()}
        return {stage: budget for stage, budget in spent.items() if budget != Budget()}

    def _post_mortem(self, ending: Ending, text: str) -> Night:
        ended = self.clock.now()
        # A database that is gone leaves the figures of the last step: the post-mortem matters more.
        with suppress(LoopError), broken_as_stage_failed("reading the budget"):
            self.spent = self._spent_on(self.attempt) if self.attempt else {}
        exam = self.child.exam if self.child else None
        return Night(
            date=self.date,
            family=self.family,
            ending=ending,
            text=text,
            next_step=next_step(ending, self.parent, self.attempt),
            started=stamp(self.started),
            ended=stamp(ended),
            seconds=round((ended - self.started).total_seconds(), 1),
            parent=self.parent.digest if self.parent else None,
            parent_number=self.parent.number if self.parent else None,
            attempt=self.attempt.digest if self.attempt else None,
            trial=self.attempt.trial if self.attempt else None,
            resumed=self.resumed,
            tries=self.tries,
            failures=tuple(self.failures),
            generation=self.child.digest if self.child else None,
            number=self.child.number if self.child else None,
            score=exam.score_interval if exam else None,
            gain=exam.gain if exam else None,
            reasons=self.child.decision.reasons if self.child else (),
            spent=self.spent,
            judge_cost=total(self.spent).judge_calls * self.terms.judge_price,
        )


@contextmanager
def broken_as_stage_failed(what: str) -> Iterator[None]:
    """Every error that is not ours becomes StageFailed that says how to go on, with its cause chained."""
    try:
        yield
    except LoopError:
        raise
    except Exception as error:
        raise StageFailed(
            f"{what} broke: {type(error).__name__}: {error}. What was recorded is kept; run the same command to resume."
        ) from error


def stamp(moment: datetime) -> str:
    """ISO 8601 in UTC, to the second."""
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def total(spent: dict[Stage, Budget]) -> Budget:
    """The sum over the stages."""
    whole = Budget()
    for part in spent.values():
        whole = whole.plus(part)
    return whole


def next_step(ending: Ending, parent: Generation | None, attempt: Attempt | None) -> str:
    """What to do in the morning, or that nothing is to be done."""
    kept = f"the next night resumes attempt {attempt.digest[:12]}" if attempt else "the next night tries again"
    above = 1 if parent is None else parent.number + 1
    return {
        Ending.PROMOTED: "the next night grows from it",
        Ending.REJECTED: "the next night grows another trial; each one's exam spends of the lineage's alpha",
        Ending.NOTHING_TO_DO: f"macaron-loop rollback {above} goes forward again; another family starts anew",
        Ending.OUT_OF_BUDGET: f"nothing is lost: {kept}",
        Ending.WINDOW_CLOSED: f"nothing is lost: {kept}",
        Ending.OUTSIDE_WINDOW: "the next scheduled start tries again",
        Ending.FAILED: f"mend the cause; {kept}, or start anew with --fresh",
        Ending.REFUSED: "correct it: until then every night ends like this one",
        Ending.HELD: "wait for that run, or stop it; the next night goes on from what it recorded",
        Ending.INTERRUPTED: f"nothing is lost: {kept}",
    }[ending]


def not_begun(family: str, date: str, now: datetime, ending: Ending, text: str) -> Night:
    """The post-mortem of a night that began nothing."""
    at = stamp(now)
    next_one = next_step(ending, None, None)
    if ending is Ending.NOTHING_TO_DO:
        next_one = next_step(Ending.OUTSIDE_WINDOW, None, None)
    return Night(
        date=date, family=family, ending=ending, text=text, next_step=next_one, started=at, ended=at, seconds=0.0
    )
