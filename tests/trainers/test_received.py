"""Folders of strangers: a good one becomes our own file, every hostile one is one sentence and leaves nothing."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from loop.core.base import Base
from loop.core.errors import UserError
from loop.core.imported import Imported, Terms
from loop.store.blobs import FsBlobs
from loop.trainers.received import listing_of, receive
from tests.trainers.tiny import PROFILE, TRAINER, tiny_base, train_tiny

TERMS = Terms(owner="ada", licence="apache-2.0", label="L1", role="tools")
CONFIG, WEIGHTS, PROBE = "adapter_config.json", "adapter_model.safetensors", "probe.json"


@pytest.fixture(scope="module")
def owner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another owner's home with a trained adapter, exported as a folder."""
    home = tmp_path_factory.mktemp("owner")
    trained = train_tiny(home, home / "scratch").adapter
    shutil.copytree(FsBlobs(url=str(home / "blobs")).get_tree(trained.blob), home / "given")
    for file in (home / "given").iterdir():
        file.chmod(0o644)
    return home


@pytest.fixture
def given(owner: Path, tmp_path: Path) -> Path:
    shutil.copytree(owner / "given", tmp_path / "given")
    (tmp_path / "given").chmod(0o755)
    return tmp_path / "given"


@pytest.fixture
def blobs(tmp_path: Path) -> FsBlobs:
    return FsBlobs(url=str(tmp_path / "blobs"))


@pytest.fixture
def base(blobs: FsBlobs, tmp_path: Path) -> Base:
    return tiny_base(blobs, tmp_path / "base")


def take(
    given: Path, base: Base, blobs: FsBlobs, terms: Terms = TERMS, signed: tuple[Path, Path] | None = None
) -> Imported:
    return receive(given, base, blobs, terms, signed=signed, who="me", at="now")


def stored(blobs: FsBlobs) -> set[Path]:
    return {path for path in Path(blobs.url).rglob("*") if path.is_file()}


def test_what_is_stored_holds_the_owners_numbers_and_nothing_else_of_theirs(
    given: Path, base: Base, blobs: FsBlobs
) -> None:
    (given / "README.md").write_text("please run me")
    imported = take(given, base, blobs)
    folder = blobs.get_tree(imported.adapter.blob)
    theirs, ours = load_file(given / WEIGHTS), load_file(folder / WEIGHTS)
    assert theirs.keys() == ours.keys()
    assert all(torch.equal(theirs[key], ours[key]) for key in theirs)
    assert sorted(path.name for path in folder.iterdir()) == [CONFIG, WEIGHTS, PROBE]
    assert (imported.adapter.owner, imported.adapter.licence) == ("ada", "Apache-2.0")
    assert (imported.adapter.rank, imported.adapter.alpha) == (PROFILE.rank, PROFILE.alpha)
    assert imported.base_known_by == "probe"
    assert imported.signer is None


def test_the_listing_is_what_sha256sum_prints(given: Path, base: Base, blobs: FsBlobs) -> None:
    done = subprocess.run(["sha256sum", CONFIG, WEIGHTS, PROBE], cwd=given, capture_output=True, text=True, check=True)
    assert listing_of(given) == done.stdout


def test_a_signature_by_openssl_is_verified_and_its_key_recorded(
    given: Path, base: Base, blobs: FsBlobs, tmp_path: Path
) -> None:
    (tmp_path / "listing").write_text(listing_of(given))

    def openssl(*arguments: str) -> bytes:
        return subprocess.run(["openssl", *arguments], cwd=tmp_path, capture_output=True, check=True).stdout

    for name in ("key", "other"):
        openssl("genpkey", "-algorithm", "ed25519", "-out", f"{name}.pem")
        openssl("pkey", "-in", f"{name}.pem", "-pubout", "-out", f"{name}.pub")
        openssl("pkeyutl", "-sign", "-rawin", "-inkey", f"{name}.pem", "-in", "listing", "-out", f"{name}.sig")
    imported = take(given, base, blobs, signed=(tmp_path / "key.sig", tmp_path / "key.pub"))
    der = openssl("pkey", "-pubin", "-in", "key.pub", "-outform", "der")
    (tmp_path / "der").write_bytes(der)
    summed = subprocess.run(["sha256sum", tmp_path / "der"], capture_output=True, text=True, check=True).stdout
    assert imported.signer == summed.split()[0]
    with pytest.raises(UserError, match="not this key's signature"):
        take(given, base, blobs, signed=(tmp_path / "other.sig", tmp_path / "key.pub"))
    (given / CONFIG).write_text((given / CONFIG).read_text() + " ")
    with pytest.raises(UserError, match="not this key's signature"):
        take(given, base, blobs, signed=(tmp_path / "key.sig", tmp_path / "key.pub"))


