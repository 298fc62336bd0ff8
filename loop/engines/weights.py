"""Loaded models of this process, by content: one resident base, and a bounded set of adapter copies."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from loop.core.base import Base
from loop.core.errors import UserError
from loop.core.pair import Adapter
from loop.engines.attest import attested_copy
from loop.engines.forward import Forward, ModuleForward, Prefix
from loop.engines.kept import Kept
from loop.engines.llama import LlamaForward, fits
from loop.engines.tokens import Tokens, load_tokens
from loop.ports import Attestation, Blobs

PREFIX_BYTES = 512 << 20


@dataclass
class Served:
    """A model that can be decoded, with the prefixes it has computed (least recently used last out)."""

    forward: Forward
    attestation: Attestation | None = None
    prefixes: OrderedDict[tuple[int, ...], Prefix] = field(default_factory=OrderedDict)

    def prefix(self, tokens: tuple[int, ...]) -> Prefix:
        """The tokens' keys and values; always computed in one pass of one shape, so a hit changes nothing."""
        found = self.prefixes.pop(tokens, None)
        if found is None:
            found = self.forward.prefix(tokens)
        self.prefixes[tokens] = found
        while len(self.prefixes) > 1 and sum(p.cache.nbytes for p in self.prefixes.values()) > PREFIX_BYTES:
            self.prefixes.popitem(last=False)
        return found


@dataclass
class LoadedBase:
    """The resident base: never merged into."""

    folder: Path
    tokens: Tokens
    model: torch.nn.Module
    served: Served
    copies: OrderedDict[str, Served] = field(default_factory=OrderedDict)
    kept: Kept = field(default_factory=Kept)


_loaded: dict[tuple[str, torch.dtype], LoadedBase] = {}


def load_base(base: Base, blobs: Blobs, dtype: torch.dtype) -> LoadedBase:
    """The base in this process, loaded on first use from its checked blob tree.

    Raises TornBlob when the stored folder is missing or changed, UserError when it is
    whole but is not a model.
    """
    key = (base.weights_digest, dtype)
    if key not in _loaded:
        folder = blobs.get_tree(base.weights_digest)
        model = load_module(folder, dtype)
        _loaded[key] = LoadedBase(folder, load_tokens(base, blobs), model, Served(make_forward(model)))
    return _loaded[key]


def load_module(folder: Path, dtype: torch.dtype) -> torch.nn.Module:
    """A causal language model in evaluation mode from a local folder; UserError when there is none."""
    try:
        model = AutoModelForCausalLM.from_pretrained(
            str(folder), dtype=dtype, local_files_only=True, use_safetensors=True
        )
    except (OSError, ValueError, KeyError) as error:
        raise UserError(
            f"{folder} is not a causal language model that transformers can load ({error}): run 'base prepare' again."
        ) from error
    module: torch.nn.Module = model.eval().requires_grad_(False)
    return module


def serve(loaded: LoadedBase, base: Base, blobs: Blobs, adapter: Adapter | None, copies: int) -> Served:
    """What answers for the adapter: the base itself, or an attested copy under the adapter's digest.

    At most ``copies`` copies are kept. Raises AttestationFailed.
    """
    if adapter is None:
        return loaded.served
    found = loaded.copies.pop(adapter.digest, None)
    if found is None:
        while len(loaded.copies) >= max(copies, 1):
            gone, _ = loaded.copies.popitem(last=False)
            loaded.kept.drop(gone)
        model, attestation = attested_copy(base, blobs, adapter, loaded.model, loaded.folder)
        found = Served(make_forward(model), attestation)
    loaded.copies[adapter.digest] = found
    return found


def make_forward(model: torch.nn.Module) -> Forward:
    """The fastest forward that fits the model."""
    return LlamaForward(model) if fits(model) else ModuleForward(model)
