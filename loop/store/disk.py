"""Durable local writes: temporary name, fsync, rename, fsync of the folder; a full disk is one clear sentence."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loop.core.errors import StageFailed

CHUNK = 1 << 20
STALE_SECONDS = 86_400.0
_FULL = (errno.ENOSPC, errno.EDQUOT)


def fsync_folder(folder: Path) -> None:
    """Make renames and new names in the folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents durably; nothing happens when it exists."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    fsync_folder(folder.parent)


@contextmanager
def full_disk_is_explained(root: Path) -> Iterator[None]:
    """Turn ENOSPC (and an exhausted quota) into StageFailed, which says that nothing was lost."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise StageFailed(f"disk full at {root}: free space and run again, nothing was lost") from error


@contextmanager
def temporary(root: Path) -> Iterator[Path]:
    """A fresh name under ``root/tmp`` (same filesystem); what is still there at the end is removed."""
    folder = root / "tmp"
    make_folder(folder)
    _sweep(folder)
    path = folder / uuid.uuid4().hex
    try:
        yield path
    finally:
        remove(path)


def remove(path: Path) -> None:
    """Remove a file or a folder if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _sweep(folder: Path) -> None:
    """Drop what a killed process left behind: names untouched for a day (a live write is far shorter)."""
    limit = time.time() - STALE_SECONDS
    for entry in os.scandir(folder):
        try:
            stale = entry.stat(follow_symlinks=False).st_mtime < limit
        except FileNotFoundError:
            continue
        if stale:
            remove(Path(entry.path))


def write_file(path: Path, chunks: Iterator[bytes]) -> tuple[str, int]:
    """Write chunks to a new read-only file and fsync it; returns its SHA-256 and size in bytes."""
    checksum, size = hashlib.sha256(), 0
    with open(path, "xb") as file:
        for chunk in chunks:
            checksum.update(chunk)
            size += len(chunk)
            file.write(chunk)
        file.flush()
        os.fchmod(file.fileno(), 0o444)
        os.fsync(file.fileno())
    return checksum.hexdigest(), size


def read_chunks(path: Path) -> Iterator[bytes]:
    """The bytes of a file in pieces of one mebibyte."""
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            yield chunk


def file_digest(path: Path) -> tuple[str, int]:
    """SHA-256 of a file and its size in bytes."""
    checksum, size = hashlib.sha256(), 0
    for chunk in read_chunks(path):
        checksum.update(chunk)
        size += len(chunk)
    return checksum.hexdigest(), size
