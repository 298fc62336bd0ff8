"""Load an adapter and prove that what will be served is what was trained.

PEFT warns where keys do not match and serves a random adapter (peft#1678, #2115); here
every doubt raises. The check is made twice: in float32 with the adapter attached, where a
small change shows above rounding, and on the merged copy that is served.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from peft import LoraConfig, PeftConfig, PeftModel, get_peft_model_state_dict
from peft.tuners.tuners_utils import BaseTunerLayer
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from loop.core.base import Base
from loop.core.errors import AttestationFailed, TornBlob
from loop.core.pair import Adapter
from loop.ports import Attestation, Blobs

# Largest allowed |difference| of a probe logit from the trainer's, in logits; the trainer
# names the type it probed in. Float32 passes by unlike kernels differ by about 1e-4 here.
TOLERANCE = {torch.float32: 5e-3, torch.bfloat16: 1.0, torch.float16: 0.25}
# The adapter attached and absent run through equal kernels, so a zero adapter changes nothing at all.
FRESH_TOLERANCE = 1e-5
# How much worse than the bare base's own rounding the served copy may be.
ROUNDING_FACTOR = 4.0
ROUNDING_SLACK = 1e-3


class Probe(NamedTuple):
    """The trainer's own figures: logits of some tokens after a prompt, with and without the adapter."""

    prompt: Tensor
    tokens: Tensor
    logits: Tensor
    base_logits: Tensor
    dtype: torch.dtype


class Differences(NamedTuple):
    """Largest absolute differences between probe logits.

    ``trained``: the attached adapter and the trainer's; ``base``: the base and the
    trainer's; ``from_base``: the adapter and the base; ``served``: the merged copy and the
    attached adapter; ``rounding``: the resident base and the float32 base.
    """

    trained: float
    base: float
    from_base: float
    served: float
    rounding: float


def attested_copy(
    base: Base, blobs: Blobs, adapter: Adapter, resident: torch.nn.Module, folder: Path
) -> tuple[torch.nn.Module, Attestation]:
    """A merged copy of the base in the resident's dtype, and what was checked.

    Merged in float32 and then cast; tensors that the adapter leaves alone are shared with
    ``resident``, which is never changed. ``folder`` is the base's checked blob tree.
    Raises AttestationFailed naming the adapter and what does not fit.
    """
    tree = adapter_folder(base, blobs, adapter)
    probe = read_probe(adapter, tree)
    model = AutoModelForCausalLM.from_pretrained(
        str(folder), dtype=torch.float32, local_files_only=True, use_safetensors=True
    ).eval()
    base_logits = _logits(model, probe)
    attached = _attach(adapter, tree, model)
    modules = sum(isinstance(module, BaseTunerLayer) for module in attached.modules())
    exact_logits = _logits(attached, probe)
    dtype = next(resident.parameters()).dtype
    merged = attached.merge_and_unload(safe_merge=True).to(dtype).requires_grad_(False)
    share_equal_tensors(merged, resident)
    found = Differences(
        trained=_distance(exact_logits, probe.logits),
        base=_distance(base_logits, probe.base_logits),
        from_base=_distance(exact_logits, base_logits),
        served=_distance(_logits(merged, probe), exact_logits),
        rounding=_distance(_logits(resident, probe), base_logits),
    )
    _judge(adapter, probe, modules, found)
    return merged, Attestation(
        adapter=adapter.digest,
        blob=adapter.blob,
        modules=modules,
        probe_difference=found.trained,
        base_difference=found.from_base,
        ok=True,
        text=f"{modules} modules bound; probe logits within {found.trained:.2g} of the trainer's, the served "
        f"{str(dtype).removeprefix('torch.')} copy within {found.served:.2g}; {found.from_base:.2g} from the base",
    )


def adapter_folder(base: Base, blobs: Blobs, adapter: Adapter) -> Path:
    """The adapter's checked folder; AttestationFailed when it is not whole or belongs to another base."""
    try:
        tree = blobs.get_tree(adapter.blob)
    except TornBlob as error:
        raise failed(adapter, f"its blob is not whole ({error})") from error
    if adapter.base_digest != base.weights_digest:
        raise failed(adapter, f"it was trained on base {adapter.base_digest[:12]}, not {base.weights_digest[:12]}")
    return tree


def share_equal_tensors(copy: torch.nn.Module, resident: torch.nn.Module) -> None:
    """Let the copy use the resident's tensor wherever the two are equal, to save memory."""
    kept = dict(resident.named_parameters(remove_duplicate=False))
    for name, parameter in list(copy.named_parameters(remove_duplicate=False)):
        owner, _, last = name.rpartition(".")
        twin = kept.get(name)
        if twin is not None and twin.shape == parameter.shape and torch.equal(twin, parameter):
            setattr(copy.get_submodule(owner), last, twin)


