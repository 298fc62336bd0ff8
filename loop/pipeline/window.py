"""When a nightly run may work: wall-clock windows across midnight and summer time, as pure functions."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from loop.core.errors import UserError
from loop.core.night import Ending

EARLY = timedelta(minutes=1)
_CLOCK = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")


@dataclass(frozen=True)
class Window:
    """Open each day from ``opens`` to ``closes``; past midnight when it closes at or before it opens.

    Both are wall-clock times of one zone. Where the clocks change, a time that comes twice
    means the first, and a time that is left out lies as far after the jump as it was left
    out by (PEP 495, fold 0); the window is then an hour shorter or longer than usual.
    """

    opens: time
    closes: time

    def __str__(self) -> str:
        """As it is written: ``22:00-06:00``."""
        return f"{self.opens:%H:%M}-{self.closes:%H:%M}"

    def day(self, now: datetime, zone: ZoneInfo | None) -> date | None:
        """The day on which the window that is open at ``now`` opened; None outside it."""
        today = now.astimezone(zone).date()
        for day in (today, today - timedelta(days=1)):
            if moment(day, self.opens, zone) <= now < self.end(day, zone):
                return day
        return None

    def end(self, day: date, zone: ZoneInfo | None) -> datetime:
        """The moment (UTC) at which the window that opens on ``day`` closes."""
        past_midnight = self.closes <= self.opens
        return moment(day + timedelta(days=past_midnight), self.closes, zone)


@dataclass(frozen=True)
class Timetable:
    """When a night may begin: inside ``window``, and not later than ``grace`` after ``at``.

    ``at`` is the start that was scheduled; a later one was missed (the machine was off) and
    begins only with ``catch_up``. Without both a night may begin at any time.
    """

    zone: ZoneInfo | None = None
    window: Window | None = None
    at: time | None = None
    grace: timedelta = timedelta(minutes=15)
    catch_up: bool = False

    def refusal(self, now: datetime) -> tuple[Ending, str] | None:
        """Why nothing may begin at this moment, or None."""
        clock = now.astimezone(self.zone).strftime("%H:%M %Z")
        window, at = self.window, self.at
        if window is not None and window.day(now, self.zone) is None:
            return Ending.OUTSIDE_WINDOW, f"it is {clock}, and the window is {window}"
        if at is None or self.catch_up:
            return None
        # A timer whose clock is a little fast must not look a whole day late.
        late = lateness(at, now + EARLY, self.zone) - EARLY
        if late <= self.grace:
            return None
        return Ending.NOTHING_TO_DO, (
            f"the start at {at:%H:%M} was missed: it is {clock}, and --misfire run would begin late"
        )

    def night(self, now: datetime) -> date:
        """The day that names the night: the one on which its window opened, else today."""
        opened = self.window.day(now, self.zone) if self.window else None
        return opened or now.astimezone(self.zone).date()

    def closes(self, now: datetime) -> datetime | None:
        """When the window that is open at this moment closes; None without one."""
        opened = self.window.day(now, self.zone) if self.window else None
        return self.window.end(opened, self.zone) if self.window and opened else None


def moment(day: date, clock: time, zone: ZoneInfo | None) -> datetime:
    """The moment (UTC) of a wall-clock time; without a zone, by this machine's clock."""
    return datetime.combine(day, clock, tzinfo=zone).astimezone(UTC)


def lateness(at: time, now: datetime, zone: ZoneInfo | None) -> timedelta:
    """How long ago the newest daily start at this wall-clock time was due."""
    today = now.astimezone(zone).date()
    due = (moment(today - timedelta(days=back), at, zone) for back in (-1, 0, 1, 2))
    return min(now - start for start in due if start <= now)


def parse_window(text: str) -> Window:
    """A window from ``22:00-06:00``; UserError for anything else."""
    opens, dash, closes = text.partition("-")
    if not dash:
        raise UserError(f"a window is two times of day, as in 22:00-06:00; found {text!r}")
    window = Window(opens=parse_clock(opens), closes=parse_clock(closes))
    if window.opens == window.closes:
        raise UserError(f"the window {text} opens and closes at the same time: leave --window out to run at any time")
    return window


def parse_clock(text: str) -> time:
    """A time of day from ``22:00``; UserError for anything else."""
    found = _CLOCK.fullmatch(text.strip())
    if found is None:
        raise UserError(f"a time of day is HH:MM between 00:00 and 23:59; found {text!r}")
    return time(int(found[1]), int(found[2]))


def parse_zone(name: str | None) -> ZoneInfo | None:
    """A time zone by its IANA name, None for this machine's; UserError when it is unknown."""
    if name is None:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise UserError(
            f"no time zone is named {name!r}: give an IANA name such as Europe/Berlin, or leave --timezone out "
            "for this machine's"
        ) from error
