"""The conversation scenarios of the contract, played with its simulated user (specialist L0)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from loop.core.case import CONVERSATIONS, Transcript, case_slots, fill_text, opening, persona_of, scenario_of
from loop.core.contract import Contract, Persona, Scenario
from loop.core.conversation import Say
from loop.core.episode import Outcome, Record, Split, Task
from loop.core.noun import Noun, seed_from
from loop.core.pair import Harness, Message
from loop.environments.scenario_tools import Desk, exposure, find_call
from loop.environments.user import next_message, script
from loop.ports import Rollout


class Scenarios(Noun):
    """Short conversations: a persona opens, the agent answers (with tools where there are some).

    ``calls_a_turn`` limits the tool calls that run between two messages of the user.
    """

    calls_a_turn: int = 2

    @property
    def name(self) -> str:
        """``scenarios``."""
        return CONVERSATIONS

    @property
    def label(self) -> str:
        """The chat specialist."""
        return "L0"

    @property
    def levels(self) -> int:
        """Conversations are no ladder."""
        return 1

    def tasks(self, contract: Contract, split: Split, count: int, seed: int, levels: Sequence[int]) -> tuple[Task, ...]:
        """``count`` distinct tasks in turn over the scenarios, and within each over its personas.

        Where the count is no multiple, the seed decides which personas come first.
        """
        cases = _cases(contract, split)
        return tuple(_task(cases, split, seed, number) for number in range(count))

    def rollout(self, task: Task, harness: Harness, contract: Contract) -> Rollout:
        """Play one conversation; the record holds the slots, the tool log and the world's end state.

        Raises KeyError when the contract lacks the task's scenario or persona, or the
        harness a prompt for the label.
        """
        scenario, persona = scenario_of(contract, task), persona_of(contract, task)
        slots = case_slots(contract, task)
        desk = Desk(scenario, slots)
        users, replies = [opening(contract, task, slots)], list[str]()
        plan = script(scenario, persona, Transcript(slots=slots), task.seed)
        messages = _first_words(scenario, persona, slots, users[0])
        calls_left = self.calls_a_turn
        while True:
            reply = yield Say(messages=messages, label=self.label, tools=bool(scenario.tools))
            replies.append(reply.text)
            wanted = find_call(reply.text, scenario.tools) if scenario.tools else None
            if wanted is not None and calls_left > 0:
                calls_left -= 1
                result = desk.run(wanted, len(replies))
                messages = (Message(role="tool", content=json.dumps(result, ensure_ascii=False)),)
                continue
            if wanted is not None:
                desk.refuse(wanted, len(replies))
            so_far = Transcript(users=tuple(users), replies=tuple(replies), calls=tuple(desk.calls), slots=slots)
            answer = next_message(plan, so_far)
            if answer is None:
                return Outcome(record=Record(slots=slots, world=desk.world, calls=tuple(desk.calls)))
            users.append(answer)
            messages = (Message(role="user", content=answer),)
            calls_left = self.calls_a_turn

    def text(self, task: Task, contract: Contract) -> str:
        """The user's first message."""
        return opening(contract, task, case_slots(contract, task))


def _cases(contract: Contract, split: Split) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Each conversation scenario with the personas of the split that have an opening for it."""
    personas = contract.bank(split).personas
    return tuple(
        (scenario.id, tuple(persona.id for persona in personas if persona.openings.get(scenario.id)))
        for scenario in contract.scenarios
        if scenario.environment == CONVERSATIONS
    )


def _task(cases: Sequence[tuple[str, tuple[str, ...]]], split: Split, seed: int, number: int) -> Task:
    scenario, personas = cases[number % len(cases)]
    first = seed_from("persona", seed, split.value, scenario)
    persona = personas[(first + number // len(cases)) % len(personas)]
    case_seed = seed_from("case", seed, split.value, scenario, persona, number)
    return Task(environment=CONVERSATIONS, case=f"{scenario}/{persona}", split=split, seed=case_seed)


def _first_words(
    scenario: Scenario, persona: Persona, slots: Mapping[str, JsonValue], text: str
) -> tuple[Message, ...]:
    """The user's first message, with the tools named below it, or with what is remembered of the user before it.

    A stranger is not remembered; of an acquaintance one fact is known, of a friend all.
    """
    if scenario.tools:
        return (Message(role="user", content=f"{text}\n{exposure(scenario.tools)}"),)
    known = {"first_contact": 0, "acquainted": 1, "close": len(persona.facts)}[persona.stage]
    opening_words = Message(role="user", content=text)
    if not known:
        return (opening_words,)
    relation = "an old friend" if persona.stage == "close" else "an acquaintance"
    facts = " ".join(fill_text(fact, slots) for fact in persona.facts[:known])
    memory = f"The user is {persona.name}, {relation}. {facts}"
    return (Message(role="system", content=memory), opening_words)
