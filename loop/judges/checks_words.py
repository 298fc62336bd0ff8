"""Checks on the words of the replies: what is mentioned, avoided, asked, how long, how it ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from loop.core.case import Transcript
from loop.core.checks import Avoids, EndsCleanly, Length, Mentions, Questions
from loop.core.wording import (
    FUNCTION_WORDS,
    contains,
    occurrence,
    questions,
    sentences,
    spoken,
    without_echo,
    words,
)
from loop.judges.finding import Finding, breach, decided, holds, nothing_said, said_in, span

_FINAL_MARKS = (".", "!", "?", "\u2026")
_CLOSERS = "\"')]*_\u201d\u2019 "
_JOINING = "and or but because so if the a an to of with for that which in at on by as my your"
_DANGLING = frozenset(_JOINING.split())
_REPEATED_RUN = 3


def mentions(check: Mentions, transcript: Transcript) -> Finding:
    """Enough groups occur in sentences of the agent's own, which have words beside the forms."""
    said = said_in(transcript, check.turn)
    if not said:
        return nothing_said(check.turn)
    forms = tuple(words(form) for group in check.groups for form in group)
    own = [s for one in said for s in sentences(without_echo(one.text, transcript.before(one.index)))]
    prose = [sentence for sentence in own if _is_prose(words(sentence), forms)]
    found = [next(_found(group, prose), None) for group in check.groups]
    named = [text for text in found if text is not None]
    if len(named) >= check.least:
        return holds(f"{len(named)} of {len(check.groups)} mentioned: {'; '.join(named)}")
    bare = any(contains(one.text, form) for one in said for group in check.groups for form in group)
    why = "only as a list of words or an echo of the user" if bare else "not at all"
    return breach(f"{len(named)} of at least {check.least} mentioned; the missing ones occur {why}")


def _found(group: tuple[str, ...], prose: list[str]) -> Iterator[str]:
    return (f"{form!r} in {span(text, 60)}" for text in prose for form in group if contains(text, form))


def _is_prose(sentence: tuple[str, ...], forms: tuple[tuple[str, ...], ...]) -> bool:
    """Whether a sentence says something around the forms: two other words, one of them of grammar."""
    others = set(sentence)
    for form in forms:
        if occurrence(sentence, form) is not None:
            others -= set(form) - FUNCTION_WORDS
    return len(others) >= 2 and bool(others & FUNCTION_WORDS)


def avoids(check: Avoids, transcript: Transcript) -> Finding:
    """No form occurs as whole words in any reply; quotation marks do not excuse it."""
    said = said_in(transcript, check.turn)
    if not said:
        return nothing_said(check.turn)
    for one in said:
        for form in check.forms:
            if contains(one.text, form):
                return breach(f"reply {one.index + 1} says {form!r}: {span(one.text)}")
    return holds(f"none of {len(check.forms)} forms in {len(said)} replies")


def asks(check: Questions, transcript: Transcript) -> Finding:
    """At most ``most`` questions in each reply, and at least ``least`` in all of them."""
    said = said_in(transcript, check.turn)
    if not said:
        return nothing_said(check.turn)
    counts = [len(questions(one.text)) for one in said]
    fits = sum(counts) >= check.least and max(counts) <= check.most
    return decided(fits, f"questions by reply: {counts}; wanted {check.least} to {check.most}")


def length(check: Length, transcript: Transcript) -> Finding:
    """The words of each reply lie in the range; a reply that is nothing but a tool call is not counted."""
    said = said_in(transcript, check.turn)
    if not said:
        return nothing_said(check.turn)
    counts = [len(words(one.text)) for one in said]
    fits = all(check.min_words <= count <= check.max_words for count in counts)
    return decided(fits, f"words by reply: {counts}; wanted {check.min_words} to {check.max_words}")


def ends_cleanly(check: EndsCleanly, transcript: Transcript) -> Finding:
    """The last reply is whole, ends in a final mark and repeats neither itself nor the reply before."""
    said = said_in(transcript, -1)
    if not said:
        return nothing_said(-1)
    text = said[0].text
    if said[0].index < len(transcript.finishes) and transcript.finishes[said[0].index] == "length":
        return breach(f"cut off by the token budget: ...{span(text[-40:])}")
    bare = text.rstrip(_CLOSERS)
    last = words(text)[-1]
    if not bare.endswith(_FINAL_MARKS) or (last in _DANGLING and bare.endswith("\u2026")):
        return breach(f"does not end a sentence: ...{span(text[-40:])}")
    loop = _repetition(text)
    if loop:
        return breach(f"repeats itself: {loop}")
    earlier = [words(spoken(reply)) for reply in transcript.replies[: said[0].index]]
    if words(text) in earlier:
        return breach(f"the same reply was given before: {span(text)}")
    return holds(f"ends with {span(text[-40:])}")


def _repetition(text: str) -> str | None:
    """A sentence said twice, or a run of words said three times in a row."""
    told = Counter(words(sentence) for sentence in sentences(text) if len(words(sentence)) > 1)
    twice = next((sentence for sentence, count in told.items() if count > 1), None)
    if twice is not None:
        return span(" ".join(twice))
    every = words(text)
    for size in range(1, 9):
        for start in range(len(every) - size * _REPEATED_RUN + 1):
            run = every[start : start + size]
            if every[start : start + size * _REPEATED_RUN] == run * _REPEATED_RUN:
                return f"{span(' '.join(run))} {_REPEATED_RUN} times in a row"
    return None
