"""Personal data out of conversations: what rules can find offline, replaced by a placeholder for each value.

Rules know shapes, check digits and cues. A name, place or story without a cue passes, so that what
is redacted is still personal: it is no anonymisation, and consent is asked for all the same.
"""

from __future__ import annotations

import ipaddress
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress

import phonenumbers
from stdnum import iban, luhn
from stdnum.us import ssn

Span = tuple[int, int]
Finder = Callable[[str], Iterator[Span]]

# Numbers without a country code are read as these regions write them.
REGIONS = ("US", "GB", "DE", "FR", "IN")
SECRET_LETTERS, SECRET_BITS = 20, 4.0
# No rule looks further than this from where it begins, so that no text can make it slow.
REACH = 2_000

_TITLED = r"(?-i:[A-ZÀ-ÖØ-ÞĀ-Ž])[\w'’-]{1,40}"
_FULL_NAME = rf"{_TITLED}(?:[ ]{_TITLED}){{0,2}}"
_KEYED = r"(?:pass(?:word|wd|phrase)?|passwort|kennwort|pwd|pin|secret|token|api[ _-]?key|access[ _-]?key)"
_PREFIXED = (
    r"sk-|pk-|rk_|sk_|gh[opsur]_|github_pat_|glpat-|xox[abeprs]-|hf_|npm_|pypi-|AKIA|ASIA|AIza|ya29\.|mcl_|SG\.|eyJ"
)
_SIGNED = "key|auth|sig(?:nature)?|code"
_AT, _DOT = r"(?:\(at\)|\[at\]| at )", r"(?:\(dot\)|\[dot\]| dot )"
_ENGLISH_STREET = (
    r"street|st|avenue|ave|road|rd|lane|ln|drive|dr|boulevard|blvd|court|ct|square|sq|way|place|pl|terrace|highway|hwy"
)
_GERMAN_STREET = r"stra(?:ß|ss)e|str\.|weg|platz|allee|gasse|ring|damm|ufer"
_LATIN_STREET = r"rue|avenue|boulevard|chemin|impasse|calle|avenida|plaza|via|rua"
_CITY = rf"(?:,?[ ]+(?:\d{{5}}[ ]+)?{_TITLED}(?:[ ]{_TITLED})?(?:,?[ ]+[A-Z]{{2}}[ ]+\d{{5}}(?:-\d{{4}})?)?)?"
_NUMBERED = rf"{_FULL_NAME}(?:,?[ ]+\d+)?"
_RELATED = (
    r"wife|husband|partner|boyfriend|girlfriend|son|daughter|mother|mom|mum|father|dad|sister|brother|friend|boss"
    r"|manager|colleague|doctor|therapist|teacher|neighbou?r|aunt|uncle|cousin|frau|mann|mutter|vater|schwester|bruder"
)
_NAME_CUES = (
    rf"(?:\bmy name is|\bi am called|\bcall me|\bi['’]?m|\bi am|\bthis is|\bmein name ist|\bich hei(?:ß|ss)e|\bich bin"
    rf"|\bje m['’]appelle|\bme llamo|\bmi nombre es|\bmi chiamo)[ ]+({_FULL_NAME})",
    rf"\b(?:mr|mrs|ms|miss|mx|dr|prof|herr|frau|mme|monsieur|madame|señora?|sra?)\b\.?[ ]+({_FULL_NAME})",
    rf"\b(?:my|our|mein|meine|unser|unsere)[ ]+(?:{_RELATED}),?[ ]+({_FULL_NAME})",
    rf"(?:regards|sincerely|cheers|thanks|love|grü(?:ß|ss)en?|cordialement|saludos),?[ ]*\n+[ ]*({_FULL_NAME})\s*$",
)


def _matches(pattern: str, group: int = 0) -> Finder:
    compiled = re.compile(pattern, re.IGNORECASE | re.MULTILINE)

    def find(text: str) -> Iterator[Span]:
        yield from (found.span(group) for found in compiled.finditer(text))

    return find


