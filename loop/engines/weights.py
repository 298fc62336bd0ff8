"""Loaded models of this process, by content: one resident base, and a bounded set of adapter copies."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from loop.core.base import Base
from loop.core.errors import UserError
from loop.core.pair import Adapter, Message
from loop.engines.attest import attested_copy
from loop.engines.forward import Forward, ModuleForward, Prefix
from loop.engines.llama import LlamaForward, fits
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
    """The resident base: never merged into; ``ends`` are the tokens that end a reply."""

    folder: Path
    tokenizer: Any
    model: torch.nn.Module
    served: Served
    ends: frozenset[int]
    copies: OrderedDict[str, Served] = field(default_factory=OrderedDict)

    def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Token ids of the conversation up to and with the generation prompt."""
        return self._tokens(messages, generation_prompt=True)

    def lead(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """Token ids of what stands before the last user message: the part that other requests share.

        In a first request these are the system message and the exemplars. It follows from
        the request alone, so that a request is computed alike whatever it runs beside.
        """
        users = [place for place, message in enumerate(messages) if message.role == "user"]
        before = messages[: users[-1]] if users else messages
        return self._tokens(before, generation_prompt=False) if before else ()

    def _tokens(self, messages: Sequence[Message], generation_prompt: bool) -> tuple[int, ...]:
        plain = [{"role": message.role, "content": message.content} for message in messages]
        text = self.tokenizer.apply_chat_template(plain, add_generation_prompt=generation_prompt, tokenize=False)
        # Text first: the template already holds every special token, so none may be added.
        return tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])


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
        tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
        _loaded[key] = LoadedBase(folder, tokenizer, model, Served(make_forward(model)), _ends(folder, tokenizer))
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
            loaded.copies.popitem(last=False)
        model, attestation = attested_copy(base, blobs, adapter, loaded.model, loaded.folder)
        found = Served(make_forward(model), attestation)
    loaded.copies[adapter.digest] = found
    return found


def make_forward(model: torch.nn.Module) -> Forward:
    """The fastest forward that fits the model."""
    return LlamaForward(model) if fits(model) else ModuleForward(model)


def _ends(folder: Path, tokenizer: Any) -> frozenset[int]:
    """End tokens by the tokenizer and the generation settings; a model may have several."""
    file = folder / "generation_config.json"
    named = json.loads(file.read_text()).get("eos_token_id") if file.is_file() else None
    listed = named if isinstance(named, list) else [named]
    return frozenset(int(end) for end in [*listed, tokenizer.eos_token_id] if end is not None)
