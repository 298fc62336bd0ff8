"""Content-addressed blobs and trees on any fsspec URL: durable writes, checked reads."""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from loop.core.errors import TornBlob
from loop.core.noun import Noun
from loop.store.disk import (
    file_digest,
    fsync_folder,
    full_disk_is_explained,
    make_folder,
    read_chunks,
    remove,
    temporary,
    write_file,
)

Listing = Sequence[tuple[str, str, int]]
Signature = tuple[tuple[str, int, int], ...]

# Trees this process has already hashed, by path: (relative path, mtime in ns, size) of each file.
_checked: dict[str, Signature] = {}


class FsBlobs(Noun):
    """Blobs under ``url``: a path or file:// for local disk, else any fsspec URL (s3://, memory://).

    A blob is ``blobs/ab/<digest>``. A local tree is the folder ``trees/ab/<digest>``; on a
    remote URL its files are blobs and ``trees/ab/<digest>`` is its listing, written last.
    ``cache`` is the local folder where remote trees are materialised (default: the user's
    cache folder). The full content of a tree is hashed once per process; later calls
    compare names, modification times and sizes.
    """

    url: str
    cache: str = ""

    def put(self, data: bytes) -> str:
        """Store bytes durably and return their SHA-256; a torn blob at that address is replaced.

        Raises StageFailed when the disk is full; then nothing of the blob is left behind.
        """
        digest = hashlib.sha256(data).hexdigest()
        root = self._local()
        if root is None:
            self._put_remote(_address("blobs", digest), data)
            return digest
        target = root / _address("blobs", digest)
        if target.is_file() and file_digest(target)[0] == digest:
            return digest
        with full_disk_is_explained(root), temporary(root) as path:
            write_file(path, iter((data,)))
            make_folder(target.parent)
            os.replace(path, target)
            fsync_folder(target.parent)
        return digest

    def get(self, digest: str) -> bytes:
        """Read bytes and check them; raises TornBlob when absent, truncated or changed."""
        root = self._local()
        address = _address("blobs", digest)
        try:
            data = self._read_remote(address) if root is None else (root / address).read_bytes()
        except FileNotFoundError as error:
            raise _torn(digest, self._shown(address), "is missing") from error
        found = hashlib.sha256(data).hexdigest()
        if found != digest:
            detail = f"does not match its digest ({len(data)} bytes that hash to {found[:12]})"
            raise _torn(digest, self._shown(address), detail)
        return data

    def put_tree(self, folder: Path) -> str:
        """Store a folder of files durably and return its digest: all of it becomes visible at once.

        The digest is SHA-256 over the sorted (relative path, SHA-256, size) listing. Raises
        FileNotFoundError for a missing or empty folder, StageFailed when the disk is full.
        """
        listing = _listing(folder)
        digest = hashlib.sha256(_listing_bytes(listing)).hexdigest()
        root = self._local()
        if root is None:
            for relative, _, _ in listing:
                self.put((folder / relative).read_bytes())
            self._put_remote(_address("trees", digest), _listing_bytes(listing))
            return digest
        target = root / _address("trees", digest)
        if not _is_whole(target, digest):
            with full_disk_is_explained(root):
                _copy_tree(root, folder, listing, target)
        return digest

    def get_tree(self, digest: str) -> Path:
        """A local, checked, read-only copy of a stored folder; raises TornBlob.

        From a remote URL the tree is fetched into ``cache`` when it is not whole there.
        """
        address = _address("trees", digest)
        root = self._local()
        if root is not None:
            target = root / address
            _check_tree(target, digest)
            return target
        target = self._cache_folder() / address
        if not _is_whole(target, digest):
            self._fetch_tree(digest, target)
        return target

    def erase(self, digest: str) -> None:
        """Take a blob away for good; nothing happens where there is none. Trees stay."""
        root, address = self._local(), _address("blobs", digest)
        if root is not None:
            (root / address).unlink(missing_ok=True)
            return
        filesystem, base = self._remote()
        with suppress(FileNotFoundError):
            filesystem.rm_file(f"{base}/{address}")

    def has(self, digest: str) -> bool:
        """Whether a blob or a tree of that digest is present (content is checked on get)."""
        root = self._local()
        addresses = (_address("blobs", digest), _address("trees", digest))
        if root is not None:
            return any((root / address).exists() for address in addresses)
        filesystem, base = self._remote()
        return any(filesystem.exists(f"{base}/{address}") for address in addresses)

    def _local(self) -> Path | None:
        filesystem, path = fsspec.core.url_to_fs(self.url)
        return Path(path) if isinstance(filesystem, LocalFileSystem) else None

    def _remote(self) -> tuple[Any, str]:
        filesystem, path = fsspec.core.url_to_fs(self.url)
        return filesystem, str(path).rstrip("/")

    def _shown(self, address: str) -> str:
        return f"{self.url.rstrip('/')}/{address}"

    def _cache_folder(self) -> Path:
        if self.cache:
            return Path(self.cache)
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "macaron-loop"

    def _put_remote(self, address: str, data: bytes) -> None:
        """Write under another name, then move: a reader of the address never sees a part."""
        filesystem, base = self._remote()
        target = f"{base}/{address}"
        if filesystem.exists(target) and filesystem.cat_file(target) == data:
            return
        part = f"{base}/tmp/{uuid.uuid4().hex}"
        filesystem.makedirs(f"{base}/tmp", exist_ok=True)
        filesystem.makedirs(target.rsplit("/", 1)[0], exist_ok=True)
        filesystem.pipe_file(part, data)
        filesystem.mv(part, target)

    def _read_remote(self, address: str) -> bytes:
        # A listing kept from an earlier call would hide what another machine has written since.
        filesystem, base = self._remote()
        filesystem.invalidate_cache()
        return bytes(filesystem.cat_file(f"{base}/{address}"))

    def _fetch_tree(self, digest: str, target: Path) -> None:
        address = _address("trees", digest)
        try:
            data = self._read_remote(address)
        except FileNotFoundError as error:
            raise _torn(digest, self._shown(address), "is missing") from error
        if hashlib.sha256(data).hexdigest() != digest:
            raise _torn(digest, self._shown(address), "does not match its digest")
        root = self._cache_folder()
        with full_disk_is_explained(root), temporary(root) as part:
            for relative, blob, _ in json.loads(data):
                path = part / relative
                make_folder(path.parent)
                write_file(path, iter((self.get(blob),)))
            _move_tree(root, part, target)
        _check_tree(target, digest)