def _ibans(text: str) -> Iterator[Span]:
    for start in re.finditer(r"\b[A-Za-z]{2}\d{2}", text):
        shape = re.match(r"(?:[ -]?[A-Za-z0-9]){15,34}", text[start.start() : start.start() + 80])
        # The words after it may look like its next groups: the longest that checks is it.
        written = shape[0] if shape else ""
        ends = (word.end() for word in reversed([*re.finditer(r"[A-Za-z0-9]+", written)]) if word.end() >= 15)
        length = next((end for end in ends if iban.is_valid(written[:end])), 0)
        if length:
            yield start.start(), start.start() + length


def _cards(text: str) -> Iterator[Span]:
    for found in re.finditer(r"(?<![\d.])[2-6](?:[ -]?\d){12,18}(?!\d)", text):
        if luhn.is_valid(re.sub(r"\D", "", found[0])):
            yield found.span()


def _addresses(text: str) -> Iterator[Span]:
    for found in re.finditer(r"(?<![\w.:])[0-9a-f:.]{3,45}(?![\w:])", text, re.IGNORECASE):
        written = found[0].rstrip(".")
        with suppress(ValueError):
            address = ipaddress.ip_address(written)
            # What every machine calls itself tells nothing of anybody.
            if not (address.is_loopback or address.is_unspecified):
                yield found.start(), found.start() + len(written)


def _phones(text: str) -> Iterator[Span]:
    for region in REGIONS:
        for found in phonenumbers.PhoneNumberMatcher(text, region):
            if not re.match(r"\d{4}-\d\d-\d\d", found.raw_string):
                yield found.start, found.end


def _numbers_of_people(text: str) -> Iterator[Span]:
    yield from (f.span() for f in re.finditer(r"\b\d{3}-\d{2}-\d{4}\b", text) if ssn.is_valid(f[0]))


def _random(text: str) -> Iterator[Span]:
    """Long strings of letters and digits that are no words: keys and tokens without a known prefix."""
    for found in re.finditer(rf"[A-Za-z0-9_+/=-]{{{SECRET_LETTERS},}}", text):
        word, counts = found[0], Counter(found[0])
        bits = -sum(n / len(word) * math.log2(n / len(word)) for n in counts.values())
        mixed = all(re.search(kind, word) for kind in ("[a-z]", "[A-Z]", r"\d"))
        if (mixed and bits >= SECRET_BITS) or re.fullmatch(r"(?=.*\d)(?=.*[a-f])[0-9a-f]{24,}", word):
            yield found.span()


