"""Checks on what truly happened: the tool log, the world's end state, and numbers against what was shown."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

from loop.core.case import Transcript
from loop.core.checks import EndState, GroundedNumbers, ReportsOutcome, ToolCalled, ToolNotCalled
from loop.core.episode import ToolCall
from loop.core.numbers import grounded, numbers
from loop.core.outcome import report
from loop.core.wording import words
from loop.judges.finding import Finding, breach, decided, holds, nothing_said, said_in, span, undecided

_MISSING = object()


def grounded_numbers(check: GroundedNumbers, transcript: Transcript) -> Finding:
    """Each number in each reply was shown to the agent before that reply."""
    said = said_in(transcript, None)
    if not said:
        return nothing_said(None)
    count = 0
    for one in said:
        shown = numbers(transcript.seen(one.index))
        for number in numbers(one.text):
            count += 1
            if not grounded(number, shown):
                return breach(f"{number.text!r} was never shown: {span(one.text)}")
    return holds(f"all {count} numbers were shown before" if count else "no number is stated")


def reports_outcome(check: ReportsOutcome, transcript: Transcript) -> Finding:
    """The last reply says what the log of the tool says (see ``loop.core.outcome``)."""
    if not transcript.replies:
        return nothing_said(None)
    found = report(transcript.replies[-1], transcript.calls, check.tool)
    return undecided(found.evidence) if found.value is None else decided(found.value, found.evidence)


def tool_called(check: ToolCalled, transcript: Transcript) -> Finding:
    """A call that ran, with at least these arguments, in time, and as often as asked."""
    if _is_silent(transcript):
        return nothing_said(None)
    named = [call for call in transcript.calls if call.name == check.name and call.ok is not None]
    right = [call for call in named if matches(call.arguments, check.args)]
    timely = [call for call in right if check.by_turn is None or call.turn <= check.by_turn]
    limit = "" if check.by_turn is None else f" by turn {check.by_turn}"
    if check.times is not None:
        return decided(len(timely) == check.times, f"{len(timely)} such calls{limit}, wanted {check.times}")
    if timely:
        return holds(f"called {_shown(timely[0])}")
    if right:
        return breach(f"called {_shown(right[0])}, which is not{limit}")
    wanted = json.dumps(check.args, ensure_ascii=False, sort_keys=True)
    seen = "; ".join(map(_shown, named or transcript.calls)) or "no call"
    return breach(f"no valid call of {check.name} with {wanted}; the log has {seen}")


def tool_not_called(check: ToolNotCalled, transcript: Transcript) -> Finding:
    """No call of the tool ran; one that the world refused counts as called."""
    if _is_silent(transcript):
        return nothing_said(None)
    mine = [call for call in transcript.calls if call.ok is not None and check.name in ("*", call.name)]
    if mine:
        return breach(f"called {_shown(mine[0])}")
    return holds(f"no call of {check.name} in a log of {len(transcript.calls)}")


def end_state(check: EndState, transcript: Transcript) -> Finding:
    """The world holds the value at the path; mappings match as subsets."""
    if _is_silent(transcript):
        return nothing_said(None)
    found = at_path(transcript.world, check.path)
    if found is _MISSING:
        return breach(f"the world has nothing at {check.path!r}")
    state = span(json.dumps(found, ensure_ascii=False, sort_keys=True))
    return decided(matches(found, check.equals), f"{check.path} is {state}, wanted {json.dumps(check.equals)}")


def matches(found: Any, wanted: JsonValue) -> bool:
    """Whether a value is as wanted: texts without case, numbers by value, mappings as subsets."""
    if isinstance(wanted, Mapping):
        return isinstance(found, Mapping) and all(
            key in found and matches(found[key], item) for key, item in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(found, list)
            and len(found) == len(wanted)
            and all(matches(mine, item) for mine, item in zip(found, wanted, strict=True))
        )
    if isinstance(wanted, bool) or isinstance(found, bool):
        return found is wanted
    if isinstance(wanted, str) and isinstance(found, str):
        return wanted == found or (bool(words(wanted)) and words(wanted) == words(found))
    return bool(found == wanted)


def at_path(world: Any, path: str) -> Any:
    """The value at a dotted path, or a marker when there is none; a key may itself hold dots."""
    if not path:
        return world
    if isinstance(world, list):
        head, _, rest = path.partition(".")
        return at_path(world[int(head)], rest) if head.isdecimal() and int(head) < len(world) else _MISSING
    if not isinstance(world, Mapping):
        return _MISSING
    keys = sorted((str(key) for key in world), key=lambda key: (-len(key), key))
    for key in keys:
        if path == key or path.startswith(key + "."):
            found = at_path(world[key], path[len(key) + 1 :])
            if found is not _MISSING:
                return found
    return _MISSING


def _is_silent(transcript: Transcript) -> bool:
    """Replies were given and none holds a word; facts alone (no reply at all) can be checked."""
    return bool(transcript.replies) and not any(words(reply) for reply in transcript.replies)


def _shown(call: ToolCall) -> str:
    return f"{call.name}{json.dumps(call.arguments, ensure_ascii=False, sort_keys=True)} in turn {call.turn}"
