"""The simulated user: what a persona says next, decided by conditions and seed, never by a model."""

from __future__ import annotations

import random
from collections.abc import Mapping

from pydantic import JsonValue

from loop.core.case import Transcript, fill_text, holds
from loop.core.contract import Condition, Persona, Scenario
from loop.core.noun import Noun, seed_from


class Script(Noun):
    """What the user has in store: things said once when a condition holds, and lines to go on with.

    Every text is filled. ``follow_ups`` are used in order, one a turn in which nothing is
    disclosed; ``closes`` end the conversation after ``min_turns`` user turns.
    """

    disclosures: tuple[tuple[tuple[Condition, ...], str], ...]
    follow_ups: tuple[str, ...]
    closes: tuple[Condition, ...]
    min_turns: int
    max_turns: int


def script(scenario: Scenario, persona: Persona, transcript: Transcript, seed: int) -> Script:
    """The script of one case: the scenario's disclosures, then the persona's hidden needs.

    The persona's own follow-ups come first, then the scenario's in an order drawn by seed.
    """
    slots = transcript.slots
    disclosures = [(entry.when, entry.text) for entry in scenario.disclosures]
    needs = [(need.when, need.text) for need in persona.needs]
    shared = list(scenario.follow_ups)
    random.Random(seed_from("follow_ups", scenario.id, persona.id, seed)).shuffle(shared)
    lines = (*persona.follow_ups.get(scenario.id, ()), *shared)
    return Script(
        disclosures=tuple((_filled(when, slots), fill_text(text, slots)) for when, text in (*disclosures, *needs)),
        follow_ups=tuple(fill_text(line, slots) for line in lines),
        closes=_filled(scenario.closes, slots),
        min_turns=scenario.min_turns,
        max_turns=scenario.max_turns,
    )


def _filled(conditions: tuple[Condition, ...], slots: Mapping[str, JsonValue]) -> tuple[Condition, ...]:
    """The conditions with the case's values in the texts they look for."""
    return tuple(
        condition.revise(
            asked=None if condition.asked is None else fill_text(condition.asked, slots),
            mentioned=None if condition.mentioned is None else fill_text(condition.mentioned, slots),
        )
        for condition in conditions
    )


def next_message(plan: Script, transcript: Transcript) -> str | None:
    """What the user says after the replies so far, or None when the conversation is over.

    Depends on nothing but the script and the transcript: what was said before is read from
    ``transcript.users``.
    """
    said = len(transcript.users)
    now = len(transcript.replies)
    if said >= plan.max_turns:
        return None
    if said >= plan.min_turns and plan.closes and holds(plan.closes, transcript, now):
        return None
    earlier = "\n".join(transcript.users)
    due = [text for when, text in plan.disclosures if text not in earlier and holds(when, transcript, now)]
    if due:
        return " ".join(due)
    unused = (line for line in plan.follow_ups if line not in transcript.users)
    return next(unused, None)
