"""Checks on what replies mean: near a statement, a stance kept, a choice left open, not a stock phrase."""

from __future__ import annotations

import re
from collections.abc import Sequence

from loop.core.case import Transcript
from loop.core.checks import NotBoilerplate, OffersChoice, Semantic, StanceKept
from loop.core.numbers import grounded, numbers
from loop.core.wording import FUNCTION_WORDS, contains, fold, is_question, sentences, unquoted, without_echo, words
from loop.judges.finding import Finding, Said, breach, holds, nothing_said, said_in, span, undecided
from loop.judges.meaning import Meaning, segments

STOCK_SIMILARITY = 0.72
STANCE_BAND = 0.02

_INVITES = re.compile(
    r"\b(?:up to you|your (?:call|choice|decision|choosing)|you (?:can |may |could )?(?:decide|choose|pick)|whichever|"
    r"whatever you (?:prefer|choose|decide)|if you(?:'d| would)? (?:like|prefer|want|rather)|feel free|either .+ or|"
    r"(?:let me know|tell me) (?:if|which|what|whether|how)|you (?:could|can|may|might) (?:also )?(?:\w+ ){1,8}or|"
    r"leave (?:it|that|the decision) to you|you know best|only you can)\b"
)
_ASKS_CHOICE = re.compile(
    r"\b(?:would you|do you (?:want|prefer|like|think|feel)|shall i|should i|which|what would|what do you|how would|"
    r"how do you|what feels|what matters|want me to|like me to|okay with you|ok with you|works? for you|suit you|"
    r"rather|or)\b"
)
_NO_CHOICE = re.compile(
    r"\b(?:not|never|isn't|no longer) (?:really )?(?:up to you|your (?:call|choice|decision))|\bno choice\b|"
    r"\bno other (?:option|choice)"
)
# A closing formula asks for the next order; it leaves no decision to anybody.
_CLOSER = re.compile(
    r"\b(?:anything else|help you (?:with|today)|assist you|how (?:can|may) i help|is there anything|"
    r"(?:further|more) (?:help|assistance|questions)|have any questions)\b"
)


def semantic(check: Semantic, transcript: Transcript, meaning: Meaning) -> Finding:
    """Nearer to the near statements than to the far ones, by the margin; between is undecided."""
    said = said_in(transcript, check.turn)
    if not said:
        return nothing_said(check.turn)
    parts = parts_of(said)
    if not parts:
        return breach(f"only a list of words: {span(said[0].text)}")
    near, far = meaning.nearness(parts, check.near), meaning.nearness(parts, check.far)
    difference = round(near - far, 4)
    figures = f"near {near:.3f}, far {far:.3f}, difference {difference:+.3f} (margin {check.margin:+.3f})"
    if difference > check.margin:
        return holds(f"{figures}: {span(said[-1].text)}")
    if difference < -check.undecided:
        return breach(f"{figures}: {span(said[-1].text)}")
    return undecided(f"{figures}: {span(said[-1].text)}")


def parts_of(said: Sequence[Said]) -> tuple[str, ...]:
    """The prose clauses of these replies: what their meaning is read from."""
    return tuple(dict.fromkeys(part for one in said for part in segments(unquoted(one.text))))


def stance_kept(check: StanceKept, transcript: Transcript, meaning: Meaning) -> Finding:
    """Each of the turns leans to the same side; a turn between the sides leaves it undecided."""
    turns = check.turns or tuple(range(1, len(transcript.replies) + 1))
    leanings: list[float] = []
    for turn in turns:
        parts = parts_of(said_in(transcript, turn))
        if not parts:
            return nothing_said(turn)
        leanings.append(round(meaning.nearness(parts, check.stance) - meaning.nearness(parts, check.opposite), 4))
    if not leanings:
        return nothing_said(None)
    figures = ", ".join(f"turn {turn} {value:+.3f}" for turn, value in zip(turns, leanings, strict=True))
    if any(value > STANCE_BAND for value in leanings) and any(value < -STANCE_BAND for value in leanings):
        return breach(f"the stance changes sides: {figures}")
    if any(abs(value) <= STANCE_BAND for value in leanings):
        return undecided(f"a turn takes no clear side: {figures}")
    return holds(f"the same side in each turn: {figures}")


def offers_choice(check: OffersChoice, transcript: Transcript) -> Finding:
    """A reply leaves the decision to the user, and names one of the options where some are given."""
    said = said_in(transcript, check.turn)
    if not said:
        return nothing_said(check.turn)
    missing = ""
    for one in said:
        offer = _offer(one.text)
        if offer is None:
            continue
        named = next((option for option in check.among if _names(one.text, option)), None)
        if named is not None or not check.among:
            return holds(f"{span(offer)}" + (f" naming {named!r}" if named else ""))
        missing = f"a choice is offered ({span(offer, 60)}), but none of {list(check.among)} is named"
    return breach(missing or f"the decision is not left to the user: {span(said[-1].text)}")


def _offer(text: str) -> str | None:
    for sentence in sentences(unquoted(text)):
        plain = fold(sentence)
        if _NO_CHOICE.search(plain) or _CLOSER.search(plain):
            continue
        if _INVITES.search(plain) or (is_question(sentence) and _ASKS_CHOICE.search(plain)):
            return sentence
    return None


def _names(text: str, option: str) -> bool:
    if contains(text, option):
        return True
    wanted = numbers(option)
    stated = numbers(text)
    rest = set(words(option)) - {word for number in wanted for word in words(number.text)}
    return bool(wanted) and not rest and all(grounded(number, stated) for number in wanted)


def not_boilerplate(check: NotBoilerplate, transcript: Transcript, stock: Sequence[str], meaning: Meaning) -> Finding:
    """No reply is mostly stock phrases, and each takes up a content word of the user's, not as an echo."""
    said = said_in(transcript, check.turn)
    if not said:
        return nothing_said(check.turn)
    for one in said:
        finding = _stock(one, stock, meaning) or _shares(one, transcript.before(one.index))
        if finding is not None:
            return finding
    return holds(f"no stock phrase, and words of the user's are taken up: {span(said[-1].text)}")


def _stock(one: Said, stock: Sequence[str], meaning: Meaning) -> Finding | None:
    parts = parts_of((one,))
    if not parts:
        return breach(f"only a list of words: {span(one.text)}")
    worst = [max((meaning.similarity(part, phrase), phrase) for phrase in stock) for part in parts] if stock else []
    near = [(value, phrase) for value, phrase in worst if value > STOCK_SIMILARITY]
    if 2 * len(near) > len(parts):
        value, phrase = max(near)
        return breach(f"reply {one.index + 1} is near a stock phrase ({value:.3f}): {span(phrase)}")
    return None


def _shares(one: Said, users: tuple[str, ...]) -> Finding | None:
    own = stems(without_echo(one.text, users))
    said = {stem for text in users for stem in stems(text)}
    if not said or own & said:
        return None
    return breach(f"reply {one.index + 1} takes up no word of the user's: {span(one.text)}")


def stems(text: str) -> frozenset[str]:
    """The content words of a text without common endings."""
    content = (word.split("'")[0] for word in words(text) if word not in FUNCTION_WORDS)
    return frozenset(re.sub(r"(?:ies|ing|ed|es|s|e|ly)$", "", word) if len(word) > 3 else word for word in content)
