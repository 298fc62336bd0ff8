"""Rows and an embedder for curation tests."""

from __future__ import annotations

import math
from collections.abc import Sequence

from loop.core.episode import Split
from loop.core.noun import Noun, seed_from
from loop.core.training_set import Row


class BagOfWords(Noun):
    """An embedder whose cosine is the plain overlap of word counts, in 64 hashed dimensions."""

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [_vector(text) for text in texts]


def _vector(text: str) -> list[float]:
    vector = [0.0] * 64
    for word in text.casefold().split():
        vector[seed_from("word", word) % 64] += 1.0
    length = math.sqrt(sum(value * value for value in vector)) or 1.0
    return [value / length for value in vector]


def row(
    task: str,
    text: str = "done",
    *,
    request: str = "",
    score: float = 100.0,
    case: str = "calendar",
    level: int = 1,
    turn: int = 0,
    split: Split = Split.TRAIN,
    generation: int = 0,
    sample: int = 0,
) -> Row:
    """A row of one task with the fields that curation reads."""
    return Row(
        episode=f"{task}-{sample}",
        task=task,
        split=split,
        environment="tools",
        case=case,
        level=level,
        turn=turn,
        generation=generation,
        licence="Apache-2.0",
        score=score,
        prompt_ids=(1, 2),
        response_ids=(3,),
        text=text,
        request=request or f"request of {task}",
    )
