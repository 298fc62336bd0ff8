"""Windows by the wall clock; the expected moments are worked out by hand from the zones' published rules."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loop.core.errors import UserError
from loop.core.night import Ending
from loop.pipeline.window import Timetable, Window, lateness, moment, parse_clock, parse_window, parse_zone

BERLIN = ZoneInfo("Europe/Berlin")  # UTC+1; UTC+2 from 2026-03-29 01:00 UTC to 2026-10-25 01:00 UTC
NIGHT = parse_window("22:00-06:00")


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[arg-type,misc]


@pytest.mark.parametrize(
    ("now", "opened"),
    [
        (utc(2026, 1, 10, 20, 59), None),  # 21:59
        (utc(2026, 1, 10, 21, 0), date(2026, 1, 10)),  # 22:00
        (utc(2026, 1, 11, 2, 0), date(2026, 1, 10)),  # 03:00: still last evening's
        (utc(2026, 1, 11, 4, 59), date(2026, 1, 10)),  # 05:59
        (utc(2026, 1, 11, 5, 0), None),  # 06:00
        (utc(2026, 7, 10, 20, 0), date(2026, 7, 10)),  # 22:00 in summer
        (utc(2026, 7, 11, 4, 0), None),  # 06:00 in summer
    ],
)
def test_a_window_across_midnight_belongs_to_the_day_it_opened(now: datetime, opened: date | None) -> None:
    assert NIGHT.day(now, BERLIN) == opened


def test_a_night_is_an_hour_shorter_in_spring_and_longer_in_autumn() -> None:
    def hours(day: date) -> float:
        return (NIGHT.end(day, BERLIN) - moment(day, NIGHT.opens, BERLIN)).total_seconds() / 3600

    assert NIGHT.end(date(2026, 3, 28), BERLIN) == utc(2026, 3, 29, 4)
    assert NIGHT.end(date(2026, 10, 24), BERLIN) == utc(2026, 10, 25, 5)
    assert [hours(date(2026, 3, 28)), hours(date(2026, 6, 1)), hours(date(2026, 10, 24))] == [7, 8, 9]


def test_a_time_that_is_left_out_comes_after_the_jump_and_one_that_comes_twice_is_the_first() -> None:
    early = parse_window("02:30-03:45")
    # 02:30 does not exist on 2026-03-29: thirty minutes after the jump it is 03:30 (01:30 UTC).
    assert early.day(utc(2026, 3, 29, 1, 29), BERLIN) is None
    assert early.day(utc(2026, 3, 29, 1, 30), BERLIN) == date(2026, 3, 29)
    assert early.end(date(2026, 3, 29), BERLIN) == utc(2026, 3, 29, 1, 45)
    # 02:30 comes twice on 2026-10-25: first at 00:30 UTC.
    assert early.day(utc(2026, 10, 25, 0, 30), BERLIN) == date(2026, 10, 25)


@given(
    st.times().map(lambda t: t.replace(second=0, microsecond=0)),
    st.times().map(lambda t: t.replace(second=0, microsecond=0)),
    st.datetimes(datetime(2026, 1, 1), datetime(2027, 12, 31)),
)
def test_without_clock_changes_a_window_is_open_exactly_between_its_times(
    opens: time, closes: time, naive: datetime
) -> None:
    clock = naive.time()
    expected = opens <= clock < closes if opens < closes else clock >= opens or clock < closes
    found = Window(opens, closes).day(naive.replace(tzinfo=UTC), ZoneInfo("Etc/UTC"))
    assert (found is not None) == expected


def test_lateness_counts_from_the_newest_start_that_was_due() -> None:
    assert lateness(time(2, 0), utc(2026, 1, 10, 1, 5), BERLIN) == timedelta(minutes=5)
    assert lateness(time(2, 0), utc(2026, 1, 10, 0, 59), BERLIN) == timedelta(hours=23, minutes=59)
    # The night of the spring change: 02:00 is left out and met at 03:00, which is 01:00 UTC.
    assert lateness(time(2, 0), utc(2026, 3, 29, 1, 10), BERLIN) == timedelta(minutes=10)


def _timetable(**changes: object) -> Timetable:
    return Timetable(**({"zone": BERLIN, "window": NIGHT, "at": time(22, 0)} | changes))  # type: ignore[arg-type]


def test_outside_the_window_nothing_begins() -> None:
    refusal = _timetable().refusal(utc(2026, 1, 10, 12, 0))
    assert refusal is not None and refusal[0] is Ending.OUTSIDE_WINDOW
    assert "13:00 CET" in refusal[1] and "22:00-06:00" in refusal[1]


def test_a_missed_start_is_skipped_unless_it_is_to_be_caught_up() -> None:
    late = utc(2026, 1, 10, 23, 0)  # midnight, two hours late
    refusal = _timetable().refusal(late)
    assert refusal is not None and refusal[0] is Ending.NOTHING_TO_DO and "22:00" in refusal[1]
    assert _timetable(catch_up=True).refusal(late) is None
    assert _timetable(grace=timedelta(hours=3)).refusal(late) is None


def test_a_timer_that_is_a_few_seconds_early_is_not_a_day_late() -> None:
    assert _timetable(window=None).refusal(utc(2026, 1, 10, 20, 59, 58)) is None


def test_a_night_is_named_by_the_day_it_opened_and_closes_in_the_morning() -> None:
    after_midnight = utc(2026, 1, 11, 1, 0)
    assert _timetable().night(after_midnight) == date(2026, 1, 10)
    assert _timetable().closes(after_midnight) == utc(2026, 1, 11, 5, 0)
    assert _timetable(window=None).night(after_midnight) == date(2026, 1, 11)
    assert _timetable(window=None).closes(after_midnight) is None


@pytest.mark.parametrize(
    "text", ["22:00", "22-06", "24:00-06:00", "22:60-06:00", "22:00-06:00-07:00", "", "06:00-06:00"]
)
def test_what_is_no_window_is_refused_in_its_own_words(text: str) -> None:
    with pytest.raises(UserError):
        parse_window(text)


def test_a_zone_is_an_iana_name() -> None:
    assert parse_zone(None) is None and parse_zone("Europe/Berlin") == BERLIN
    for bad in ("Europe/Berlint", "../../etc/passwd", ""):
        with pytest.raises(UserError, match="IANA"):
            parse_zone(bad)
    assert parse_clock(" 6:05 ") == time(6, 5)
