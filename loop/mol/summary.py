"""What other specialists are told of a part: short, true to it, and in its language."""

from __future__ import annotations

import re

from loop.core.conversation import EntryKind, Part
from loop.core.numbers import grounded, numbers
from loop.core.outcome import claims
from loop.core.wording import fold, sentences, spoken, words

CHARACTERS_A_TOKEN = 4
_NAME = re.compile(r"(?<![.!?:\n\"'(\[])(?<!^)\s([A-Z\u00c0-\u00de][\w'\u2019-]+)")


def transcript(part: Part) -> str:
    """What was done and said in answer, one line each: the results of tools and the replies."""
    return "\n".join(part.texts(EntryKind.REPLY, EntryKind.TOOL))


def fits(text: str, tokens: int) -> bool:
    """Whether a text is about so many tokens or fewer (four characters each)."""
    return len(text) <= tokens * CHARACTERS_A_TOKEN


def clipped(text: str, tokens: int) -> str:
    """The first sentences that fit, or the first characters where not even one does."""
    kept = ""
    for sentence in sentences(text):
        longer = f"{kept} {sentence}".strip()
        if not fits(longer, tokens):
            break
        kept = longer
    return kept or text[: tokens * CHARACTERS_A_TOKEN].strip()


def doubts(summary: str, part: Part) -> tuple[str, ...]:
    """What the summary says that the part does not bear out; empty when nothing was found.

    Numbers and names must occur in the part, an outcome must be the one that was reported,
    and the script must be the part's own.
    """
    source = "\n".join(entry.content for entry in part.entries if entry.kind is not EntryKind.SUMMARY)
    if not words(spoken(summary)):
        return ("it says nothing",)
    return (*_numbers(summary, source), *_names(summary, source), *_outcome(summary, part), *_script(summary, source))


def _numbers(summary: str, source: str) -> tuple[str, ...]:
    shown = numbers(source)
    return tuple(f"the number {n.text} is not in it" for n in numbers(summary) if not grounded(n, shown))


def _names(summary: str, source: str) -> tuple[str, ...]:
    known = set(words(source))
    found = (match.group(1) for sentence in sentences(summary) for match in _NAME.finditer(sentence))
    return tuple(f"the name {name} is not in it" for name in found if not set(words(name)) <= known)


def _outcome(summary: str, part: Part) -> tuple[str, ...]:
    told = {claim.success for claim in claims(summary)}
    said = {claim.success for text in part.texts(EntryKind.REPLY) for claim in claims(text)}
    if told and said and not told & said:
        return (f"it tells of {'success' if True in told else 'failure'}, the reply of the opposite",)
    return ()


def _script(summary: str, source: str) -> tuple[str, ...]:
    strange = {_alphabet(c) for c in fold(summary) if c.isalpha()} - {_alphabet(c) for c in fold(source) if c.isalpha()}
    return (f"it is written in another script ({', '.join(sorted(strange))})",) if strange else ()


def _alphabet(letter: str) -> str:
    import unicodedata

    return unicodedata.name(letter, "unknown").split(" ")[0].lower()
