"""Texts reduced to what duplicate and overlap checks compare."""

from __future__ import annotations

import hashlib
import re

from loop.core.training_set import Row

_WORD = re.compile(r"\w+")
_WORD_OR_OPERATOR = re.compile(r"\w+|[-+*/%<>=!&|^~]+")
_SENTENCE = re.compile(r"(?<=[.!?:])\s+|\n+")
_STRUCTURE = re.compile(r"[{}()\[\]=<>]")


def normalised(text: str) -> str:
    """Case folded, every run of white space one blank, none at the ends."""
    return " ".join(text.casefold().split())


def shingles(text: str, size: int, *, operators: bool = False) -> frozenset[str]:
    """The text's n-grams of case-folded words; a text of fewer words is one gram, an empty one has none.

    Words are runs of letters, digits and underscores; with ``operators`` runs of arithmetic
    and comparison signs count as words too, for in a program they are the meaning.
    """
    found = (_WORD_OR_OPERATOR if operators else _WORD).findall(text.casefold())
    if not found:
        return frozenset()
    return frozenset(" ".join(found[start : start + size]) for start in range(max(1, len(found) - size + 1)))


def gram_hashes(text: str, size: int) -> frozenset[int]:
    """64-bit hashes (BLAKE2b) of the text's word n-grams."""
    return frozenset(
        int.from_bytes(hashlib.blake2b(gram.encode(), digest_size=8).digest(), "big") for gram in shingles(text, size)
    )


def anchors(text: str) -> frozenset[str]:
    """What a template's slots leave behind: words with a digit, and capitalised words inside a sentence."""
    found: set[str] = set()
    for sentence in _SENTENCE.split(text):
        for place, word in enumerate(_WORD.findall(sentence)):
            if any(letter.isdigit() for letter in word) or (place and word[0].isupper()):
                found.add(word.casefold())
    return frozenset(found)


def is_prose(text: str) -> bool:
    """Whether a reply is plain language: no brackets, no operators, hence neither code nor a call."""
    return _STRUCTURE.search(text) is None


def exchange(row: Row) -> str:
    """What is compared between rows: the request and the reply to it."""
    return f"{row.request}\n{row.text}"