def _judge(adapter: Adapter, probe: Probe, modules: int, found: Differences) -> None:
    allowed = TOLERANCE[probe.dtype]
    if modules == 0:
        raise failed(adapter, "it binds to no module")
    if not found.base <= allowed:
        raise failed(adapter, f"the base's probe logits are {found.base:.3g} from those its trainer saw")
    if not found.trained <= allowed:
        raise failed(adapter, f"its probe logits are {found.trained:.3g} from the trainer's (allowed {allowed:g})")
    if not found.served <= ROUNDING_FACTOR * found.rounding + ROUNDING_SLACK:
        raise failed(
            adapter,
            f"its merged copy is {found.served:.3g} from the adapter itself where the base's rounding is "
            f"{found.rounding:.3g}",
        )
    if adapter.parent is not None and found.from_base <= FRESH_TOLERANCE:
        raise failed(adapter, "it has a parent but answers exactly as the base does")
    if adapter.parent is None and found.from_base > FRESH_TOLERANCE:
        raise failed(adapter, f"it has no parent but its logits are {found.from_base:.3g} from the base's")


def _attach(adapter: Adapter, tree: Path, model: torch.nn.Module) -> Any:
    """Attach by PEFT and check that file and model agree on every key, shape and value."""
    stored, config = read_adapter(adapter, tree)
    try:
        attached = PeftModel.from_pretrained(model, str(tree), config=config, is_trainable=False)
    except (RuntimeError, ValueError, KeyError) as error:
        raise failed(adapter, f"PEFT cannot attach it ({error})") from error
    bound = get_peft_model_state_dict(attached, save_embedding_layers=False)
    unbound, unfilled = sorted(set(stored) - set(bound)), sorted(set(bound) - set(stored))
    if unbound or unfilled:
        raise failed(
            adapter, f"keys do not match: {unbound[:3]} of the file bind to nothing, {unfilled[:3]} are not filled"
        )
    changed = [key for key in sorted(stored) if not torch.equal(stored[key].float(), bound[key].float())]
    if changed:
        raise failed(adapter, f"loaded values differ from the file's: {changed[:3]}")
    check_values(adapter, stored)
    return attached.eval()


def read_adapter(adapter: Adapter, tree: Path) -> tuple[dict[str, Tensor], Any]:
    """The tensors by key and PEFT's configuration; AttestationFailed when they are not what the record says."""
    try:
        stored: dict[str, Tensor] = load_file(str(tree / "adapter_model.safetensors"))
        config = PeftConfig.from_pretrained(str(tree))
    except (OSError, SafetensorError, ValueError, TypeError) as error:
        raise failed(adapter, f"its folder cannot be read ({error})") from error
    _check_config(adapter, config)
    return stored, config


def check_values(adapter: Adapter, stored: dict[str, Tensor]) -> None:
    """AttestationFailed unless as many numbers are stored as the record says."""
    values = sum(tensor.numel() for tensor in stored.values())
    if values != adapter.stored_values:
        raise failed(adapter, f"it stores {values} values but its record says {adapter.stored_values}")


def _check_config(adapter: Adapter, config: Any) -> None:
    if not isinstance(config, LoraConfig):
        raise failed(adapter, f"it is {type(config).__name__}, not LoRA")
    found, expected = (config.r, float(config.lora_alpha)), (adapter.rank, float(adapter.alpha))
    if found != expected:
        raise failed(adapter, f"rank and alpha are {found} in its folder and {expected} in its record")


def read_probe(adapter: Adapter, tree: Path) -> Probe:
    """The trainer's figures in an adapter's folder; raises AttestationFailed when they are not there."""
    try:
        fields = json.loads((tree / "probe.json").read_text())
        probe = Probe(
            prompt=torch.tensor([fields["prompt_ids"]]),
            tokens=torch.tensor(fields["token_ids"]),
            logits=torch.tensor(fields["logits"], dtype=torch.float32),
            base_logits=torch.tensor(fields["base_logits"], dtype=torch.float32),
            dtype=getattr(torch, fields.get("dtype", "float32")),
        )
    except FileNotFoundError as error:
        raise failed(adapter, "its folder has no probe.json, so nothing shows what the trainer saw") from error
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise failed(adapter, f"its probe.json cannot be read ({error})") from error
    if not probe.tokens.shape == probe.logits.shape == probe.base_logits.shape or probe.tokens.numel() == 0:
        raise failed(adapter, "its probe.json holds lists of unequal length")
    return probe


def _logits(model: torch.nn.Module, probe: Probe) -> Tensor:
    """Logits of the probe's tokens after its prompt, float32 [tokens]."""
    with torch.inference_mode():
        logits: Tensor = model(input_ids=probe.prompt, logits_to_keep=1).logits[0, -1]
    return logits[probe.tokens].float()


def _distance(left: Tensor, right: Tensor) -> float:
    return float((left - right).abs().max())


def failed(adapter: Adapter, reason: str) -> AttestationFailed:
    """The one sentence in which an adapter is refused."""
    return AttestationFailed(
        f"adapter {adapter.label} ({adapter.short}) is not attested: {reason}; "
        "restore its blob or train it again, nothing was sampled from it."
    )
