"""A completions server like vLLM's over plain transformers and PEFT, with the faults that others met as switches.

It shares the draw of a token with the engine under test, so that equal seeds are equal
luck; prompts, weights, adapters and log-probabilities are its own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import torch
from peft import PeftModel
from transformers import AutoTokenizer

from loop.core.base import Base
from loop.engines.sampling import draw, uniforms
from loop.ports import Blobs
from tests.engines.tiny import reference_model
from tests.judges.endpoint import Said

NAME = "tiny"


@dataclass
class TinyServer:
    """Answers ``(number, path, body)``; each field below the lock is a fault, off by default."""

    base: Base
    blobs: Blobs
    lock: Lock = field(default_factory=Lock)
    models: dict[str, Any] = field(default_factory=dict)
    loads: list[str] = field(default_factory=list)
    unloads: list[str] = field(default_factory=list)
    echoes: bool = True
    follows: bool = True
    tells_ids: bool = True
    holds_choices: bool = True
    loads_adapters: bool = True
    ignores_adapters: bool = False
    keeps_first_adapter: bool = False
    gives_base_last_adapter: bool = False
    answers_as: str = ""
    adds_tokens: int = 0
    forced_text: str = ""
    drip: float = 0.0
    script: dict[int, Said] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.models[NAME] = reference_model(self.base, self.blobs)
        folder = self.blobs.get_tree(self.base.weights_digest)
        self.tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
        self.completions = 0

    def __call__(self, number: int, path: str, body: dict[str, Any]) -> Said:
        with self.lock:
            if path == "/v1/models":
                return _json({"object": "list", "data": [{"id": name} for name in self.models]})
            if path == "/v1/load_lora_adapter":
                return self._load(body["lora_name"], body["lora_path"])
            if path == "/v1/unload_lora_adapter":
                self.unloads.append(body["lora_name"])
                return Said(status=200 if self.models.pop(body["lora_name"], None) is not None else 404)
            assert path == "/v1/completions"
            self.completions += 1
            if self.completions in self.script:
                return self.script[self.completions]
            if body["model"] not in self.models:
                return Said(status=404)
            return self._streamed(self._complete(body)) if body.get("stream") else _json(self._complete(body))

    def _load(self, name: str, path: str) -> Said:
        if not self.loads_adapters:
            return Said(status=404)
        if name in self.models:
            return Said(status=400)
        self.loads.append(name)
        plain = reference_model(self.base, self.blobs)
        earlier = [model for other, model in self.models.items() if other != NAME]
        if self.ignores_adapters:
            self.models[name] = plain
        elif self.keeps_first_adapter and earlier:
            self.models[name] = earlier[0]
        else:
            self.models[name] = PeftModel.from_pretrained(plain, path).eval()
        return Said(body="Success")

    def _complete(self, body: dict[str, Any]) -> dict[str, Any]:
        name = list(self.models)[-1] if self.gives_base_last_adapter and body["model"] == NAME else body["model"]
        model, prompts = self.models[name], body["prompt"]
        prompts = prompts if isinstance(prompts[0], list) else [prompts]
        if body.get("echo"):
            choices = self._echoed(model, prompts)
        else:
            choices = [self._choice(index, model, prompt, body) for index, prompt in enumerate(prompts)]
        usage = {"prompt_tokens": sum(map(len, prompts)) + self.adds_tokens, "completion_tokens": 1}
        details = {"prompt_tokens_details": {"cached_tokens": 16}}
        return {"model": self.answers_as or body["model"], "choices": choices, "usage": usage | details}

    def _streamed(self, whole: dict[str, Any]) -> Said:
        """The same reply a token (or a letter, where ids are not told) at a time, as vLLM writes it."""
        (choice,) = whole["choices"]
        ids = choice.get("token_ids") or [None] * len(choice["text"])
        pieces = []
        for place in range(len(ids)):
            last = place == len(ids) - 1
            piece: dict[str, Any] = {
                "index": 0,
                "text": choice["text"][place:] if last else choice["text"][place : place + 1],
            }
            piece["finish_reason"] = choice["finish_reason"] if last else None
            if "token_ids" in choice:
                value = choice["logprobs"]["token_logprobs"][place]
                piece |= {"token_ids": [ids[place]], "logprobs": {"token_logprobs": [value]}}
                piece["prompt_token_ids"] = choice["prompt_token_ids"] if place == 0 else None
            pieces.append({"model": whole["model"], "choices": [piece], "usage": None})
        pieces.append(whole | {"choices": []})
        body = "".join(f"data: {json.dumps(piece)}\n\n" for piece in pieces) + "data: [DONE]\n\n"
        return Said(headers={"Content-Type": "text/event-stream"}, body=body, drip=self.drip)

    def _choice(self, index: int, model: Any, prompt: list[int], body: dict[str, Any]) -> dict[str, Any]:
        options = body.get("structured_outputs", {}).get("choice") if self.holds_choices else None
        tokens, values = self._held(model, prompt, options[-1]) if options else self._drawn(model, prompt, body)
        text, reason = self._text(tokens), "stop" if tokens[-1] == self.tokenizer.eos_token_id else "length"
        for stop in body.get("stop", ()):
            if stop in text:
                text, reason = text[: text.index(stop)], "stop"
        choice = {"index": index, "text": self.forced_text or text, "finish_reason": reason}
        if self.tells_ids and body.get("return_token_ids"):
            choice |= {"token_ids": tokens, "prompt_token_ids": prompt, "logprobs": {"token_logprobs": values}}
        if self.follows and body.get("logprob_token_ids"):
            assert body["return_tokens_as_token_ids"] and body["logprobs"] is not None  # as vLLM wants it
            asked = body["logprob_token_ids"]
            rows = _logprobs(model, [[*prompt, token] for token in asked])
            top = {f"token_id:{token}": row[-1] for token, row in zip(asked, rows, strict=True)}
            choice["logprobs"] = {"token_logprobs": values, "top_logprobs": [top]}
        return choice

    def _drawn(self, model: Any, prompt: list[int], body: dict[str, Any]) -> tuple[list[int], list[float]]:
        tokens: list[int] = []
        values: list[float] = []
        luck = uniforms(body.get("seed", 0), body["max_tokens"])
        temperature, top_p = torch.tensor([body["temperature"]]).double(), torch.tensor([body["top_p"]]).double()
        while len(tokens) < body["max_tokens"]:
            with torch.inference_mode():
                logits = model(torch.tensor([[*prompt, *tokens]])).logits[0, -1:]
            token, value = draw(logits, temperature, top_p, luck[len(tokens) : len(tokens) + 1])
            tokens.append(int(token))
            values.append(float(value))
            stopped = any(stop in self._text(tokens) for stop in body.get("stop", ()))
            if tokens[-1] == self.tokenizer.eos_token_id or stopped:
                break
        return tokens, values

    def _held(self, model: Any, prompt: list[int], option: str) -> tuple[list[int], list[float]]:
        tokens = [*self.tokenizer(option, add_special_tokens=False)["input_ids"], self.tokenizer.eos_token_id]
        return tokens, _logprobs(model, [[*prompt, *tokens]])[0][-len(tokens) :]

    def _echoed(self, model: Any, prompts: Sequence[list[int]]) -> list[dict[str, Any]]:
        """Prompts with their log-probabilities; the last is said first, for no order is promised."""
        rows = [[None, *row, -1.0] if self.echoes else [-1.0] for row in _logprobs(model, prompts)]
        return [
            {"index": index, "text": "", "finish_reason": "length", "logprobs": {"token_logprobs": row}}
            for index, row in reversed(list(enumerate(rows)))
        ]

    def _text(self, tokens: Sequence[int]) -> str:
        text: str = self.tokenizer.decode(tokens, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text


def _logprobs(model: Any, prompts: Sequence[list[int]]) -> list[list[float]]:
    """Of each prompt's tokens but the first; padding on the right moves nothing before it."""
    longest = max(map(len, prompts))
    padded = torch.tensor([[*prompt, *[0] * (longest - len(prompt))] for prompt in prompts])
    with torch.inference_mode():
        table = torch.log_softmax(model(padded).logits.double(), -1)
    return [
        [float(table[row, place, token]) for place, token in enumerate(prompt[1:])]
        for row, prompt in enumerate(prompts)
    ]


def _json(value: dict[str, Any]) -> Said:
    return Said(body=json.dumps(value))
