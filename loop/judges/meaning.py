"""Similarity of meaning between what replies say and given statements, from sentence vectors."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from loop.core.wording import FUNCTION_WORDS, fold, sentences, words

_PARTS = re.compile(r"(?<=[;:])\s+|\s+-+\s+")
# Chosen on 70 replies that no contract file holds, six criteria (area under the curve of the
# difference): best two 0.85, best three 0.88, and with the polarity penalty 0.91.
_BEST = 3
POLARITY_PENALTY = 0.1
_NEGATED = re.compile(
    r"\b(?:not|no|never|none|nothing|nobody|neither|nor|without|cannot|unable|fail\w*|disagree\w*|unfortunately|sorry|"
    r"\w+n't)\b"
)


class Meaning:
    """Vectors by text, with the similarities that checks need; texts come from one batch."""

    def __init__(self, vectors: Mapping[str, Sequence[float]]) -> None:
        """Take unit vectors by text."""
        self._vectors = {text: np.asarray(vector) for text, vector in vectors.items()}

    def similarity(self, one: str, other: str) -> float:
        """Cosine similarity of two texts, in [-1, 1]."""
        return float(np.dot(self._vectors[one], self._vectors[other]))

    def nearness(self, parts: Sequence[str], statements: Sequence[str]) -> float:
        """How near the text is to the statements: each one's best part, mean of the best three."""
        best = sorted((max(self._agreement(part, text) for part in parts) for text in statements), reverse=True)
        return math.fsum(best[:_BEST]) / len(best[:_BEST])

    def _agreement(self, part: str, statement: str) -> float:
        """Similarity, less where only one of the two is negated."""
        return self.similarity(part, statement) - POLARITY_PENALTY * (negated(part) is not negated(statement))


@lru_cache(maxsize=65536)
def negated(text: str) -> bool:
    """Whether a clause denies, refuses or regrets something."""
    return bool(_NEGATED.search(fold(text)))


def segments(text: str) -> tuple[str, ...]:
    """The text's sentences and clauses that are prose; lists of keywords mean nothing and are left out."""
    parts = [part.strip() for sentence in sentences(text) for part in _PARTS.split(sentence)]
    return tuple(part for part in parts if is_prose(part))


def is_prose(text: str) -> bool:
    """Whether a stretch of text is said rather than listed: short, or with words of grammar in it.

    "Maybe call Anna tonight?" has none, but four words with a final mark are still a
    sentence; before a colon ("glad talk like:") two words without any are a list already.
    """
    inside = words(text)
    grammar = sum(word in FUNCTION_WORDS or "'" in word for word in inside)
    short = 6 if text.rstrip("\"')").endswith((".", "!", "?")) else 2 if text.endswith((":", ";")) else 3
    return bool(inside) and (len(inside) < short or grammar * 8 >= len(inside))
