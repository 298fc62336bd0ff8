"""Run by a test inside a private mount namespace: fill a small tmpfs, and see what the store says.

Usage: full_disk.py FOLDER, an empty folder to mount a tmpfs of two megabytes on. Prints
one JSON object of what happened.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO

from loop.core.budget import Budget
from loop.core.errors import LoopError
from loop.core.stage import Stage
from loop.store.blobs import FsBlobs
from loop.store.sql import SqlStore
from tests.store import lineage


def attempt_to(call: Callable[[], object]) -> str:
    """The class and sentence of the error a call ends with; empty when it works."""
    try:
        call()
    except LoopError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def fill(disk: Path) -> Path:
    """Use up every byte that is left."""
    ballast = disk / "ballast"
    with open(ballast, "wb", buffering=0) as file:
        for size in (65_536, 4096, 1):
            _write_until_full(file, size)
    return ballast


def _write_until_full(file: IO[bytes], size: int) -> None:
    try:
        while file.write(b"x" * size):
            pass
    except OSError:
        return


def files(folder: Path) -> list[str]:
    """Every file below a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def main(disk: Path, outside: Path) -> dict[str, object]:
    """Fill the disk under blobs, under a tree and under the database, each in turn."""
    blobs = FsBlobs(url=str(disk / "blobs"))
    store = SqlStore(f"sqlite:///{disk / 'loop.db'}", blobs)
    root = lineage.root()
    store.register(root, None)
    attempt = store.begin(lineage.FAMILY, root, lineage.plan())
    attempt.record(Stage.COLLECT, lineage.shard(0), Budget(), "s0")
    tree = outside / "tree"
    tree.mkdir()
    for index in range(8):
        (tree / f"{index}.bin").write_bytes(os.urandom(500_000))

    before = files(disk / "blobs")
    found: dict[str, object] = {}
    found["blob"] = attempt_to(lambda: blobs.put(os.urandom(4_000_000)))
    found["tree"] = attempt_to(lambda: blobs.put_tree(tree))
    found["unchanged"] = files(disk / "blobs") == before

    ballast = fill(disk)
    found["record"] = attempt_to(lambda: attempt.record(Stage.COLLECT, lineage.shard(3, 40), Budget(), "s1"))
    elsewhere = SqlStore(store.url, FsBlobs(url=str(outside / "blobs")))
    again = elsewhere.begin(lineage.FAMILY, root, lineage.plan())
    found["row"] = attempt_to(lambda: again.record(Stage.COLLECT, lineage.shard(3, 40), Budget(), "s1"))
    ballast.unlink()

    # Free space again: the same calls work, and what was recorded is there.
    attempt.record(Stage.COLLECT, lineage.shard(3, 40), Budget(), "s1")
    found["kept"] = attempt.find(Stage.COLLECT, type(lineage.shard()), "s0") == lineage.shard(0)
    found["resumed"] = attempt.find(Stage.COLLECT, type(lineage.shard()), "s1") == lineage.shard(3, 40)
    found["episodes"] = store.table_counts()["episodes"]
    return found


if __name__ == "__main__":
    place = Path(sys.argv[1])
    small = place / "disk"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(small)], capture_output=True)
    if mounted.returncode != 0:
        print(mounted.stderr.decode(), file=sys.stderr)
        sys.exit(77)
    print(json.dumps(main(small, place)))
