"""What a run shows while it works: a live bar on a terminal, plain log lines elsewhere."""

from __future__ import annotations

import sys
import time

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn


class TerminalProgress:
    """Implements ports.Progress with one rich bar for the stage in hand; use as a context."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = console.is_terminal
        self._bars = Progress(
            TextColumn("[bold]{task.description:<9}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("[dim]{task.fields[detail]}"),
            console=console,
            transient=True,
        )
        self._bar: TaskID | None = None
        self._name = ""
        self._started = time.monotonic()

    def __enter__(self) -> TerminalProgress:
        if self._live:
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def stage(self, name: str, detail: str) -> None:
        """Begin a stage."""
        self._name = name
        if self._live:
            if self._bar is not None:
                self._bars.remove_task(self._bar)
            self._bar = self._bars.add_task(name, total=None, detail=detail)
        else:
            self._line(f"{name}: {detail}")

    def advance(self, done: int, total: int, detail: str) -> None:
        """Part of the stage is finished."""
        if self._live and self._bar is not None:
            self._bars.update(self._bar, completed=done, total=total, detail=detail)
        else:
            self._line(f"{self._name}: {done}/{total} {detail}")

    def finished(self, name: str, detail: str, seconds: float, reused: bool) -> None:
        """A stage ended."""
        mark = "recorded" if reused else f"{seconds:.1f} s"
        if self._live:
            self._console.print(f"[green]✓[/] {name:<9} {detail} [dim]{mark}[/]", highlight=False)
        else:
            self._line(f"{name}: done, {detail}, {mark}")

    def _line(self, text: str) -> None:
        """One log line with the seconds since the run began, flushed for whoever tails it."""
        print(f"[{time.monotonic() - self._started:7.1f} s] {text}", file=sys.stderr, flush=True)
