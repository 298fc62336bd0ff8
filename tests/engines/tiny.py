"""Small real models with random weights, a byte-level tokenizer, and PEFT adapters made by PEFT alone."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model, get_peft_model_state_dict
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from loop.core.base import Base
from loop.core.episode import Completion, Request
from loop.core.pair import Adapter, Message, Sampling
from loop.engines.prepare import prepare_base
from loop.ports import Blobs, Engine, EngineReport

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SHAPE: dict[str, Any] = {
    "vocab_size": 259,
    "hidden_size": 96,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    # Wide enough that the next token is not a coin toss among all.
    "initializer_range": 0.2,
    "eos_token_id": 2,
    "pad_token_id": 2,
    "bos_token_id": 1,
}
TARGETS = ("q_proj", "v_proj", "o_proj", "up_proj", "down_proj")


def save_tiny(folder: Path, kind: str = "llama", seed: int = 0, **shape: int) -> Path:
    """A random model (``llama``, or ``qwen2``, which has biases) saved with its tokenizer; ``shape`` changes SHAPE."""
    torch.manual_seed(seed)
    made = {
        "llama": lambda: LlamaForCausalLM(LlamaConfig(tie_word_embeddings=True, **(SHAPE | shape))),
        "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(tie_word_embeddings=True, **(SHAPE | shape))),
    }
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate([*SPECIAL, *letters])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=SPECIAL[2], pad_token=SPECIAL[2], unk_token=SPECIAL[0]
    )
    fast.add_special_tokens({"additional_special_tokens": SPECIAL})
    fast.chat_template = TEMPLATE
    made[kind]().save_pretrained(str(folder))
    fast.save_pretrained(str(folder))
    return folder


def tiny_base(folder: Path, blobs: Blobs, kind: str = "llama", **shape: int) -> Base:
    """A prepared tiny base; ``folder`` also holds the cache of preparing."""
    return prepare_base(str(save_tiny(folder / kind, kind, **shape)), blobs, "", folder / "cache")


def reference_model(base: Base, blobs: Blobs, dtype: torch.dtype = torch.float32) -> Any:
    """The base as plain transformers loads it."""
    return AutoModelForCausalLM.from_pretrained(str(blobs.get_tree(base.weights_digest)), dtype=dtype).eval()


def save_adapter(
    base: Base,
    blobs: Blobs,
    folder: Path,
    *,
    spread: float = 0.05,
    parent: str | None = "0" * 64,
    edit: Callable[[Path], None] = lambda folder: None,
    seed: int = 0,
) -> Adapter:
    """A LoRA adapter as PEFT writes it, with B drawn at ``spread`` (0: fresh) and a probe by plain PEFT.

    ``edit`` may damage the folder before it is stored.
    """
    torch.manual_seed(seed)
    model = reference_model(base, blobs)
    prompt, tokens = list(range(5, 29)), list(range(64))

    def logits(module: Any) -> list[float]:
        with torch.inference_mode():
            found: list[float] = module(input_ids=torch.tensor([prompt])).logits[0, -1, tokens].tolist()
        return found

    base_logits = logits(model)
    config = LoraConfig(r=4, lora_alpha=8, target_modules=list(TARGETS), task_type="CAUSAL_LM")
    peft = get_peft_model(model, config).eval()
    for name, parameter in peft.named_parameters():
        if "lora_B" in name:
            parameter.data.copy_(torch.randn(parameter.shape) * spread)
    peft.save_pretrained(str(folder))
    probe = {"prompt_ids": prompt, "token_ids": tokens, "logits": logits(peft), "base_logits": base_logits}
    (folder / "probe.json").write_text(json.dumps(probe | {"dtype": "float32"}))
    edit(folder)
    return Adapter(
        label="L1",
        role="tools",
        base_digest=base.weights_digest,
        rank=4,
        alpha=8,
        targets=TARGETS,
        stored_values=sum(tensor.numel() for tensor in get_peft_model_state_dict(peft).values()),
        blob=blobs.put_tree(folder),
        parent=parent,
    )


def request(
    text: str, *, adapter: Adapter | None = None, seed: int = 0, choices: tuple[str, ...] = (), **sampling: Any
) -> Request:
    """A request with a short few-shot beginning that all of these share."""
    messages = (
        Message(role="system", content="Answer briefly."),
        Message(role="user", content="one?"),
        Message(role="assistant", content="1"),
        Message(role="user", content=text),
    )
    options = {"max_tokens": 12} | sampling
    return Request(messages=messages, adapter=adapter, sampling=Sampling(**options), seed=seed, choices=choices)


def answers(
    engine: Engine, base: Base, blobs: Blobs, requests: Sequence[Request]
) -> tuple[list[Completion], EngineReport]:
    """The completions in the order of the requests, and the call's report."""
    found: dict[int, Completion] = {}

    def keep(key: int, completion: Completion) -> Sequence[tuple[int, Request]]:
        assert key not in found, "a request completes once"
        found[key] = completion
        return ()

    report = engine.generate(base, blobs, list(enumerate(requests)), keep)
    return [found[key] for key in range(len(requests))], report


@dataclass
class Ears:
    """What was told of each request, until ``enough`` says so."""

    enough: Callable[[int, str], bool] = lambda key, text: False
    told: dict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    found: dict[int, Completion] = field(default_factory=dict)

    def hear(self, key: int, text: str) -> bool:
        self.told[key].append(text)
        return not self.enough(key, text)

    def follow(self, key: int, completion: Completion) -> Sequence[tuple[int, Request]]:
        self.found[key] = completion
        return ()
