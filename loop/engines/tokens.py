"""A base's text side, which every engine shares: chat template, tokens to text, and what ends a reply."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from loop.core.base import Base
from loop.core.pair import Message
from loop.ports import Blobs


@dataclass(frozen=True)
class Tokens:
    """The tokenizer of a base; ``ends`` are the tokens that end a reply."""

    tokenizer: Any
    ends: frozenset[int]

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
        return self.plain(text)

    def text(self, tokens: Sequence[int]) -> str:
        """What the tokens spell, without special ones."""
        kept = [token for token in tokens if token not in self.ends]
        text: str = self.tokenizer.decode(kept, skip_special_tokens=True, clean_up_tokenization_spaces=False)
        return text

    def plain(self, text: str) -> tuple[int, ...]:
        """The token ids of a text alone."""
        return tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def whole(self, text: str) -> tuple[int, ...]:
        """The text as a whole reply: with the end token, so that no reply is a beginning of another."""
        return (*self.plain(text), int(self.tokenizer.eos_token_id))


_loaded: dict[str, Tokens] = {}


def load_tokens(base: Base, blobs: Blobs) -> Tokens:
    """The text side of a base, read on first use; raises TornBlob when the stored folder is missing or changed."""
    if base.weights_digest not in _loaded:
        folder = blobs.get_tree(base.weights_digest)
        tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
        _loaded[base.weights_digest] = Tokens(tokenizer, _ends(folder, tokenizer))
    return _loaded[base.weights_digest]


def _ends(folder: Path, tokenizer: Any) -> frozenset[int]:
    """End tokens by the tokenizer and the generation settings; a model may have several."""
    file = folder / "generation_config.json"
    named = json.loads(file.read_text()).get("eos_token_id") if file.is_file() else None
    listed = named if isinstance(named, list) else [named]
    return frozenset(int(end) for end in [*listed, tokenizer.eos_token_id] if end is not None)
