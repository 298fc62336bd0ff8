"""Plain facts about a text: folded words, sentences, questions, and what is speech in a reply."""

from __future__ import annotations

import json
import re
import unicodedata
from functools import lru_cache

CALL_KEYS = frozenset({"name", "tool", "function", "arguments", "args", "action", "tool_call"})

# Words that carry grammar and no topic; a sentence has some of them, a list of keywords has none.
_GRAMMAR = """
    a about after again all also although am an and any are as at be because been before being but by can
    could did do does doing don for from get gets got had has have having he her here hers him his how i if in
    into is it its just let may me might more most must my no nor not of off on once only or other our ours out
    over own please shall she should so some such than that the their them then there these they this those
    though through to too under until up us very was we were what when where which while who why will with
    would yes you your yours m re s t ve d ll each enough even ever every few little many much never now one still
    someone anyone everyone nobody nothing something anything
"""
FUNCTION_WORDS = frozenset(_GRAMMAR.split())

_QUOTES = str.maketrans({"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u00ab": '"', "\u00bb": '"'})
_DASHES = str.maketrans(dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-"))
_NOT_SENTENCE_ENDS = re.compile(r"\b(mr|mrs|ms|dr|st|e\.g|i\.e|etc|a\.m|p\.m)\.(?=\s+\S)", re.IGNORECASE)
_SENTENCE_END = re.compile(r"(?<=[.!?\u2026])[\"')\]]*\s+|\n+")
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)?")
_QUOTED = re.compile(r"\"[^\"]*\"|(?<!\w)'[^'\n]{2,}'(?!\w)")
_INVERTED = re.compile(r"^(?:\w+ ){0,2}(?:do|does|did|would|could|can|will|are|shall|have) (?:you|i|we|they|it)\b")


@lru_cache(maxsize=65536)
def fold(text: str) -> str:
    """The text without case, accents, invisible characters and typographic quotes or dashes."""
    plain = unicodedata.normalize("NFKC", text).translate(_QUOTES).translate(_DASHES)
    parts = unicodedata.normalize("NFKD", plain)
    kept = "".join(c for c in parts if not unicodedata.combining(c) and unicodedata.category(c) != "Cf")
    return kept.casefold()


@lru_cache(maxsize=65536)
def words(text: str) -> tuple[str, ...]:
    """The folded words in order; an inner apostrophe stays (``don't``), other marks do not."""
    return tuple(_WORD.findall(fold(text)))


@lru_cache(maxsize=65536)
def sentences(text: str) -> tuple[str, ...]:
    """The sentences of a text with their marks, split at final marks and line ends."""
    guarded = _NOT_SENTENCE_ENDS.sub(lambda match: match.group(0)[:-1] + "\u2024", text)
    parts = (part.replace("\u2024", ".").strip() for part in _SENTENCE_END.split(guarded))
    return tuple(part for part in parts if part)


def unquoted(text: str) -> str:
    """The text without what stands in quotation marks: other people's words."""
    return _QUOTED.sub(" ", text.translate(_QUOTES))


def is_question(sentence: str) -> bool:
    """Whether a sentence asks: it ends in a question mark, or begins as only questions begin."""
    if not words(sentence):
        return False
    end = sentence.rstrip("!\"')]* \u201d\u2019")
    return end.endswith("?") or bool(_INVERTED.match(" ".join(words(sentence))))


def questions(text: str) -> tuple[str, ...]:
    """The questions a text asks itself; those inside quotation marks are someone else's."""
    return tuple(sentence for sentence in sentences(unquoted(text)) if is_question(sentence))


def contains(text: str, form: str) -> bool:
    """Whether the form's words occur in the text as whole words, next to one another."""
    return occurrence(words(text), words(form)) is not None


def occurrence(sequence: tuple[str, ...], part: tuple[str, ...]) -> int | None:
    """Where ``part`` first occurs in ``sequence`` without a gap, or None; an empty part never does."""
    if not part:
        return None
    starts = range(len(sequence) - len(part) + 1)
    return next((start for start in starts if sequence[start : start + len(part)] == part), None)


def begins_word(text: str, stem: str) -> bool:
    """Whether the stem occurs at the start of a word (``flexib`` in "is that flexible")."""
    return bool(re.search(r"(?<!\w)" + re.escape(fold(stem.strip())), fold(text)))


@lru_cache(maxsize=65536)
def spoken(reply: str) -> str:
    """What a reply says to the user: tool calls are taken out, and ``{"say": text}`` reads as its text.

    A tool call is a JSON object with one of the usual keys (``tool``, ``name``, ...).
    """
    kept: list[str] = []
    position = 0
    while (start := reply.find("{", position)) >= 0:
        value, end = _object_at(reply, start)
        kept.append(reply[position:start])
        kept.append(_said(value, reply[start:end]))
        position = end
    kept.append(reply[position:])
    return re.sub(r"</?tool_call>|```(?:json)?\s*```", " ", "".join(kept)).strip()


def _object_at(text: str, start: int) -> tuple[object, int]:
    try:
        return json.JSONDecoder().raw_decode(text, start)
    except (ValueError, RecursionError):
        return None, start + 1


def _said(value: object, text: str) -> str:
    if not isinstance(value, dict):
        return text
    if set(value) == {"say"}:
        return str(value["say"])
    return " " if CALL_KEYS & set(value) else text


def without_echo(reply: str, users: tuple[str, ...]) -> str:
    """The reply's own sentences: those that only repeat three or more of the user's words are dropped."""
    said = tuple(words(text) for text in users)
    own = []
    for sentence in sentences(unquoted(reply)):
        inside = words(sentence)
        if len(inside) >= 3 and any(occurrence(text, inside) is not None for text in said):
            continue
        own.append(sentence)
    return " ".join(own)
