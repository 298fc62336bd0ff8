"""Adapters as PEFT folders: they load in plain PEFT, and nothing binds by accident."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file
from torch import Tensor
from transformers import LlamaForCausalLM

from loop.core.base import Base
from loop.core.errors import UserError
from loop.core.pair import Adapter
from loop.core.training_set import TrainingSet
from loop.store.blobs import FsBlobs
from loop.trainers.adapters import attach, bind, redraw, store_adapter
from loop.trainers.profiles import load_profile
from tests.trainers.tiny import PROFILE, TRAINER, tiny_base, tiny_job, tiny_model, tiny_rows


@pytest.fixture
def blobs(tmp_path: Path) -> FsBlobs:
    return FsBlobs(url=str(tmp_path / "blobs"))


@pytest.fixture
def base(blobs: FsBlobs, tmp_path: Path) -> Base:
    return tiny_base(blobs, tmp_path / "base")


def fresh(base: Base, blobs: FsBlobs, seed: int = 3) -> Adapter:
    return TRAINER.fresh(base, blobs, "L1", "tools", seed, PROFILE)


def probe_of(model: Any, folder: Path) -> tuple[Tensor, dict[str, Any]]:
    probe = json.loads((folder / "probe.json").read_text())
    with torch.no_grad():
        logits = model(torch.tensor([probe["prompt_ids"]])).logits[0, -1]
    return logits[probe["token_ids"]], probe


def test_a_fresh_adapter_loads_in_plain_peft_and_answers_as_the_base(base: Base, blobs: FsBlobs) -> None:
    folder = blobs.get_tree(fresh(base, blobs).blob)
    plain = LlamaForCausalLM.from_pretrained(blobs.get_tree(base.weights_digest))
    before, probe = probe_of(plain, folder)
    after, _ = probe_of(PeftModel.from_pretrained(plain, str(folder)), folder)
    torch.testing.assert_close(before, torch.tensor(probe["base_logits"]))
    torch.testing.assert_close(after, torch.tensor(probe["logits"]))
    assert probe["logits"] == probe["base_logits"]
    assert len(probe["token_ids"]) == len(set(probe["token_ids"])) == 64


def test_a_trained_adapter_loads_in_plain_peft_and_gives_its_probe_logits(
    base: Base, blobs: FsBlobs, tmp_path: Path
) -> None:
    parent, rows = fresh(base, blobs), TrainingSet(label="L1", rows=tiny_rows())
    adapter = TRAINER.train(tiny_job(base, parent, rows), parent, base, blobs, tmp_path / "s", rows).adapter
    folder = blobs.get_tree(adapter.blob)
    plain = LlamaForCausalLM.from_pretrained(blobs.get_tree(base.weights_digest))
    logits, probe = probe_of(PeftModel.from_pretrained(plain, str(folder)), folder)
    torch.testing.assert_close(logits, torch.tensor(probe["logits"]))
    assert max(abs(a - b) for a, b in zip(probe["logits"], probe["base_logits"], strict=True)) > 1e-2
    assert adapter.parent == parent.digest


def test_the_folder_is_pefts_own_and_holds_no_path_of_this_machine(base: Base, blobs: FsBlobs, tmp_path: Path) -> None:
    folder = blobs.get_tree(fresh(base, blobs).blob)
    assert sorted(file.name for file in folder.iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
        "probe.json",
    ]
    config = json.loads((folder / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == "tiny-llama"
    assert str(tmp_path) not in (folder / "adapter_config.json").read_text()


def test_stored_values_are_those_counted_by_hand(base: Base, blobs: FsBlobs) -> None:
    adapter = fresh(base, blobs)
    # A layer: q 64->64, v 64->32, down 128->64; each adapts rank x (in + out); two layers.
    assert adapter.stored_values == 2 * 4 * ((64 + 64) + (64 + 32) + (128 + 64))
    tensors = load_file(blobs.get_tree(adapter.blob) / "adapter_model.safetensors")
    assert sum(tensor.numel() for tensor in tensors.values()) == adapter.stored_values
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float32}


def test_the_same_seed_gives_the_same_adapter_and_another_seed_another(base: Base, blobs: FsBlobs) -> None:
    assert fresh(base, blobs) == fresh(base, blobs)
    assert fresh(base, blobs).blob != fresh(base, blobs, seed=4).blob


def test_keys_or_shapes_that_do_not_bind_are_an_error_naming_them() -> None:
    peft_model = attach(tiny_model(), PROFILE)
    redraw(peft_model, 1)
    values = {key: torch.zeros(value.shape) for key, value in _parameters(peft_model).items()}
    first, *rest = values
    with pytest.raises(ValueError, match=f"1 are missing .*{first}"):
        bind(peft_model, {key: values[key] for key in rest})
    with pytest.raises(ValueError, match=r"1 bind to nothing \['stranger'\]"):
        bind(peft_model, values | {"stranger": torch.zeros(1)})
    with pytest.raises(ValueError, match=rf"{first}: expected .* found \(3,\)"):
        bind(peft_model, values | {first: torch.zeros(3)})


def test_training_refuses_a_parent_whose_keys_do_not_bind(base: Base, blobs: FsBlobs, tmp_path: Path) -> None:
    narrow = PROFILE.revise(targets=("q_proj",))
    values = {key: torch.zeros(value.shape) for key, value in _parameters(attach(tiny_model(), narrow)).items()}
    blob = store_adapter(base, blobs, narrow, values, torch.device("cpu"))
    parent = fresh(base, blobs).revise(blob=blob)
    rows = TrainingSet(label="L1", rows=tiny_rows())
    with pytest.raises(ValueError, match="are missing"):
        TRAINER.train(tiny_job(base, parent, rows), parent, base, blobs, tmp_path / "s", rows)


def test_targets_that_the_base_does_not_have_are_named_with_those_it_has() -> None:
    with pytest.raises(UserError, match=r"q_a_proj, .*does not have; its linear modules are down_proj, .*v_proj"):
        attach(tiny_model(), load_profile("macaron-venti"))
    with pytest.raises(UserError, match=r"targets experts\.gate_up_proj, experts\.down_proj, which"):
        attach(tiny_model(), load_profile("macaron-tall"))


def _parameters(peft_model: Any) -> dict[str, Tensor]:
    return {name.replace(".default", ""): value for name, value in peft_model.named_parameters() if "lora_" in name}