# What is found earlier is what it is: a secret in a URL is a URL, digits in an address are no phone number.
FINDERS: tuple[tuple[str, Finder], ...] = (
    ("SECRET", _matches(r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)")),
    ("URL", _matches(rf"\b[a-z][a-z0-9+.-]{{0,20}}://[^\s/@]{{1,{REACH}}}@[^\s<>\"']+")),
    ("URL", _matches(rf"\bhttps?://[^\s<>\"']{{1,{REACH}}}?[?&#;](?:{_KEYED}|\w{{0,20}}token|{_SIGNED})=[^\s<>\"']+")),
    ("EMAIL", _matches(r"(?<![\w.+%'-])[\w.+%'-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+")),
    ("EMAIL", _matches(rf"(?<![\w.+-])[\w.+-]{{1,64}} ?{_AT} ?[\w-]{{1,63}}(?: ?{_DOT} ?[a-z]{{2,63}})+")),
    ("SECRET", _matches(rf"\b(?:{_PREFIXED})[\w./+=-]{{12,}}")),
    ("SECRET", _matches(rf"\b{_KEYED}[\"'`]?[ ]*[:=][ ]*[\"'`]?([^\s\"'`(){{}}\[\]]{{4,}}+)(?![(\[])", 1)),
    ("SECRET", _matches(rf"\b{_KEYED}(?:[ ]+is)?[ ]+[\"'`]?((?=[^\s\"'`]{{0,99}}[\d_@#$%^&*+=~])[^\s\"'`]{{4,}})", 1)),
    ("IBAN", _ibans),
    ("CARD", _cards),
    ("IP", _addresses),
    ("ID", _numbers_of_people),
    ("ADDRESS", _matches(rf"\b\d{{1,5}}[a-z]?,?[ ]+(?:{_TITLED}[ ]+){{1,4}}(?:{_ENGLISH_STREET})\b\.?{_CITY}")),
    ("ADDRESS", _matches(rf"\b(?:{_TITLED}[ ])?[\w-]{{0,40}}(?:{_GERMAN_STREET})[ ]+\d{{1,4}}[a-z]?\b{_CITY}")),
    ("ADDRESS", _matches(rf"\b(?:\d{{1,4}},?[ ]+)?(?:{_LATIN_STREET})[ ]+(?:d[eu][ ]+)?(?:la[ ]+)?{_NUMBERED}{_CITY}")),
    ("PHONE", _phones),
    ("SECRET", _random),
)


def redact(texts: Sequence[str]) -> tuple[list[str], dict[str, int]]:
    """The texts of one conversation redacted, and how many spans of each class were.

    A value has one placeholder (``[EMAIL_1]``) wherever it stands, a name also in its parts and
    where no cue stands beside it. Texts come back in Unicode's NFKC, without invisible letters:
    disguised digits are digits.
    """
    plain = [_visible(text) for text in texts]
    known: dict[tuple[str, str], str] = {}
    counts: Counter[str] = Counter()
    finders = (*FINDERS, ("NAME", _known_names(plain, known)))
    return [_redacted(text, finders, known, counts) for text in plain], dict(sorted(counts.items()))


def _redacted(
    text: str, finders: Iterable[tuple[str, Finder]], known: dict[tuple[str, str], str], counts: Counter[str]
) -> str:
    taken: list[tuple[int, int, str]] = []
    for kind, find in finders:
        for start, end in find(text):
            if all(end <= left or right <= start for left, right, _ in taken):
                taken.append((start, end, kind))
    pieces, last = [], 0
    for start, end, kind in sorted(taken):
        pieces += [text[last:start], _placeholder(kind, text[start:end], known)]
        counts[kind] += 1
        last = end
    return "".join((*pieces, text[last:]))


def _known_names(texts: Sequence[str], known: dict[tuple[str, str], str]) -> Finder:
    """Finds the names that a cue introduces anywhere in the conversation, and each of their parts."""
    cues = [_matches(pattern, 1) for pattern in _NAME_CUES]
    names = {text[start:end] for text in texts for find in cues for start, end in find(text)}
    parts: set[str] = set()
    for name in sorted(names, key=lambda name: (-len(name), name)):
        placeholder = _placeholder("NAME", name, known)
        for part in name.split():
            known.setdefault(("NAME", _key("NAME", part)), placeholder)
            parts.add(part)
    if not names:
        return lambda text: iter(())
    longest = sorted(names | parts, key=lambda name: (-len(name), name))
    return _matches(rf"(?<!\w)(?-i:{'|'.join(map(re.escape, longest))})(?!\w)")


def _placeholder(kind: str, value: str, known: dict[tuple[str, str], str]) -> str:
    key = (kind, _key(kind, value))
    if key not in known:
        known[key] = f"[{kind}_{len({p for (k, _), p in known.items() if k == kind}) + 1}]"
    return known[key]


def _key(kind: str, value: str) -> str:
    """What makes two spellings one value: their letters and digits, or the text itself where case counts."""
    return value if kind in ("SECRET", "URL") else re.sub(r"[\W_]", "", value.casefold())


def _visible(text: str) -> str:
    kept = (letter for letter in unicodedata.normalize("NFKC", text) if unicodedata.category(letter) != "Cf")
    return "".join(kept)
