"""``macaron-loop nightly``: grow the champion's successor unattended, within a window and a budget."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loop.cli.options import Config, Json, plain, print_json

if TYPE_CHECKING:
    from loop.cli.webhook import Webhook
    from loop.core.night import Night
    from loop.pipeline.nightly import Terms
    from loop.pipeline.parts import Loop
    from loop.pipeline.window import Timetable
    from loop.settings import Settings
    from loop.store.sql import SqlStore


class Misfire(StrEnum):
    """What becomes of a start that was missed, or that finds last night's run still going."""

    SKIP = "skip"
    RUN = "run"


EPILOG = (
    "Exit codes: 0 promoted, 1 failed, 2 refused (settings or options to correct), 3 held by another run, "
    "10 rejected, 11 nothing to do, 12 out of budget, 13 outside the window, 14 the window closed, "
    "130 interrupted (Ctrl-C or SIGTERM).\n\n"
    "After 1, 12, 14 and 130 the next night resumes: nothing that was recorded is done again. "
    "10 to 14 need nobody's attention."
)


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """This moment in UTC."""
        return datetime.now(UTC)

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


def nightly(
    window: Annotated[str | None, typer.Option(help="Work only within it, e.g. 22:00-06:00.")] = None,
    timezone: Annotated[str | None, typer.Option(help="Zone of the times; default: this machine's.")] = None,
    at: Annotated[str | None, typer.Option(help="The start that was scheduled; default: the window's.")] = None,
    grace: Annotated[int, typer.Option(min=1, help="Minutes after which a start counts as missed.")] = 15,
    misfire: Annotated[
        Misfire, typer.Option(help="A missed start, or one that finds a run still going: skip it, or run late.")
    ] = Misfire.SKIP,
    max_tokens: Annotated[int | None, typer.Option(min=1, help="Generated plus trained tokens of tonight.")] = None,
    max_seconds: Annotated[float | None, typer.Option(min=1, help="Seconds of tonight.")] = None,
    max_judge_cost: Annotated[float | None, typer.Option(min=0.01, help="What judges may cost tonight.")] = None,
    judge_price: Annotated[float, typer.Option(min=0, help="The price of one judge call.")] = 0.0,
    retries: Annotated[int, typer.Option(min=0, max=20, help="More tries of a stage that broke.")] = 2,
    pause: Annotated[float, typer.Option(min=0, help="Seconds before the first retry; doubles.")] = 30.0,
    fresh: Annotated[bool, typer.Option("--fresh", help="Give up an unfinished attempt for another trial.")] = False,
    webhook: Annotated[str | None, typer.Option(help="env:NAME, file:PATH or https URL to POST the end to.")] = None,
    exit_zero: Annotated[bool, typer.Option("--exit-zero", help="Exit 0 for 10 to 14 too.")] = False,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Grow the champion's successor unattended; what is stopped is resumed the next night.

    Limits are checked before each step: the one in hand may go a little beyond.

    A rejected successor is tried again the next night, as another trial.

    The post-mortem is printed, and kept in nightly/DATE.json of the home.
    """
    from loop.cli.webhook import open_webhook
    from loop.core.errors import UserError
    from loop.pipeline.nightly import Terms
    from loop.pipeline.window import Timetable, parse_clock, parse_window, parse_zone
    from loop.settings import load_settings

    if max_judge_cost is not None and judge_price <= 0:
        raise UserError("--max-judge-cost needs --judge-price, the price of one judge call")
    settings = load_settings(config)
    now = datetime.now(UTC)
    opened = parse_window(window) if window else None
    due = parse_clock(at) if at else opened.opens if opened else None
    catch_up = misfire is Misfire.RUN
    timetable = Timetable(parse_zone(timezone), opened, due, timedelta(minutes=grace), catch_up)
    address = open_webhook(webhook) if webhook else None
    terms = Terms(
        tokens=max_tokens,
        seconds=max_seconds,
        judge_cost=max_judge_cost,
        judge_price=judge_price,
        closes=timetable.closes(now),
        retries=retries,
        pause_seconds=pause,
        fresh=fresh,
        waits=catch_up,
    )
    with terminated_like_interrupted():
        night = _night(settings, timetable, terms, address, now)
    print_json(night) if as_json else _show(night)
    raise typer.Exit(0 if exit_zero and night.ending.calm else night.ending.exit_code)


@contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """SIGTERM (systemd, Kubernetes) stops the body as Ctrl-C does."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _night(settings: Settings, timetable: Timetable, terms: Terms, address: Webhook | None, now: datetime) -> Night:
    """The night's post-mortem; one that was not allowed to begin leaves nothing but its sentence."""
    from loop.core.errors import LoopError, UserError
    from loop.core.night import Ending
    from loop.pipeline.nightly import broken_as_stage_failed, not_begun

    date = timetable.night(now).isoformat()
    refusal = timetable.refusal(now)
    if refusal is not None:
        return not_begun(settings.family, date, now, *refusal)
    from loop.app import open_store

    store = None
    try:
        with broken_as_stage_failed("opening the store"):
            store = open_store(settings)
            night = _run(settings, store, terms, date)
    except LoopError as error:
        ending = Ending.REFUSED if isinstance(error, UserError) else Ending.FAILED
        night = not_begun(settings.family, date, now, ending, str(error))
    _keep(settings, store, night)
    problem = address.post(_message(night)) if address else None
    if problem:
        _warn(problem)
    return night


def _run(settings: Settings, store: SqlStore, terms: Terms, date: str) -> Night:
    from rich.console import Console

    from loop.app import first_pair, make_plan, open_contract, open_loop
    from loop.cli.progress import TerminalProgress
    from loop.pipeline.nightly import Tonight

    contract = open_contract(settings)

    @contextmanager
    def parts() -> Iterator[Loop]:
        with (
            TerminalProgress(Console(stderr=True)) as progress,
            open_loop(settings, store, contract, progress) as loop,
        ):
            yield loop

    tonight = Tonight(
        store=store,
        family=settings.family,
        plan=make_plan(settings, contract),
        terms=terms,
        clock=SystemClock(),
        date=date,
        champion=lambda: store.champion(settings.family),
        open_loop=parts,
        first_pair=lambda loop: first_pair(settings, loop),
    )
    return tonight.run()


def _keep(settings: Settings, store: SqlStore | None, night: Night) -> None:
    """Write the post-mortem to the store and to a file of its own, and the report where a generation was grown.

    A full disk must not hide how it ended.
    """
    from loop.app import attach_report, open_tracker
    from loop.core.errors import LoopError
    from loop.pipeline.nightly import broken_as_stage_failed

    try:
        with broken_as_stage_failed("keeping the post-mortem"):
            if store is not None:
                store.save(night)
            folder = settings.home / "nightly"
            folder.mkdir(parents=True, exist_ok=True)
            _write(folder, night)
            if store is not None and night.generation is not None:
                attach_report(settings, store, open_tracker(settings), store.by_digest(night.generation))
    except LoopError as error:
        _warn(str(error))


def _write(folder: Path, night: Night) -> None:
    """``DATE.json``; later runs of the same night get ``DATE.2.json`` and on, so that none is overwritten."""
    text = json.dumps(plain(night), indent=2, ensure_ascii=False, sort_keys=True) + "\n"
    number = 1
    while True:
        path = folder / (f"{night.date}.json" if number == 1 else f"{night.date}.{number}.json")
        with suppress(FileExistsError), path.open("x", encoding="utf-8") as file:
            file.write(text)
            return
        number += 1


def _message(night: Night) -> dict[str, Any]:
    """What a webhook is sent; ``text`` is what chat services show."""
    return {"text": f"macaron-loop {night.family}: {night.ending.value}. {night.text}", "night": plain(night)}


def _show(night: Night) -> None:
    from rich.console import Console

    from loop.cli.night import print_night

    print_night(Console(highlight=False), night)


def _warn(text: str) -> None:
    print(f"macaron-loop: {text}", file=sys.stderr)
