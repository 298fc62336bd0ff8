"""LoRA adapters as PEFT modules and as PEFT folders: made, attached with every key checked, saved."""

from __future__ import annotations

import hashlib
import json
import math
import random
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from loop.core.base import Base
from loop.core.errors import UserError
from loop.core.noun import seed_from
from loop.core.pair import Adapter
from loop.core.training_set import TrainingProfile
from loop.ports import Blobs

WEIGHTS_FILE = "adapter_model.safetensors"
CONFIG_FILE = "adapter_config.json"
PROBE_FILE = "probe.json"
PROBE_PROMPT_TOKENS = 24
PROBE_LOGITS = 64

Values = dict[str, Tensor]


def load_model(base: Base, blobs: Blobs, dtype: torch.dtype, device: torch.device) -> Any:
    """The base from its checked blob tree, frozen, in ``dtype``; raises TornBlob.

    On a CPU attention is computed plainly: at these lengths its backward pass is faster
    than that of the fused kernel (measured: 2.0 s against 2.3 s a step of 8 rows).
    """
    attention = "eager" if device.type == "cpu" else "sdpa"
    folder = blobs.get_tree(base.weights_digest)
    model = AutoModelForCausalLM.from_pretrained(
        str(folder), dtype=dtype, attn_implementation=attention, local_files_only=True, use_safetensors=True
    )
    return model.to(device).requires_grad_(False)


def attach(model: Any, profile: TrainingProfile) -> Any:
    """Attach an adapter of the profile's shape by PEFT, in the model's dtype; returns the PeftModel.

    Raises UserError naming the targets that the base does not have.
    """
    check_targets(model, profile)
    config = LoraConfig(
        r=profile.rank,
        lora_alpha=profile.alpha,
        lora_dropout=profile.dropout,
        target_modules=list(profile.targets),
        target_parameters=list(profile.expert_parameters) or None,
        task_type="CAUSAL_LM",
    )
    return get_peft_model(model, config, autocast_adapter_dtype=False)


