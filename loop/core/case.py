"""From contract to case: seeded slots, the criteria that apply, conditions over a conversation, and its score."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import JsonValue

from loop.core.contract import Condition, Contract, Criterion, Half, Persona, Scenario, Slot
from loop.core.episode import Episode, Record, Split, Task, ToolCall
from loop.core.living import LIVING
from loop.core.noun import Noun, seed_from
from loop.core.outcome import report
from loop.core.score import CaseScore, Verdict, axiom_scores, case_score, passed
from loop.core.wording import begins_word, questions, spoken

CONVERSATIONS = "scenarios"

_SLOT = re.compile(r"\{\{|\}\}|\{([A-Za-z_]\w*(?:\.\w+)*)\}")
_WHOLE = re.compile(r"^\{([A-Za-z_]\w*(?:\.\w+)*)\}$")
# Only these fields of a check hold typed values; every other field holds texts.
_TYPED_FIELDS = frozenset({"args", "equals"})


class Transcript(Noun):
    """A conversation as conditions and checks see it, whole or still going on.

    ``replies`` are the assistant's texts in order, counted from 1 as ``turn``; ``shown[i]``
    is all the text (user, tool, system) the agent had been shown before reply ``i``;
    ``heard[i]`` the user's texts before it; ``finishes[i]`` is the engine's finish reason.
    Shorter ``shown``, ``heard`` and ``finishes`` read as unknown.
    """

    users: tuple[str, ...] = ()
    replies: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    heard: tuple[tuple[str, ...], ...] = ()
    finishes: tuple[str, ...] = ()
    calls: tuple[ToolCall, ...] = ()
    world: dict[str, JsonValue] = {}
    slots: dict[str, JsonValue] = {}

    def before(self, reply: int) -> tuple[str, ...]:
        """What the user had said before the reply at this index (from 0)."""
        return self.heard[reply] if reply < len(self.heard) else self.users

    def seen(self, reply: int) -> str:
        """What the agent had been shown before the reply at this index (from 0)."""
        return self.shown[reply] if reply < len(self.shown) else "\n".join(self.users)


def transcript_of(episode: Episode) -> Transcript:
    """The transcript of a finished episode, from its turns and its record."""
    replies: list[str] = []
    shown: list[str] = []
    heard: list[tuple[str, ...]] = []
    finishes: list[str] = []
    users: list[str] = []
    seen: list[str] = []
    for turn in episode.turns:
        if turn.role != "assistant":
            seen.append(turn.content)
            users.extend([turn.content] if turn.role == "user" else [])
            continue
        replies.append(turn.content)
        shown.append("\n".join(seen))
        heard.append(tuple(users))
        finishes.append(turn.finish)
    return Transcript(
        users=tuple(users),
        replies=tuple(replies),
        shown=tuple(shown),
        heard=tuple(heard),
        finishes=tuple(finishes),
        calls=episode.record.calls,
        world=episode.record.world,
        slots=episode.record.slots,
    )


def scenario_of(contract: Contract, task: Task) -> Scenario:
    """The scenario a task is judged by: named in its case, or the one of its skill environment.

    KeyError when the contract has none.
    """
    if task.environment == CONVERSATIONS:
        return contract.scenario(task.case.split("/")[0])
    for scenario in contract.scenarios:
        if scenario.environment == task.environment:
            return scenario
    raise KeyError(f"the contract has no scenario for the environment {task.environment!r}")


def persona_of(contract: Contract, task: Task) -> Persona:
    """The persona of a ``scenario/persona`` task, from the bank of the task's split; KeyError when absent."""
    name = task.case.partition("/")[2]
    for persona in contract.bank(task.split).personas:
        if persona.id == name:
            return persona
    raise KeyError(f"the {task.split} bank has no persona {name!r}")


