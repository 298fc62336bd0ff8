"""Playing turns in tests: a harness of three specialists, and an engine that is a function of the ask."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeVar

from loop.core.conversation import Say, Timeline, Turned
from loop.core.episode import Ask, Completion
from loop.core.hop import Hop
from loop.core.pair import Harness, Message, Prompt, Routing
from loop.core.session import SessionRules
from loop.mol.runtime import sum_up, turn

T = TypeVar("T")
Answers = Callable[[Ask], str]


def harness(**session: object) -> Harness:
    prompts = tuple(Prompt(label=f"L{n}", role=f"role {n}", system=f"You are L{n}.") for n in range(3))
    routing = Routing(prompt="Choose:\n{labels}", labels=("L0", "L1", "L2"), fallback="L0")
    rules = SessionRules.model_validate(session)
    return Harness(schema_version=1, name="t", prompts=prompts, routing=routing, session=rules)


def played(asking: Generator[Ask, Completion, T], answers: Answers) -> tuple[T, list[Ask]]:
    """Drive a turn to its end; returns it and what was asked."""
    asks: list[Ask] = []
    completion = None
    while True:
        try:
            ask = next(asking) if completion is None else asking.send(completion)
        except StopIteration as end:
            result: T = end.value
            return result, asks
        asks.append(ask)
        completion = Completion(text=answers(ask), prompt_ids=(1, 2), token_ids=(3,), logprobs=(0.0,), finish="stop")


def say(text: str, label: str = "", role: str = "user") -> Say:
    return Say(messages=(Message.model_validate({"role": role, "content": text}),), label=label)


def talk(rules: Harness, answers: Answers, *said: Say) -> tuple[Turned, list[list[Ask]]]:
    """A conversation: each turn with its summaries written after it; the last turn, and the asks by turn."""
    timeline, asked = Timeline(), []
    for each in said:
        turned, asks = played(turn(rules, timeline, each), answers)
        summed, more = played(sum_up(rules, turned.timeline), answers)
        assert summed.timeline.entries[: len(turned.timeline.entries)] == turned.timeline.entries
        timeline = summed.timeline
        asked.append([*asks, *more])
        last = turned.revise(timeline=timeline)
    return last, asked


def keyed(ask: Ask) -> str:
    """A router that obeys the word before a colon ("L1: find it"), specialists that say who they are."""
    if ask.hop is Hop.ROUTE:
        message = ask.messages[-1].content.rpartition("Message: ")[2]
        return message.partition(":")[0]
    if ask.hop is Hop.SUMMARY:
        return "It was done."
    return f"{ask.label} heard {len(ask.messages)} messages."