def check_targets(model: Any, profile: TrainingProfile) -> None:
    """UserError unless each target names a linear module of the base, each expert parameter a parameter."""
    linears = {name for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    parameters = {name for name, _ in model.named_parameters()}
    absent = [target for target in profile.targets if not _names(target, linears)]
    absent += [target for target in profile.expert_parameters if not _names(target, parameters)]
    if absent:
        known = ", ".join(sorted({name.rpartition(".")[2] for name in linears}))
        raise UserError(
            f"profile {profile.name} targets {', '.join(absent)}, which this base does not have; its linear modules "
            f"are {known}: correct the profile's targets or use another profile."
        )


def redraw(peft_model: Any, seed: int) -> None:
    """Draw A as PEFT does (Kaiming uniform, a = sqrt 5) but from ``seed``, and set B to 0."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in adapter_parameters(peft_model).items():
        fresh = torch.zeros(parameter.shape, dtype=torch.float32)
        if "lora_A" in name:
            torch.nn.init.kaiming_uniform_(fresh, a=math.sqrt(5), generator=generator)
        parameter.data.copy_(fresh)


def adapter_parameters(peft_model: Any) -> dict[str, torch.nn.Parameter]:
    """The adapter's own parameters under PEFT's stored keys, sorted by key."""
    by_pointer = {id(parameter): parameter for parameter in peft_model.parameters()}
    named = {name: parameter for name, parameter in peft_model.named_parameters() if "lora_" in name}
    stored = get_peft_model_state_dict(peft_model, state_dict=named, save_embedding_layers=False)
    return {key: by_pointer[id(stored[key])] for key in sorted(stored)}


def read_values(adapter: Adapter, blobs: Blobs) -> Values:
    """The tensors of a stored adapter, float32 on the CPU; ValueError when the file is unreadable."""
    file = blobs.get_tree(adapter.blob) / WEIGHTS_FILE
    try:
        return {key: value.float() for key, value in sorted(load_file(str(file)).items())}
    except (OSError, SafetensorError) as error:
        raise ValueError(
            f"adapter {adapter.label} ({adapter.short}): {WEIGHTS_FILE} cannot be read: {error}"
        ) from error


def bind(peft_model: Any, values: Mapping[str, Tensor]) -> None:
    """Copy ``values`` into the attached adapter; ValueError unless every key and shape fits.

    PEFT's own loader only warns and leaves a random adapter where keys do not match.
    """
    parameters = adapter_parameters(peft_model)
    missing, unknown = sorted(set(parameters) - set(values)), sorted(set(values) - set(parameters))
    if missing or unknown:
        raise ValueError(
            f"adapter keys do not match the base: {len(missing)} are missing {missing[:3]}, "
            f"{len(unknown)} bind to nothing {unknown[:3]}"
        )
    shapes = [key for key in parameters if parameters[key].shape != values[key].shape]
    if shapes:
        key = shapes[0]
        raise ValueError(
            f"{len(shapes)} adapter tensors have another shape, first {key}: expected "
            f"{tuple(parameters[key].shape)}, found {tuple(values[key].shape)}"
        )
    for key, parameter in parameters.items():
        parameter.data.copy_(values[key])


def store_adapter(
    base: Base, blobs: Blobs, profile: TrainingProfile, values: Mapping[str, Tensor], device: torch.device
) -> str:
    """Store float32 ``values`` as a PEFT folder with its probe and return the blob digest."""
    peft_model, probe = probed(base, blobs, profile, values, device)
    return keep(peft_model, probe, base, blobs)


def probed(
    base: Base, blobs: Blobs, profile: TrainingProfile, values: Mapping[str, Tensor], device: torch.device
) -> tuple[Any, dict[str, Any]]:
    """An independent float32 model that ``values`` are bound to, and its probe; see ``attach`` and ``bind``."""
    model = load_model(base, blobs, torch.float32, device).eval()
    prompt, tokens = probe_ids(base, model.config.vocab_size)
    base_logits = _probe_logits(model, prompt, tokens)
    peft_model = attach(model, profile).eval()
    bind(peft_model, values)
    return peft_model, {
        "prompt_ids": prompt,
        "token_ids": tokens,
        "logits": _probe_logits(peft_model, prompt, tokens),
        "base_logits": base_logits,
        "dtype": "float32",
    }


def keep(peft_model: Any, probe: Mapping[str, Any], base: Base, blobs: Blobs) -> str:
    """Store an attached adapter as a PEFT folder with its probe and return the blob digest."""
    with tempfile.TemporaryDirectory(prefix="adapter-") as name:
        folder = Path(name)
        peft_model.save_pretrained(str(folder), safe_serialization=True, save_embedding_layers=False)
        for stray in sorted(folder.iterdir()):
            if stray.name not in {WEIGHTS_FILE, CONFIG_FILE}:
                stray.unlink()
        _normalise_config(folder / CONFIG_FILE, base)
        (folder / PROBE_FILE).write_text(json.dumps(probe, sort_keys=True) + "\n", encoding="utf-8")
        return blobs.put_tree(folder)


def probe_ids(base: Base, vocabulary: int) -> tuple[list[int], list[int]]:
    """The fixed probe of a base: a prompt of 24 token ids and the 64 ids whose logits are kept.

    Drawn from the base's digest, so that they need no tokenizer and no training data.
    """
    draw = random.Random(seed_from("probe", base.weights_digest))
    prompt = [draw.randrange(vocabulary) for _ in range(PROBE_PROMPT_TOKENS)]
    return prompt, draw.sample(range(vocabulary), min(PROBE_LOGITS, vocabulary))


def frozen_digest(peft_model: Any) -> str:
    """SHA-256 over the names and bytes of every parameter that is not the adapter's."""
    digest = hashlib.sha256()
    for name, parameter in sorted(peft_model.named_parameters()):
        if "lora_" in name:
            continue
        digest.update(name.encode())
        digest.update(parameter.detach().cpu().contiguous().view(torch.uint8).numpy())
    return digest.hexdigest()


def _names(target: str, paths: set[str]) -> bool:
    return any(path == target or path.endswith("." + target) for path in paths)


def _probe_logits(model: Any, prompt: list[int], tokens: list[int]) -> list[float]:
    device = next(model.parameters()).device
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([prompt], device=device), logits_to_keep=1).logits[0, -1]
    return [float(value) for value in logits[torch.tensor(tokens, device=device)].float().cpu()]


def _normalise_config(file: Path, base: Base) -> None:
    """Name the base by its id instead of this machine's path, and order what PEFT keeps as sets."""
    fields = json.loads(file.read_text(encoding="utf-8"))
    fields["base_model_name_or_path"] = base.id
    for name in ("target_modules", "target_parameters"):
        fields[name] = sorted(fields[name]) if isinstance(fields[name], list) else fields[name]
    file.write_text(json.dumps(fields, indent=2, sort_keys=True) + "\n", encoding="utf-8")
