"""Does a reply say what the tool log says? Claims of success and failure, read clause by clause."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache

from loop.core.episode import ToolCall
from loop.core.noun import Noun
from loop.core.wording import FUNCTION_WORDS, fold, is_question, sentences, spoken, unquoted, words


class Log(StrEnum):
    """What the tool log holds for a tool: nothing, calls that never ran, success, or failure."""

    NONE = "no call"
    MALFORMED = "only malformed calls"
    OK = "success"
    FAILED = "failure"


class Claim(Noun):
    """One clause that claims an outcome: ``success`` or not, the words, and how it joins the last one."""

    success: bool
    text: str
    contrast: bool = False
    attempt: bool = True


class Report(Noun):
    """Whether a reply reports the outcome: True, False, or None when it cannot be told, and why."""

    value: bool | None
    evidence: str


_DONE = """
    booked reserved confirmed completed scheduled rescheduled added created cancelled canceled updated moved
    ordered finished placed saved deleted removed refunded paid delivered shipped converted submitted sorted
    arranged sent changed set registered recorded succeeded worked secured made done
"""
_IRREGULAR = {"send": "sent", "set": "set", "make": "made", "put": "put", "buy": "bought", "write": "written"}
# Clauses are read with every "n't" written out as " not" and "cannot" as "can not".
_IDIOMS = re.compile(
    r"\bno (?:problems?|worries|trouble|doubt|issues?|errors?) ?(?:at all|there)?\b|\bnot only\b|\bnot to worry\b|"
    r"\bdo not worry\b|\bno later than\b|\bno need to\b|"
    r"\bwithout (?:any )?(?:a )?(?:problem|error|issue|trouble|hitch)s?\b"
)
_FULL = re.compile(
    r"\b(?:fully|all|completely|totally|double|overly) (?:booked|reserved|taken)\b|\bbooked (?:up|out|solid)\b|"
    r"\b(?:all|every|both) (?:the |of the |their |our )?(?:tables?|slots?|rooms?|seats?|times?|hours?) (?:\w+ ){0,4}"
    r"(?:booked|reserved|taken)\b|\b(?:booked|reserved|taken) by (?:some|an)?(?:one|body|other|another)\b|"
    r"\balready (?:been )?taken\b"
)
_FAILURE = re.compile(
    r"\b(?:fail|fails|failed|failure|unsuccessful\w*|unable|unavailable|impossible|declined|rejected|refused|denied)\b|"
    r"\b(?:an|the|returned|got|gave|with|some) errors?\b|\berror(?:ed)?\b|\bwent wrong\b|\btimed out\b|\btime ?out\b|"
    r"\bno (?:luck|success|tables?|rooms?|slots?|availability|space|seats?|answer|stock|record|match|such)\b|"
    r"\bout of stock\b|\bsold out\b|\bturned (?:me|us|it|you) (?:down|away)\b|\bfell through\b|"
    r"\bnothing (?:was |is |were )?(?:free|available|open|left|at|booked|changed|happened)\b|"
    r"\b(?:can|could) not \w+|\b(?:is|are|was|were|'re|'s) (?:\w+ )?(?:full|closed|taken)\b|"
    r"\b(?:not|never) (?:\w+ ){0,2}(?:work|go|went|gone|succeed|happen|available|possible|free|open|exist|found|find|"
    r"able|get|book|reserve|complete|make|made|manage|cancel|add|send|update|move|place|save|accept|let|allow|do it)\b"
)
_WEAK = re.compile(
    r"\b(?:see you (?:at|there|then|tonight|soon|tomorrow)|enjoy (?:your|the)|you're in\b|(?:looking|look) forward)"
)
_SET = re.compile(
    r"\b(?:all (?:set|done|good|sorted)|you're set|you are set|taken care of|went through|gone through|success\w*|"
    r"good to go|it's in|is in place|on its way|mission accomplished|consider it done|got you (?:a|the|your)|"
    r"(?:is|are|it's) (?:ready|waiting))\b"
)
_NEGATOR = re.compile(
    r"\b(?:not|no|never|none|nothing|neither|nor|nobody|without|hardly|barely|unable|instead of|failed to|fails to)\b"
)
_NOT_A_CLAIM = re.compile(
    r"\b(?:if|once|when|whenever|unless|until|before|as soon as|whether|should|could|would|might|may|can|will|shall|to|"
    r"must|try|trying|tried|want|wants|needs?|let|please|i'll|we'll|it'll|i'd|going to|hope|hopefully|getting|get|"
    r"wait\w*)\b"
)
_CLAUSE = re.compile(
    r"[,;:()\n]|\s-+\s|\b(but|however|though|although|yet|except|sadly|unfortunately|actually|anyway|so|and|because|"
    r"while|then)\b"
)
_CONTRAST = frozenset({"but", "however", "though", "although", "yet", "except", "sadly", "unfortunately"})
_ABILITY = re.compile(r"\b(?:can not|unable|not able)\b")
_ASKS = re.compile(
    r"^\W*(?:do|does|did|would|could|can|will|are|is|was|were|shall|should|have|has|what|which|when|where|who|why|how)\b"
)
_EMPTY_VALUES = frozenset({"", "ok", "true", "false", "none", "error", "status"})


def log_of(calls: Sequence[ToolCall], tool: str) -> Log:
    """The outcome in the log: the last call that ran of each tool decides; one failure is a failure."""
    mine = [call for call in calls if tool in ("*", call.name)]
    if not mine:
        return Log.NONE
    last = {call.name: call.ok for call in mine if call.ok is not None}
    if not last:
        return Log.MALFORMED
    return Log.OK if all(last.values()) else Log.FAILED


@lru_cache(maxsize=16384)
def claims(reply: str, tool: str = "*") -> tuple[Claim, ...]:
    """The outcomes a reply claims, in order; questions, plans, conditions and quotations claim nothing."""
    done = _participles(tool)
    found: list[Claim] = []
    for sentence in sentences(unquoted(spoken(reply))):
        contrast = False
        for clause in _clauses(sentence):
            if clause in _CONTRAST:
                contrast = True
                continue
            claim = _claim(clause, done, contrast)
            if claim is not None:
                found.append(claim)
                contrast = False
    return tuple(found)


def _clauses(sentence: str) -> list[str]:
    """The clauses that state something, with joining words between them; what is asked is left out."""
    plain = re.sub(r"n't\b", " not", fold(sentence)).replace("cannot", "can not").replace("ca not", "can not")
    parts = [part.strip() for part in _CLAUSE.split(plain) if part and part.strip()]
    if not is_question(sentence):
        return parts
    stated = parts[:-1]
    return [] if _ASKS.match(plain) else [part for part in stated if not _ASKS.match(part)]


def report(reply: str, calls: Sequence[ToolCall], tool: str) -> Report:
    """Compare what the reply claims with what the log of ``tool`` holds."""
    if not words(spoken(reply)):
        return Report(value=False, evidence="the final reply says nothing")
    log = log_of(calls, tool)
    made = claims(reply, tool)
    if log is Log.NONE:
        return _without_call(made)
    if not made:
        made = _from_results(reply, [call for call in calls if tool in ("*", call.name)])
    if not made:
        return Report(value=False, evidence=f"log: {log}; the reply says neither success nor failure")
    return _compare(log, made, any(call.ok is False for call in calls if tool in ("*", call.name)))


def _without_call(made: tuple[Claim, ...]) -> Report:
    success = next((claim for claim in made if claim.success), None)
    if success is not None:
        return Report(value=False, evidence=f"log: no call; the reply claims success: {success.text!r}")
    invented = next((claim for claim in made if claim.attempt), None)
    if invented is not None:
        return Report(value=False, evidence=f"log: no call; the reply tells of an attempt: {invented.text!r}")
    return Report(value=None, evidence="log: no call, and none is claimed: there is no outcome to report")


def _compare(log: Log, made: tuple[Claim, ...], failed_once: bool) -> Report:
    wanted = log is Log.OK
    right = [claim for claim in made if claim.success is wanted]
    wrong = [claim for claim in made if claim.success is not wanted]
    said = "; ".join(repr(claim.text) for claim in made)
    if not right:
        return Report(value=False, evidence=f"log: {log}; the reply claims the opposite: {said}")
    if not wrong or (wanted and made[-1].success and (failed_once or made[-1].contrast)):
        return Report(value=True, evidence=f"log: {log}; the reply says so: {said}")
    if not wanted and not made[-1].success and made[-1].contrast:
        return Report(value=None, evidence=f"log: {log}; the reply says both, with a contrast: {said}")
    return Report(value=False, evidence=f"log: {log}; the reply says both: {said}")


def _from_results(reply: str, calls: Sequence[ToolCall]) -> tuple[Claim, ...]:
    ran = [call for call in calls if call.ok is not None]
    if not ran:
        return ()
    last = ran[-1]
    given = {fold(str(value)) for value in last.arguments.values()}
    text = " ".join(words(reply))
    for value in _leaves(last.result):
        form = " ".join(words(value))
        if form and form not in _EMPTY_VALUES and fold(value) not in given and f" {form} " in f" {text} ":
            return (Claim(success=bool(last.ok), text=value),)
    return ()


def _leaves(value: object) -> list[str]:
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in _leaves(item)]
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in _leaves(item)]
    return [] if value is None or isinstance(value, bool) else [str(value)]


def _claim(clause: str, done: re.Pattern[str], contrast: bool) -> Claim | None:
    bare = _IDIOMS.sub(" ", clause)
    if _FULL.search(bare):
        return Claim(success=False, text=clause, contrast=contrast)
    success = done.search(bare) or _SET.search(bare)
    if success is None:
        return _without_success(clause, bare, contrast)
    before, after = bare[: success.start()], bare[success.end() :]
    if re.search(r"\bfully\b|\bcompletely\b", before):
        before = re.sub(r"\bfully\b|\bcompletely\b", "", before)
    if _NEGATOR.search(before) or re.match(r"\s*(?:nothing|no\b|none|not\b)", after):
        return Claim(success=False, text=clause, contrast=contrast, attempt=not _ABILITY.search(clause))
    if _FAILURE.search(after) or _FAILURE.search(before):
        if not FUNCTION_WORDS & set(words(clause)):
            return None  # a list of words of both sides says neither
        return Claim(success=False, text=clause, contrast=contrast)
    if _NOT_A_CLAIM.search(before):
        return None
    return Claim(success=True, text=clause, contrast=contrast)


def _without_success(clause: str, bare: str, contrast: bool) -> Claim | None:
    hypothetical = re.search(r"\b(?:if|unless|in case|whether)\b", bare)
    if _FAILURE.search(bare) and not hypothetical:
        attempt = not _ABILITY.search(clause)
        return Claim(success=False, text=clause, contrast=contrast, attempt=attempt)
    if _WEAK.search(bare) and not hypothetical:
        return Claim(success=True, text=clause, contrast=contrast)
    return None


@lru_cache(maxsize=256)
def _participles(tool: str) -> re.Pattern[str]:
    verb = tool.split("_")[0].casefold() if tool != "*" else ""
    own = _IRREGULAR.get(verb, verb + ("d" if verb.endswith("e") else "ed")) if verb.isalpha() else ""
    forms = sorted({*_DONE.split(), own} - {""}, key=lambda form: (-len(form), form))
    return re.compile(r"\b(?:" + "|".join(map(re.escape, forms)) + r")\b")