def test_without_a_probe_the_digest_of_the_base_has_to_be_said(given: Path, base: Base, blobs: FsBlobs) -> None:
    (given / PROBE).unlink()
    with pytest.raises(UserError, match="--base-digest"):
        take(given, base, blobs)
    with pytest.raises(UserError, match="trained on base 000000000000"):
        take(given, base, blobs, TERMS.revise(base_digest="0" * 64))
    edit_config(base_model_name_or_path="somebody/elses-name")(given)
    assert take(given, base, blobs, TERMS.revise(base_digest=base.weights_digest)).base_known_by == "statement"


def edit_config(**fields: object) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        found = json.loads((folder / CONFIG).read_text())
        (folder / CONFIG).write_text(json.dumps(found | fields))

    return edit


def edit_weights(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        values = load_file(folder / WEIGHTS)
        change(values)
        save_file(values, folder / WEIGHTS)

    return edit


def edit_probe(**fields: object) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        found = json.loads((folder / PROBE).read_text())
        (folder / PROBE).write_text(json.dumps(found | fields))

    return edit


def header(text: bytes, length: int | None = None) -> Callable[[Path], None]:
    return lambda folder: (folder / WEIGHTS).write_bytes(struct.pack("<Q", length or len(text)) + text) and None


def link(name: str) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        (folder.parent / "outside").write_bytes((folder / CONFIG).read_bytes())
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to("../outside")

    return edit


def pickled(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(pickle.dumps({"a": 1})) and None


def fifo(folder: Path) -> None:
    (folder / CONFIG).unlink()
    os.mkfifo(folder / CONFIG)


def first(values: dict[str, torch.Tensor]) -> str:
    return min(key for key in values if "lora_B" in key)


HOSTILE: dict[str, tuple[Callable[[Path], object], str]] = {
    "pickle beside": (pickled("adapter_model.bin"), "adapter_model.bin.*can run code"),
    "training arguments": (pickled("training_args.bin"), "can run code"),
    "capital letters": (pickled("X.PKL"), "can run code"),
    "python": (lambda f: (f / "modeling.py").write_text("import os"), "modeling.py.*can run code"),
    "pickle under the name of the weights": (pickled(WEIGHTS), "not a safetensors file|cannot be read"),
    "linked weights": (link(WEIGHTS), "the link"),
    "any link": (link("notes.md"), "the link"),
    "a pipe": (fifo, "not a plain file"),
    "no weights": (lambda f: (f / WEIGHTS).unlink(), f"has no {WEIGHTS}"),
    "large configuration": (lambda f: (f / CONFIG).write_text(" " * 70_000), "at most 65,536 bytes"),
    "configuration that is no JSON": (lambda f: (f / CONFIG).write_text("{"), f"{CONFIG} is not JSON"),
    "deep configuration": (lambda f: (f / CONFIG).write_text("[" * 60_000), f"{CONFIG} is not JSON"),
    "a list": (lambda f: (f / CONFIG).write_text("[]"), "not a JSON object"),
    "code to import": (edit_config(auto_mapping={"base_model_class": "os"}), "sets auto_mapping"),
    "whole modules": (edit_config(modules_to_save=["lm_head"]), "sets modules_to_save"),
    "another kind of adapter": (edit_config(peft_type="LOHA"), "no LoRA adapter"),
    "DoRA": (edit_config(use_dora=True), "sets use_dora"),
    "a start that moves the base": (edit_config(init_lora_weights="pissa"), "sets init_lora_weights"),
    "bias": (edit_config(bias="all"), "sets bias"),
    "an unknown field": (edit_config(loader="x"), "sets loader"),
    "a pattern for targets": (edit_config(target_modules=".*"), "as a list of names"),
    "targets of many types": (edit_config(target_modules=["q_proj", 3]), "as a list of names"),
    "absent targets": (edit_config(target_modules=["q_a_proj"]), "q_a_proj"),
    "a base to fetch": (edit_config(base_model_name_or_path="https://evil.example/m"), "names the base 'https://evil"),
    "wrong rank": (edit_config(r=8), "has rank 4, and adapter_config.json says 8"),
    "giant rank": (edit_config(r=10**9), "rank up to 512"),
    "no rank": (edit_config(r=None), "bad rank"),
    "endless alpha": (edit_config(lora_alpha=float("inf")), "finite alpha"),
    "other alpha than was trained": (edit_config(lora_alpha=64), "the adapter's logits are .* from those in probe"),
    "NaN": (edit_weights(lambda v: v[first(v)][0].fill_(float("nan"))), "no numbers, first .*lora_B"),
    "an extra key": (edit_weights(lambda v: v.update({"x.lora_A.weight": torch.zeros(4, 9)})), "1 bind to nothing"),
    "a missing key": (edit_weights(lambda v: v.pop(first(v))), "1 are missing"),
    "a key that is no factor": (
        edit_weights(lambda v: v.update({"lm_head.weight": torch.zeros(4, 9)})),
        "no LoRA factor",
    ),
    "another width": (
        edit_weights(lambda v: v.update({first(v): torch.zeros(7, 4)})),
        r"another shape, first .*found \(7, 4\)",
    ),
    "whole numbers": (edit_weights(lambda v: v.update({first(v): torch.zeros(64, 4, dtype=torch.int32)})), "type I32"),
    "all zero": (edit_weights(lambda v: [value.zero_() for value in v.values()]), "exactly as the base does"),
    "changed numbers": (edit_weights(lambda v: v[first(v)].add_(1.0)), "the adapter's logits are"),
    "huge header": (header(b"{}", 1 << 62), "not a safetensors file"),
    "deep header": (header(b"[" * 200_000), "not a safetensors file"),
    "endless offset": (header(b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, Infinity]}}'), "safetensors"),
    "truncated": (lambda f: os.truncate(f / WEIGHTS, (f / WEIGHTS).stat().st_size - 5), "should have .* bytes"),
    "empty": (lambda f: os.truncate(f / WEIGHTS, 0), "not a safetensors file"),
    "a probe of another base": (edit_probe(prompt_ids=[1, 2, 3]), "another base"),
    "a probe with other base logits": (edit_probe(base_logits=[0.0] * 64), "the base's logits are"),
    "a probe without numbers": (edit_probe(logits=["x"]), "the adapter's logits are inf"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_folder_is_refused_in_one_sentence_and_leaves_nothing(
    kind: str, given: Path, base: Base, blobs: FsBlobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit, said = HOSTILE[kind]
    edit(given)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    before = stored(blobs)
    with pytest.raises(UserError, match=said) as refused:
        take(given, base, blobs)
    assert "\n" not in str(refused.value)
    assert stored(blobs) == before
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_linked_folder_and_a_bad_licence_are_refused(given: Path, base: Base, blobs: FsBlobs) -> None:
    (given.parent / "link").symlink_to(given)
    with pytest.raises(UserError, match="give a PEFT folder itself"):
        take(given.parent / "link", base, blobs)
    with pytest.raises(UserError, match="no SPDX licence"):
        take(given, base, blobs, TERMS.revise(licence="whatever I like"))
    with pytest.raises(UserError, match="the label of the adapter"):
        take(given, base, blobs, TERMS.revise(label="no label"))


def test_an_adapter_of_another_base_is_refused(given: Path, blobs: FsBlobs, tmp_path: Path) -> None:
    from tests.trainers.tiny import tiny_model

    model = tiny_model()
    model.model.layers[0].self_attn.q_proj.weight.data.mul_(1.5)
    model.save_pretrained(tmp_path / "other")
    other = Base(
        id="tiny-llama",
        family="llama",
        weights_digest=blobs.put_tree(tmp_path / "other"),
        context_length=9,
        parameters=1,
    )
    with pytest.raises(UserError, match="another base"):
        take(given, other, blobs)


def test_the_trainer_can_go_on_from_an_imported_adapter(
    given: Path, base: Base, blobs: FsBlobs, tmp_path: Path
) -> None:
    from loop.core.training_set import TrainingSet
    from tests.trainers.tiny import tiny_job, tiny_rows

    adapter, rows = take(given, base, blobs).adapter, TrainingSet(label="L1", rows=tiny_rows())
    trained = TRAINER.train(tiny_job(base, adapter, rows), adapter, base, blobs, tmp_path / "s", rows)
    assert trained.adapter.parent == adapter.digest
    assert trained.adapter.owner == "ada"
