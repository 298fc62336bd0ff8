"""Near duplicates among rows of one case: the same exchange in other words teaches nothing new."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from datasketch import MinHash, MinHashLSH

from loop.core.training_set import Row
from loop.curators.wording import anchors, exchange, is_prose, shingles
from loop.ports import Embedder

PERMUTATIONS = 128
SHINGLE_WORDS = 3
# Two tool calls of one template that differ in one slot share about 0.6 of their word
# 3-grams, and two chat replies that differ in a word of sixty 0.9: the bound lies between.
SHINGLE_JACCARD = 0.85
# Making the permutations is most of the cost of a sketch, so every sketch is a copy of this one.
_EMPTY_SKETCH = MinHash(num_perm=PERMUTATIONS, seed=1)


def near_duplicates(rows: Sequence[Row], embedder: Embedder, cosine: float) -> tuple[bool, ...]:
    """For each row whether an earlier kept row of its case says nearly the same.

    By MinHash over word 3-grams of request and reply (Jaccard at least 0.85). Replies in
    plain language also by embedding (cosine above ``cosine``), but only where both
    exchanges hold the same numbers and names: exchanges of one template with other slots
    lie above 0.9 (measured: up to 0.98), and they are just what is to be learnt. Code and
    calls are never judged by embedding: there one word is another meaning.
    """
    found = [False] * len(rows)
    cases: dict[tuple[str, str, int], list[int]] = defaultdict(list)
    for index, row in enumerate(rows):
        cases[row.environment, row.case, row.turn].append(index)
    for _, members in sorted(cases.items()):
        by_words = _by_words([rows[index] for index in members])
        kept = [index for index, hit in zip(members, by_words, strict=True) if not hit]
        by_meaning = dict(zip(kept, _by_meaning([rows[index] for index in kept], embedder, cosine), strict=True))
        for index, hit in zip(members, by_words, strict=True):
            found[index] = hit or by_meaning[index]
    return tuple(found)


def _by_words(rows: Sequence[Row]) -> list[bool]:
    index = MinHashLSH(threshold=SHINGLE_JACCARD, num_perm=PERMUTATIONS)
    sketches: dict[str, MinHash] = {}
    hits: list[bool] = []
    for place, row in enumerate(rows):
        sketch = _EMPTY_SKETCH.copy()
        sketch.update_batch([gram.encode() for gram in sorted(shingles(exchange(row), SHINGLE_WORDS, operators=True))])
        hit = any(sketch.jaccard(sketches[key]) >= SHINGLE_JACCARD for key in index.query(sketch))
        hits.append(hit)
        if not hit:
            sketches[str(place)] = sketch
            index.insert(str(place), sketch)
    return hits


def _by_meaning(rows: Sequence[Row], embedder: Embedder, cosine: float) -> list[bool]:
    hits = [False] * len(rows)
    groups: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        if is_prose(row.text):
            groups[tuple(sorted(anchors(exchange(row))))].append(place)
    for _, members in sorted(groups.items()):
        if len(members) < 2:
            continue
        vectors = np.asarray(embedder.embed([exchange(rows[place]) for place in members]))
        kept: list[int] = []
        for position, place in enumerate(members):
            hits[place] = bool(kept) and float((vectors[kept] @ vectors[position]).max()) > cosine
            if not hits[place]:
                kept.append(position)
    return hits
