"""``manifest``, ``replay`` and ``noise``: what an exam depends on, and whether it comes out the same again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loop.cli.files import read_noun, write_noun
from loop.cli.lineage import find
from loop.cli.options import Config, Json, Which, print_json

if TYPE_CHECKING:
    from loop.core.manifest import Floor
    from loop.pipeline.manifest import Examination
    from loop.pipeline.parts import Loop
    from loop.settings import Settings
    from loop.store.sql import SqlStore

CASES = 24


def manifest(
    which: Which,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The file; default: print it.")] = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Write everything an exam's result depends on, as one JSON document.

    Digests, seeds, sampling, code, packages and hardware; no secret, path or user name.
    """
    from loop.app import open_store
    from loop.pipeline.manifest import examination
    from loop.pipeline.manifest import manifest as build
    from loop.settings import load_settings

    settings = load_settings(config)
    store = open_store(settings)
    generation = find(settings, store, which)
    found = examination(store, generation, store.origin(generation))
    made = build(found, known_floor(store, found))
    if out is None:
        print_json(made)
        return
    write_noun(made, out, "manifest")
    if as_json:
        print_json({"path": str(out), "manifest": made.digest})
        return
    print(f"{out}: manifest {made.short} of generation {made.number} ({made.generation[:12]})")
    if not made.surroundings:
        print("  code, packages and hardware are missing: an older version examined it")


def replay(
    file: Annotated[Path, typer.Argument(metavar="MANIFEST", help="A file that `manifest` wrote.")],
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Play an exam again from the stored blobs: EQUAL, WITHIN THE NOISE FLOOR, or DIFFERENT.

    A real run of the model. The ledger of the holdout names it; it changes no generation. Exit 1 when different.
    """
    from loop.app import open_store
    from loop.cli.replay import print_replay
    from loop.core.manifest import Manifest, ReplayVerdict
    from loop.pipeline.manifest import examination
    from loop.pipeline.replay import replay as play_again
    from loop.settings import load_settings

    written = read_noun(Manifest, file, "manifest", "macaron-loop manifest N --out")
    settings = load_settings(config)
    store = open_store(settings)
    generation = store.by_digest(written.generation)
    found = examination(store, generation, store.origin(generation))
    with _opened(settings, store, found) as loop:
        result = play_again(loop, found, written, known_floor(store, found))
    print_json(result) if as_json else print_replay(result)
    if result.verdict is ReplayVerdict.DIFFERENT:
        raise typer.Exit(1)


def noise(
    which: Annotated[str | None, typer.Argument(metavar="GENERATION", help="Default: the newest examined.")] = None,
    cases: Annotated[int, typer.Option("--cases", min=1, help="How many of its exam's cases to play.")] = CASES,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Measure the noise floor in points: exam cases played as the exam did, then each alone.

    The largest difference is kept for this contract, engine and base; `replay` compares with it.
    """
    from loop.app import open_store
    from loop.cli.replay import print_noise
    from loop.pipeline.manifest import examination
    from loop.pipeline.noise import measure_noise
    from loop.settings import load_settings
    from loop.store.views import NoiseFloor

    settings = load_settings(config)
    store = open_store(settings)
    generation = find(settings, store, which or newest_examined(settings, store))
    found = examination(store, generation, store.origin(generation))
    with _opened(settings, store, found) as loop:
        measured = measure_noise(loop, found, cases)
    contract, engine, base = _floor_key(found)
    played = measured.cases // 2  # both halves score the same episodes
    store.save_noise_floor(
        NoiseFloor(contract=contract, engine=engine, base=base, value=measured.largest, cases=played)
    )
    if as_json:
        print_json({"generation": generation.digest, "cases": played, "measured": measured})
    else:
        print_noise(generation, measured, played)


def newest_examined(settings: Settings, store: SqlStore) -> str:
    """The digest of the lineage's newest generation with an exam; UserError without one."""
    from loop.core.errors import UserError

    examined = [g for g in store.generations(settings.family) if g.exam is not None]
    if not examined:
        raise UserError(f"lineage {settings.family} has no examined generation: macaron-loop run --generation 0")
    return examined[-1].digest


def known_floor(store: SqlStore, found: Examination) -> Floor | None:
    """The noise floor measured for this exam's contract, engine and base, if any."""
    from loop.core.manifest import Floor

    for floor in store.noise_floors():
        if (floor.contract, floor.engine, floor.base) == _floor_key(found):
            return Floor(value=floor.value, cases=floor.cases)
    return None


def _floor_key(found: Examination) -> tuple[str, str, str]:
    return found.exam.contract, found.plan.engine.digest, found.generation.pair.base.digest


@contextmanager
def _opened(settings: Settings, store: SqlStore, found: Examination) -> Iterator[Loop]:
    """The parts that the exam was played with, and progress on the terminal."""
    from rich.console import Console

    from loop.app import as_planned, open_loop
    from loop.cli.progress import TerminalProgress

    with (
        TerminalProgress(Console(stderr=True)) as progress,
        open_loop(as_planned(settings, found.plan), store, found.contract, progress) as loop,
    ):
        yield loop
