from __future__ import annotations

import hashlib
import json
import os
import pickle
import random
import time
from pathlib import Path

import pytest

from loop.core.errors import TornBlob
from loop.store import disk
from loop.store.blobs import FsBlobs
from tests.store import children

HELLO = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"  # sha256sum of "hello"


@pytest.fixture(params=["path", "file", "memory"])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> FsBlobs:
    urls = {
        "path": str(tmp_path / "blobs"),
        "file": f"file://{tmp_path}/blobs",
        "memory": f"memory://{tmp_path.name}",
    }
    return FsBlobs(url=urls[request.param], cache=str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    source = tmp_path / "source"
    (source / "deep").mkdir(parents=True)
    (source / "b.bin").write_bytes(bytes(range(256)) * 40)
    (source / "deep" / "a.txt").write_text("hello")
    return source


def _blob_file(blobs: FsBlobs, digest: str) -> Path:
    return next(Path(blobs.url).rglob(digest))


def _names(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_the_address_of_bytes_is_their_sha256(anywhere: FsBlobs) -> None:
    assert not anywhere.has(HELLO)
    assert anywhere.put(b"hello") == HELLO
    assert anywhere.put(b"hello") == HELLO
    assert anywhere.has(HELLO) and anywhere.get(HELLO) == b"hello"
    assert anywhere.get(anywhere.put(b"")) == b""


def test_a_plug_in_pickles_and_works_the_same_elsewhere(anywhere: FsBlobs) -> None:
    digest = anywhere.put(b"over there")
    assert pickle.loads(pickle.dumps(anywhere)).get(digest) == b"over there"


def test_the_address_of_a_tree_is_the_sha256_of_its_sorted_listing(anywhere: FsBlobs, folder: Path) -> None:
    data = bytes(range(256)) * 40
    listing = [["b.bin", hashlib.sha256(data).hexdigest(), len(data)], ["deep/a.txt", HELLO, 5]]
    expected = hashlib.sha256(json.dumps(listing, separators=(",", ":")).encode()).hexdigest()
    assert anywhere.put_tree(folder) == expected
    assert anywhere.put_tree(folder) == expected
    assert anywhere.has(expected)
    copy = anywhere.get_tree(expected)
    assert _names(copy) == ["b.bin", "deep/a.txt"]
    assert (copy / "b.bin").read_bytes() == data
    assert all(path.stat().st_mode & 0o222 == 0 for path in copy.rglob("*") if path.is_file())


def test_a_missing_blob_names_digest_place_and_next_step(anywhere: FsBlobs) -> None:
    for read in (anywhere.get, anywhere.get_tree):
        with pytest.raises(TornBlob) as error:
            read("0" * 64)
        sentence = str(error.value)
        assert "0" * 64 in sentence and "missing" in sentence and "--fresh" in sentence and "\n" not in sentence


@pytest.mark.parametrize("damage", [b"", b"hell", b"hellO", b"hello!"])
def test_a_torn_blob_is_refused_and_put_heals_it(blobs: FsBlobs, damage: bytes) -> None:
    digest = blobs.put(b"hello")
    path = _blob_file(blobs, digest)
    path.chmod(0o644)
    path.write_bytes(damage)
    with pytest.raises(TornBlob, match=str(path)):
        blobs.get(digest)
    assert blobs.put(b"hello") == digest
    assert blobs.get(digest) == b"hello"


def _flip(path: Path) -> None:
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[0] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "add"])
def test_a_torn_tree_is_refused_and_put_tree_heals_it(blobs: FsBlobs, folder: Path, damage: str) -> None:
    digest = blobs.put_tree(folder)
    tree = blobs.get_tree(digest)
    victim = tree / "b.bin"
    if damage == "flip":
        _flip(victim)
    elif damage == "truncate":
        os.chmod(victim, 0o644)
        os.truncate(victim, 100)
    elif damage == "remove":
        victim.unlink()
    else:
        (tree / "stranger").write_text("x")
    with pytest.raises(TornBlob, match=digest):
        blobs.get_tree(digest)
    assert blobs.put_tree(folder) == digest
    assert _names(blobs.get_tree(digest)) == ["b.bin", "deep/a.txt"]