def draw_slots(contract: Contract, scenario: Scenario, split: Split, seed: int) -> dict[str, JsonValue]:
    """The case's drawn values: the same for the same seed, from pools no other split shares.

    Each slot is drawn from its own stream, so that adding one leaves the others as they
    are; two slots of one pool never get the same value while the pool lasts. A drawn text
    may itself hold ``{other_slot}``.
    """
    drawn: dict[str, JsonValue] = {}
    taken: dict[str, list[JsonValue]] = {}
    for name in sorted(scenario.slots):
        slot = scenario.slots[name]
        chance = random.Random(seed_from("slot", scenario.id, name, split.value, seed))
        drawn[name] = _draw(contract, slot, split, chance, taken)
    return {name: fill(value, drawn) for name, value in drawn.items()}


def _draw(
    contract: Contract, slot: Slot, split: Split, chance: random.Random, taken: dict[str, list[JsonValue]]
) -> JsonValue:
    if slot.probability is not None:
        return chance.random() < slot.probability
    if slot.range is not None:
        return chance.randint(*slot.range)
    if slot.choice:
        return slot.choice[chance.randrange(len(slot.choice))]
    pool = contract.bank(split).pools[str(slot.pool)]
    used = taken.setdefault(str(slot.pool), [])
    free = [value for value in pool if value not in used] or list(pool)
    value = free[chance.randrange(len(free))]
    used.append(value)
    return value


def case_slots(contract: Contract, task: Task) -> dict[str, JsonValue]:
    """Everything a conversation's texts and criteria may name: the drawn slots and the persona.

    Beside the scenario's slots: ``persona``, ``stage``, ``tone``, ``emotion``, the
    booleans ``first_contact``, ``acquainted`` and ``close`` (for conditions), and
    ``fact_1``, ``fact_2``, ...
    """
    persona = persona_of(contract, task)
    drawn = draw_slots(contract, scenario_of(contract, task), task.split, task.seed)
    stages: dict[str, JsonValue] = {name: persona.stage == name for name in ("first_contact", "acquainted", "close")}
    facts: dict[str, JsonValue] = {f"fact_{i}": fill(fact, drawn) for i, fact in enumerate(persona.facts, start=1)}
    about: dict[str, JsonValue] = {
        "persona": persona.name,
        "stage": persona.stage,
        "tone": persona.tone,
        "emotion": persona.emotion,
    }
    return {**about, **stages, **facts, **drawn}


def opening(contract: Contract, task: Task, slots: Mapping[str, JsonValue]) -> str:
    """The user's first message: one of the persona's openings for the scenario, drawn by seed and filled."""
    scenario = scenario_of(contract, task)
    persona = persona_of(contract, task)
    texts = persona.openings[scenario.id]
    chance = random.Random(seed_from("opening", scenario.id, persona.id, task.split.value, task.seed))
    return str(text_of(fill_text(texts[chance.randrange(len(texts))], slots)))


