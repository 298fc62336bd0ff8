"""Numbers and clock times in a text, in digits or in words, as sets of possible readings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from loop.core.noun import Noun
from loop.core.wording import fold

DAY = 24 * 60

_BELOW_TWENTY = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_BY_TEN = "twenty thirty forty fifty sixty seventy eighty ninety"
_UNITS = {word: value for value, word in enumerate(_BELOW_TWENTY.split())}
_TENS = {word: 10 * value for value, word in enumerate(_BY_TEN.split(), start=2)}
_SCALES = {"hundred": 100, "thousand": 1000, "million": 1_000_000}
_NAMED = {"dozen": 12}
_ORDINALS = {
    "third": 3, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7, "eighth": 8, "ninth": 9, "tenth": 10,
    "eleventh": 11, "twelfth": 12,
}  # fmt: skip
_WORDS = "|".join(sorted({*_UNITS, *_TENS, *_SCALES, *_NAMED, *_ORDINALS}, key=lambda word: (-len(word), word)))
_SPELLED = rf"(?:{_WORDS})(?:(?:-| and | )(?:{_WORDS}))*"
_DIGITS = r"(?<![a-z0-9])(?:\d{1,3}(?:[, ]\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?)(?!\d)"
_UNIT = r"(?=(?:st|nd|rd|th|am|pm|a\.m|p\.m|km|kg|cm|mm|ml|min|hrs?|[hmcfgk])?(?![a-z0-9]))"
_HALF_DAY = r"(?:\s*(?:[ap]\.?m\b\.?))?"

_TOKEN = re.compile(
    r"(?P<named>\b(?:noon|midday|midnight)\b)"
    rf"|(?P<past>\b(?:half|quarter|(?:{_WORDS}|\d+)(?: minutes?)?) (?:past|to) (?:{_WORDS}|\d{{1,2}})\b)"
    rf"|(?P<clock>\b\d{{1,2}}[:h]\d{{2}}\b|\b\d{{1,2}}\.\d{{2}}(?=\s*[ap]\.?m\b)){_HALF_DAY}"
    rf"|(?P<amount>{_DIGITS}{_UNIT}|\b{_SPELLED}\b)(?P<rest>(?:st|nd|rd|th)\b|\s*o'?clock\b)?{_HALF_DAY}"
    r"|(?P<code>\b(?=[a-z]*\d)[a-z0-9]+(?:-[a-z0-9]+)*\b)"
)
_HALF = re.compile(r"([ap])\.?m\.?$")
_LIST_MARK = re.compile(r"(?m)^\s*\d{1,2}[.)]\s+(?=\S)")
_TIME_BEFORE = re.compile(r"\b(?:at|by|until|till|from|around|about|after|before|to|past|between|or|and)\s*$")
_TIME_AFTER = re.compile(r"^\s*(?:tonight|sharp|in the (?:morning|evening|afternoon)|at night|is (?:free|open|full))")
_COUNTED = re.compile(
    r"^\s*(?:people|persons?|guests?|seats?|places?|tables?|of (?:us|you|them)|euros?|dollars?|minutes?|hours?|days?|"
    r"weeks?|months?|years?|percent|%|items?|times)\b"
)


class Number(Noun):
    """One number as written, with every way it can be meant.

    ``value`` is the plain number; ``minutes`` are the clock times it may be (minutes from
    midnight); ``clock`` says that it is written as a time; ``code`` is a mixed word (A12).
    """

    text: str
    value: float | None = None
    minutes: frozenset[int] = frozenset()
    clock: bool = False
    code: str = ""


def numbers(text: str) -> tuple[Number, ...]:
    """Every number of the text in order; list marks and a lone "one" are not numbers."""
    return tuple(_read(_LIST_MARK.sub(" ", fold(text))))


def grounded(number: Number, shown: Sequence[Number]) -> bool:
    """Whether a number occurs among those shown, in digits, in words, or as the same clock time."""
    return any(_same(number, other) for other in shown)


def _same(number: Number, other: Number) -> bool:
    if number.code or other.code:
        return number.code == other.code
    plain = number.value is not None and number.value == other.value and not (number.clock and other.clock)
    timed = number.clock or other.clock or max(number.value or 0, other.value or 0) > 12
    return plain or bool(timed and number.minutes & other.minutes)


def _read(text: str) -> Iterator[Number]:
    for match in _TOKEN.finditer(text):
        number = _number(match, text)
        if number is not None:
            yield number


def _number(match: re.Match[str], text: str) -> Number | None:
    written = match.group(0).strip()
    half = "".join(f"{letter}m" for letter in _HALF.findall(written))
    if match.group("code"):
        return Number(text=written, code=written)
    if match.group("named"):
        return Number(text=written, minutes=frozenset({0 if written == "midnight" else 720}), clock=True)
    if match.group("past"):
        return Number(text=written, minutes=_past(written), clock=True)
    if match.group("clock"):
        hour, minute = (int(part) for part in re.split(r"[:h.]", match.group("clock")))
        return Number(text=written, minutes=_times(hour, minute, half), clock=True)
    return _amount(match, text, written, half)


def _amount(match: re.Match[str], text: str, written: str, half: str) -> Number | None:
    amount = match.group("amount")
    value = _value(amount)
    rest = match.group("rest") or ""
    if amount == "one" and not half and "clock" not in rest:
        return None
    whole = value.is_integer() and 0 <= value <= 24
    if half or "clock" in rest:
        return Number(text=written, minutes=_times(int(value), 0, half), clock=True) if whole else None
    near = _TIME_BEFORE.search(text[: match.start()]) or _TIME_AFTER.match(text[match.end() :])
    counted = _COUNTED.match(text[match.end() :])
    minutes = _times(int(value), 0, "") if whole and not counted and (near or value > 12) else frozenset[int]()
    sign = -1 if re.search(r"(?:^|[\s(])-$", text[: match.start()]) else 1
    return Number(text=written, value=sign * value, minutes=minutes)


def _value(amount: str) -> float:
    if amount[0].isdigit():
        return float(re.sub(r"[, ]", "", amount))
    total, current = 0, 0
    for word in re.split(r"-| and | ", amount):
        if word in _SCALES:
            current = max(current, 1) * _SCALES[word]
            if _SCALES[word] >= 1000:
                total, current = total + current, 0
        else:
            current += _UNITS.get(word, _TENS.get(word, _NAMED.get(word, _ORDINALS.get(word, 0))))
    return float(total + current)


def _past(written: str) -> frozenset[int]:
    left, side, hour = re.split(r" (past|to) ", written)
    left = left.removesuffix(" minutes").removesuffix(" minute")
    offset = {"half": 30, "quarter": 15}.get(left)
    minute = int(_value(left)) if offset is None else offset
    signed = minute if side == "past" else -minute
    return frozenset((time + signed) % DAY for time in _times(int(_value(hour)), 0, ""))


def _times(hour: int, minute: int, half: str) -> frozenset[int]:
    """The minutes from midnight a clock reading may mean; without am or pm, both up to 12."""
    if hour > 24 or minute > 59:
        return frozenset()
    if half == "am":
        return frozenset({hour % 12 * 60 + minute})
    if half == "pm":
        return frozenset({(hour % 12 + 12) * 60 + minute})
    both = {hour * 60 + minute} | ({(hour + 12) * 60 + minute} if hour <= 12 else set())
    return frozenset(time % DAY for time in both)
