"""Attestation: each way in which a served adapter may not be the trained one is found and named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file

from loop.core.base import Base
from loop.core.errors import AttestationFailed
from loop.engines.transformers import TransformersEngine
from loop.store.blobs import FsBlobs
from tests.engines.tiny import TARGETS, answers, reference_model, request, save_adapter

ENGINE = TransformersEngine(dtype="float32", threads=1)
ROUNDED = TransformersEngine(dtype="bfloat16", threads=1)
WEIGHTS = "adapter_model.safetensors"


@pytest.mark.parametrize("engine", [ENGINE, ROUNDED])
def test_a_trained_adapter_is_attested(engine: TransformersEngine, base: Base, blobs: FsBlobs, tmp_path: Path) -> None:
    adapter = save_adapter(base, blobs, tmp_path)
    found = engine.attest(base, blobs, adapter)
    assert (found.ok, found.adapter, found.blob) == (True, adapter.digest, adapter.blob)
    assert found.modules == 3 * len(TARGETS)
    assert found.probe_difference < 1e-3 < found.base_difference


def test_a_fresh_adapter_equals_the_base(base: Base, blobs: FsBlobs, tmp_path: Path) -> None:
    adapter = save_adapter(base, blobs, tmp_path, spread=0.0, parent=None)
    assert ENGINE.attest(base, blobs, adapter).base_difference == 0.0
    (plain, served), _ = answers(ENGINE, base, blobs, [request("two?"), request("two?", adapter=adapter)])
    assert (plain.token_ids, plain.logprobs) == (served.token_ids, served.logprobs)


def test_the_difference_from_the_base_is_pefts(base: Base, blobs: FsBlobs, tmp_path: Path) -> None:
    adapter = save_adapter(base, blobs, tmp_path)
    probe = json.loads((tmp_path / "probe.json").read_text())
    model = PeftModel.from_pretrained(reference_model(base, blobs), str(tmp_path)).eval()
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([probe["prompt_ids"]])).logits[0, -1, probe["token_ids"]]
    expected = float((logits - torch.tensor(probe["base_logits"])).abs().max())
    assert ENGINE.attest(base, blobs, adapter).base_difference == pytest.approx(expected, abs=1e-3)


def test_a_small_change_is_seen_below_bfloat16_rounding(base: Base, blobs: FsBlobs, tmp_path: Path) -> None:
    adapter = save_adapter(base, blobs, tmp_path, spread=2e-4)
    assert 1e-5 < ROUNDED.attest(base, blobs, adapter).base_difference < 0.1


def test_an_adapter_that_equals_the_base_though_it_has_a_parent_is_refused(
    base: Base, blobs: FsBlobs, tmp_path: Path
) -> None:
    adapter = save_adapter(base, blobs, tmp_path, spread=0.0)
    with pytest.raises(AttestationFailed, match="answers exactly as the base"):
        ENGINE.attest(base, blobs, adapter)


def test_a_trained_adapter_that_claims_to_be_fresh_is_refused(base: Base, blobs: FsBlobs, tmp_path: Path) -> None:
    with pytest.raises(AttestationFailed, match="has no parent"):
        ENGINE.attest(base, blobs, save_adapter(base, blobs, tmp_path, parent=None))


def test_a_blob_swapped_on_disk_is_refused(base: Base, blobs: FsBlobs, tmp_path: Path) -> None:
    adapter = save_adapter(base, blobs, tmp_path / "one", seed=11)
    other = save_adapter(base, blobs, tmp_path / "two", seed=12)
    weights = blobs.get_tree(adapter.blob) / WEIGHTS
    weights.unlink()
    shutil.copyfile(blobs.get_tree(other.blob) / WEIGHTS, weights)
    with pytest.raises(AttestationFailed, match="blob is not whole"):
        ENGINE.attest(base, blobs, adapter)


def other_values(folder: Path) -> None:
    """The weights of another training under this one's probe."""
    tensors = load_file(str(folder / WEIGHTS))
    save_file({key: tensor * 1.5 for key, tensor in tensors.items()}, str(folder / WEIGHTS))


def renamed_keys(folder: Path) -> None:
    """Keys as another library writes them, which PEFT only warns of."""
    tensors = load_file(str(folder / WEIGHTS))
    save_file({key.replace("self_attn", "attention"): t for key, t in tensors.items()}, str(folder / WEIGHTS))


def missing_key(folder: Path) -> None:
    """One tensor is not in the file."""
    tensors = load_file(str(folder / WEIGHTS))
    save_file(dict(sorted(tensors.items())[1:]), str(folder / WEIGHTS))


def no_modules(folder: Path) -> None:
    """Targets that the base does not have."""
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps(config | {"target_modules": ["no_such_proj"]}))


def other_alpha(folder: Path) -> None:
    """Another scale than was trained with."""
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps(config | {"lora_alpha": 16}))


def not_numbers(folder: Path) -> None:
    """A diverged training."""
    tensors = load_file(str(folder / WEIGHTS))
    save_file({key: tensor * torch.nan for key, tensor in tensors.items()}, str(folder / WEIGHTS))


def no_probe(folder: Path) -> None:
    """The trainer left nothing to compare with."""
    (folder / "probe.json").unlink()


def cut_weights(folder: Path) -> None:
    """Half a file."""
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:500])


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (other_values, "from the trainer's"),
        (renamed_keys, r"keys do not match.*attention"),
        (missing_key, r"keys do not match.*not filled"),
        (no_modules, "no_such_proj"),
        (other_alpha, "rank and alpha"),
        (not_numbers, "not attested"),
        (no_probe, "no probe.json"),
        (cut_weights, "cannot be read"),
    ],
)
def test_a_damaged_adapter_is_refused_with_the_reason(
    edit: Callable[[Path], None], message: str, base: Base, blobs: FsBlobs, tmp_path: Path
) -> None:
    adapter = save_adapter(base, blobs, tmp_path, edit=edit)
    with pytest.raises(AttestationFailed, match=message):
        ENGINE.attest(base, blobs, adapter)


def test_an_adapter_for_another_base_is_refused(base: Base, blobs: FsBlobs, tmp_path: Path) -> None:
    adapter = save_adapter(base, blobs, tmp_path).revise(base_digest="1" * 64)
    with pytest.raises(AttestationFailed, match="trained on base 111111111111"):
        ENGINE.attest(base, blobs, adapter)


def test_nothing_is_sampled_from_an_adapter_that_is_not_attested(base: Base, blobs: FsBlobs, tmp_path: Path) -> None:
    adapter = save_adapter(base, blobs, tmp_path, edit=other_values)
    with pytest.raises(AttestationFailed):
        answers(ENGINE, base, blobs, [request("two?", adapter=adapter)])
