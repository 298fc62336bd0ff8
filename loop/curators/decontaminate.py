"""Keep the sealed holdout out of training: fingerprints of its texts, and checks against them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from loop.core.training_set import Fingerprints, Row
from loop.curators.wording import gram_hashes
from loop.ports import Embedder

DECIMALS = 4


def fingerprint(texts: Sequence[str], embedder: Embedder, n: int = 8) -> Fingerprints:
    """Hashed word n-grams and rounded embeddings of the texts; the texts cannot be read back.

    A text of fewer than ``n`` words counts as one gram, so that a copy of it is still found.
    """
    grams: frozenset[int] = frozenset().union(*(gram_hashes(text, n) for text in texts))
    vectors = embedder.embed(texts) if texts else []
    return Fingerprints(
        n=n, grams=grams, embeddings=tuple(tuple(round(value, DECIMALS) for value in vector) for vector in vectors)
    )


def copied(row: Row, fingerprints: Fingerprints) -> bool:
    """Whether any word n-gram of the row's request or reply is one of the holdout's."""
    return any(gram_hashes(text, fingerprints.n) & fingerprints.grams for text in (row.request, row.text))


def repeats(row: Row, fingerprints: Fingerprints) -> bool:
    """Whether every n-gram of the row's request is one of the holdout's: a sealed case, word for word.

    Requests of fewer than n words are one gram and may agree by chance; they are only dropped.
    """
    grams = gram_hashes(row.request, fingerprints.n)
    return len(grams) > 1 and grams <= fingerprints.grams


def overlap(
    rows: Sequence[Row], fingerprints: Fingerprints, embedder: Embedder | None = None, similarity: float = 1.0
) -> tuple[bool, ...]:
    """For each row whether it overlaps with the holdout.

    By n-grams always; with an embedder also when the cosine of the row's request with any
    holdout text is above ``similarity``. (Measured on contract v1: no train request shares
    an 8-gram with the holdout, and the largest cosine between the banks is 0.76.)
    """
    hits = [copied(row, fingerprints) for row in rows]
    if embedder is None or not fingerprints.embeddings or not rows:
        return tuple(hits)
    requests = sorted({row.request for row in rows if row.request})
    if not requests:
        return tuple(hits)
    cosines = np.asarray(embedder.embed(requests)) @ np.asarray(fingerprints.embeddings).T
    near = dict(zip(requests, cosines.max(axis=1) > similarity, strict=True))
    return tuple(hit or bool(near.get(row.request, False)) for hit, row in zip(hits, rows, strict=True))
