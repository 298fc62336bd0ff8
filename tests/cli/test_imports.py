"""Taking in a stranger's adapter at the command line: quarantined and listed, or refused with nothing left behind."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from loop.app import open_store
from loop.cli.main import main
from loop.core.gate import Decision, Standing
from loop.core.generation import Generation
from loop.core.imported import ImportStanding
from loop.core.pair import Pair
from loop.settings import Settings
from loop.store.blobs import FsBlobs
from loop.store.imports import SqlImports
from loop.store.sql import SqlStore
from tests.store import lineage
from tests.trainers.tiny import PROFILE, TRAINER, tiny_base, train_tiny

TERMS = ("--owner", "ada", "--licence", "MIT", "--label", "L0", "--role", "talks")


Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """The command in this process, which has torch loaded already: exit code, output, errors."""
    for name, value in {"HOME": str(tmp_path / "home"), "TRACKING_URI": "off"}.items():
        monkeypatch.setenv(f"MACARON_{name}", value)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["macaron-loop", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        shown = capsys.readouterr()
        return int(ended.value.code or 0), shown.out, shown.err

    return call


def refused(done: tuple[int, str, str], *words: str) -> None:
    code, _, errors = done
    assert code == 2
    assert len(errors.strip().splitlines()) == 1
    assert all(word in errors for word in words), errors


@pytest.fixture
def given(tmp_path: Path) -> Path:
    """A trained adapter of another home, as a folder."""
    trained = train_tiny(tmp_path / "theirs", tmp_path / "scratch").adapter
    shutil.copytree(FsBlobs(url=str(tmp_path / "theirs" / "blobs")).get_tree(trained.blob), tmp_path / "given")
    (tmp_path / "given").chmod(0o755)
    return tmp_path / "given"


@pytest.fixture
def store(tmp_path: Path) -> SqlStore:
    """A lineage on the tiny model with its generation 0, in a home of its own."""
    (tmp_path / "home").mkdir()
    store = open_store(Settings(home=tmp_path / "home"))
    assert isinstance(store.blobs, FsBlobs)
    base = tiny_base(store.blobs, tmp_path / "base")
    fresh = TRAINER.fresh(base, store.blobs, "L0", "talks", 3, PROFILE)
    pair = Pair(base=base, adapters=(fresh,), harness=lineage.harness())
    root = Generation(number=0, family="main", seed=1, pair=pair, decision=Decision(standing=Standing.ROOT))
    store.register(root, None)
    return store


def test_a_good_folder_is_quarantined_listed_and_exported_as_it_came(
    tmp_path: Path, given: Path, store: SqlStore, command: Command
) -> None:
    code, said, errors = command("adapters", "import", str(given), *TERMS)
    assert code == 0, errors
    assert "ada/L0" in said and "quarantined" in said and "not signed" in said
    rows = json.loads(command("adapters", "list", "--json")[1])
    assert [row["standing"] for row in rows] == ["root", "quarantined"]
    assert rows[1]["imported"]["terms"]["licence"] == "MIT"
    shown = command("adapters", "list")[1]
    assert "quarantined" in shown and max(map(len, shown.splitlines())) <= 80
    code, listing, errors = command("adapters", "export", "L0", str(tmp_path / "out"))
    assert code == 0, errors
    assert [line.split()[1] for line in listing.splitlines()] == sorted(path.name for path in given.iterdir())
    refused(command("adapters", "export", "L9", str(tmp_path / "more")), "no adapter L9", "L0")


def test_what_is_refused_leaves_nothing_behind(given: Path, store: SqlStore, command: Command) -> None:
    (given / "adapter_model.bin").write_bytes(b"")
    refused(command("adapters", "import", str(given), *TERMS), "adapter_model.bin", "can run code")
    (given / "adapter_model.bin").unlink()
    refused(command("adapters", "import", str(given), *TERMS, "--signature", "x"), "--public-key")
    refused(command("adapters", "import", str(given), *TERMS, "--owner", "a b"), "--owner", "a b")
    refused(command("adapters", "examine", "ada/L0"), "names 0 imported adapters", "adapters import")
    assert SqlImports(store.url).all() == ()


def test_talking_to_a_rejected_system_with_a_quarantined_adapter_is_refused(
    given: Path, store: SqlStore, command: Command
) -> None:
    assert command("adapters", "import", str(given), *TERMS)[0] == 0
    [(imported, standing)] = SqlImports(store.url).all()
    assert standing is ImportStanding.QUARANTINED
    root = store.generation("main", 0)
    pair = root.pair.revise(adapters=(imported.adapter,))
    rejected = root.revise(number=1, parent=root.digest, pair=pair, decision=Decision(standing=Standing.REJECTED))
    store.register(rejected, None)
    refused(command("chat", "hello", "-g", rejected.short), "ada/L0 is quarantined")