def _address(kind: str, digest: str) -> str:
    return f"{kind}/{digest[:2]}/{digest}"


def _torn(digest: str, path: str, detail: str) -> TornBlob:
    return TornBlob(
        f"blob {digest} at {path} {detail}: restore it from a copy, or make it again by running its step with --fresh"
    )


def _files(folder: Path) -> tuple[tuple[str, Path], ...]:
    """Every file below the folder as (relative path with /, path), sorted; links to folders are refused."""
    found = []
    for where, folders, names in os.walk(folder):
        for name in folders:
            if (Path(where) / name).is_symlink():
                raise FileNotFoundError(f"{Path(where) / name} is a link to a folder, which a tree cannot hold")
        for name in names:
            path = Path(where) / name
            found.append((path.relative_to(folder).as_posix(), path))
    return tuple(sorted(found))


def _listing(folder: Path) -> Listing:
    files = _files(folder)
    if not files:
        raise FileNotFoundError(f"{folder} holds no files to store: expected a folder with at least one file")
    return [(relative, *file_digest(path)) for relative, path in files]


def _listing_bytes(listing: Listing) -> bytes:
    return json.dumps([list(entry) for entry in listing], separators=(",", ":"), ensure_ascii=False).encode()


def _signature(folder: Path) -> Signature:
    stats = ((relative, path.stat()) for relative, path in _files(folder))
    return tuple((relative, stat.st_mtime_ns, stat.st_size) for relative, stat in stats)


def _check_tree(folder: Path, digest: str) -> None:
    """Hash the folder unless this process has and its names, times and sizes are the same."""
    if not folder.is_dir():
        raise _torn(digest, str(folder), "is missing")
    signature = _signature(folder)
    if _checked.get(str(folder)) == signature:
        return
    listing = [(relative, *file_digest(folder / relative)) for relative, _, _ in signature]
    if hashlib.sha256(_listing_bytes(listing)).hexdigest() != digest:
        raise _torn(digest, str(folder), f"does not match its digest ({len(listing)} files)")
    _checked[str(folder)] = signature


def _is_whole(folder: Path, digest: str) -> bool:
    try:
        _check_tree(folder, digest)
    except TornBlob:
        return False
    return True


def _copy_tree(root: Path, folder: Path, listing: Listing, target: Path) -> None:
    with temporary(root) as part:
        for relative, digest, size in listing:
            path = part / relative
            make_folder(path.parent)
            if write_file(path, read_chunks(folder / relative)) != (digest, size):
                raise OSError(f"{folder / relative} changed while it was stored: store the folder again")
        _move_tree(root, part, target)


def _move_tree(root: Path, part: Path, target: Path) -> None:
    """Make a finished tree visible by one rename; a torn one at the address is set aside first."""
    for where, _, _ in os.walk(part):
        fsync_folder(Path(where))
    make_folder(target.parent)
    try:
        os.rename(part, target)
    except OSError:
        # Somebody stored the same tree meanwhile, or a torn one lies there: ours is whole in any case.
        if not target.is_dir():
            raise
        if _is_whole(target, target.name):
            return
        with temporary(root) as aside:
            os.rename(target, aside)
            os.rename(part, target)
            remove(aside)
    fsync_folder(target.parent)