def test_a_torn_copy_of_a_remote_tree_is_fetched_again(tmp_path: Path, folder: Path) -> None:
    blobs = FsBlobs(url=f"memory://{tmp_path.name}", cache=str(tmp_path / "cache"))
    digest = blobs.put_tree(folder)
    _flip(blobs.get_tree(digest) / "b.bin")
    assert (blobs.get_tree(digest) / "b.bin").read_bytes() == (folder / "b.bin").read_bytes()


def test_a_checked_tree_is_not_hashed_again_in_this_process_but_is_in_another(blobs: FsBlobs, folder: Path) -> None:
    digest = blobs.put_tree(folder)
    tree = blobs.get_tree(digest)
    stat = (tree / "b.bin").stat()
    _flip(tree / "b.bin")
    os.utime(tree / "b.bin", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    # Same name, size and time: this process trusts what it has checked.
    assert blobs.get_tree(digest) == tree
    script = f"from loop.store.blobs import FsBlobs; FsBlobs(url={blobs.url!r}).get_tree({digest!r})"
    done = children.python(script)
    assert done.code == 1 and "TornBlob" in done.error


def test_a_folder_without_files_is_refused(blobs: FsBlobs, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "empty", tmp_path / "nowhere"):
        with pytest.raises(FileNotFoundError, match="no files"):
            blobs.put_tree(path)


def test_files_behind_links_are_stored_and_links_to_folders_refused(blobs: FsBlobs, folder: Path) -> None:
    (folder / "link.bin").symlink_to(folder / "b.bin")
    tree = blobs.get_tree(blobs.put_tree(folder))
    assert not (tree / "link.bin").is_symlink() and (tree / "link.bin").stat().st_size == 10_240
    (folder / "linked").symlink_to(folder / "deep")
    with pytest.raises(FileNotFoundError, match="link to a folder"):
        blobs.put_tree(folder)


def test_a_kill_at_any_moment_leaves_no_tree_or_a_whole_one(blobs: FsBlobs, tmp_path: Path) -> None:
    source = tmp_path / "big"
    source.mkdir()
    for index in range(40):
        (source / f"{index:02d}.bin").write_bytes(random.Random(index).randbytes(200_000))
    draw, seen = random.Random(5), set()
    for _ in range(8):
        process = children.start("put-tree", blobs.url, str(source))
        children.wait_for(process, "started")
        time.sleep(draw.uniform(0.0, 0.25))
        process.kill()
        found = [path for path in (Path(blobs.url) / "trees").glob("*/*")] if Path(blobs.url).exists() else []
        seen.add(len(found))
        for path in found:
            assert len(list(path.iterdir())) == 40
            blobs.get_tree(path.name)
    digest = blobs.put_tree(source)
    assert len(list(blobs.get_tree(digest).iterdir())) == 40


def test_two_processes_store_the_same_tree_at_once(blobs: FsBlobs, folder: Path) -> None:
    processes = [children.start("put-tree", blobs.url, str(folder)) for _ in range(3)]
    assert [children.finish(process).code for process in processes] == [0, 0, 0]
    assert list((Path(blobs.url) / "tmp").iterdir()) == []
    assert _names(blobs.get_tree(blobs.put_tree(folder))) == ["b.bin", "deep/a.txt"]


def test_what_a_killed_writer_left_is_swept_after_a_day_and_not_before(blobs: FsBlobs) -> None:
    blobs.put(b"first")
    old, new = Path(blobs.url) / "tmp" / "old", Path(blobs.url) / "tmp" / "new"
    old.write_text("x")
    new.write_text("x")
    long_ago = time.time() - disk.STALE_SECONDS - 60
    os.utime(old, (long_ago, long_ago))
    blobs.put(b"second")
    assert not old.exists() and new.exists()