def fill(value: Any, slots: Mapping[str, JsonValue]) -> Any:
    """The value with ``{slot}`` and ``{slot.key}`` replaced in every string, at any depth.

    A string that is exactly ``{slot}`` becomes the slot's value with its type. ``{{`` and
    ``}}`` are literal braces. KeyError names a slot that was not drawn.
    """
    if isinstance(value, str):
        whole = _WHOLE.match(value)
        return _lookup(whole.group(1), slots) if whole else fill_text(value, slots)
    if isinstance(value, Mapping):
        return {fill_text(str(key), slots): fill(item, slots) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(fill(item, slots) for item in value)
    return value


def fill_text(text: str, slots: Mapping[str, JsonValue]) -> str:
    """The text with each slot written out: lists with commas, whole floats as integers."""

    def written(match: re.Match[str]) -> str:
        name = match.group(1)
        return match.group(0)[0] if name is None else text_of(_lookup(name, slots))

    return _SLOT.sub(written, text)


def text_of(value: JsonValue) -> str:
    """A slot's value as a person would write it in a sentence."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list):
        return ", ".join(text_of(item) for item in value)
    return "" if value is None else str(value)


def _lookup(name: str, slots: Mapping[str, JsonValue]) -> Any:
    value: Any = slots
    for key in name.split("."):
        if not isinstance(value, Mapping) or key not in value:
            raise KeyError(f"no slot {name!r}; drawn are {sorted(slots)}")
        value = value[key]
    return value


def criteria_for(
    contract: Contract, task: Task, record: Record, half: Half, transcript: Transcript | None = None
) -> tuple[Criterion, ...]:
    """The criteria of that half, filled from the record's slots.

    With a transcript, those whose ``when`` does not hold at its end are left out (and are
    not filled: a slot that only such a case has may be missing). People's conversations have
    none, and are undecided, under a contract that does not say what to look for in them.
    """
    if task.environment == LIVING and all(scenario.environment != LIVING for scenario in contract.scenarios):
        return ()
    chosen = (c for c in scenario_of(contract, task).criteria if c.half is half)
    if transcript is not None:
        chosen = (c for c in chosen if holds(c.when, transcript, len(transcript.replies)))
    return tuple(filled(criterion, record.slots) for criterion in chosen)


def filled(criterion: Criterion, slots: Mapping[str, JsonValue]) -> Criterion:
    """A criterion with the case's values; a list slot that stands alone in a list is spliced in."""
    check = criterion.check.model_dump()
    values = {
        name: fill(value, slots) if name in _TYPED_FIELDS else _as_texts(value, slots) for name, value in check.items()
    }
    return criterion.revise(check=values, text=fill_text(criterion.text, slots))


def _as_texts(value: Any, slots: Mapping[str, JsonValue]) -> Any:
    if isinstance(value, str):
        return fill_text(value, slots)
    if not isinstance(value, (list, tuple)):
        return value
    items: list[Any] = []
    for item in value:
        whole = _WHOLE.match(item) if isinstance(item, str) else None
        inside = _lookup(whole.group(1), slots) if whole else None
        items.extend([text_of(part) for part in inside] if isinstance(inside, list) else [_as_texts(item, slots)])
    return tuple(items)


def _stands(value: JsonValue) -> bool:
    """Whether a slot is true, or a text that is not empty; a number is neither."""
    return value is True or (isinstance(value, str) and value != "")


def holds(conditions: Sequence[Condition], transcript: Transcript, upto_turn: int) -> bool:
    """Whether any condition holds after the first ``upto_turn`` replies; with no condition, True."""
    return not conditions or any(_holds(condition, transcript, upto_turn) for condition in conditions)


def _holds(condition: Condition, transcript: Transcript, upto_turn: int) -> bool:
    replies = tuple(spoken(reply) for reply in transcript.replies[:upto_turn])
    calls = tuple(call for call in transcript.calls if call.turn <= upto_turn)
    asked, mentioned = condition.asked, condition.mentioned
    tests = (
        condition.turn is None or len(replies) >= condition.turn,
        asked is None or any(begins_word(q, asked) for reply in replies for q in questions(reply)),
        mentioned is None or any(begins_word(reply, mentioned) for reply in replies),
        condition.tool_failed is None or _ran(calls, condition.tool_failed, ok=False),
        condition.tool_ok is None or _ran(calls, condition.tool_ok, ok=True),
        condition.slot is None or _stands(transcript.slots.get(condition.slot)),
        condition.reported_outcome is None or _reported(replies, calls) is condition.reported_outcome,
    )
    return all(tests)


def _ran(calls: Sequence[ToolCall], name: str, ok: bool) -> bool:
    return any(call.ok is ok and name in ("*", call.name) for call in calls)


def _reported(replies: Sequence[str], calls: Sequence[ToolCall]) -> bool:
    return bool(replies) and report(replies[-1], calls, "*").value is True


def score_episode(contract: Contract, episode: Episode, verdicts: Sequence[Verdict]) -> CaseScore:
    """One episode's score under the contract's rule; a Failure is unscored and keeps no verdict."""
    if episode.failure is not None:
        return CaseScore(
            episode=episode.digest,
            task=episode.task,
            sample=episode.sample,
            score=None,
            passed=None,
            failure=episode.failure,
        )
    return CaseScore(
        episode=episode.digest,
        task=episode.task,
        sample=episode.sample,
        score=case_score(verdicts, contract.rule),
        passed=passed(verdicts),
        axioms=axiom_scores(verdicts),
        verdicts=tuple(verdicts),
    )
