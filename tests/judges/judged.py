"""A contract with judged criteria, conversations to judge by it, and judges to do it."""

from __future__ import annotations

from loop.core.case import case_slots, opening
from loop.core.checks import Judged
from loop.core.contract import Contract, Labelled
from loop.core.episode import Episode, Record, Split, Task, Turn
from loop.judges.llm import LlmJudge
from loop.remote.endpoint import Endpoint
from tests.judges.talk import contract

SCENARIO = "emotional_support"
KIND, CLEAR = "is_kind", "is_clear"


def judged_contract(samples: int = 3) -> Contract:
    """The contract of this checkout with two judged criteria in one scenario, and labelled replies for them."""
    scenario = contract().scenario(SCENARIO)
    asked = tuple(
        scenario.criteria[0].revise(
            id=name, text=text, veto=False, when=(), check=Judged(kind="judge", rubric=rubric, samples=samples)
        )
        for name, text, rubric in (
            (KIND, "The reply is kind.", "Holds when the reply is warm to the user."),
            (CLEAR, "The reply is clear.", "Holds when the reply can be understood at once."),
        )
    )
    labelled = tuple(
        Labelled(
            criterion=criterion.id,
            user=("I failed my exam.",),
            holds=tuple(f"That hurts, and I am with you {n}." for n in range(3)),
            breaches=tuple(f"Whatever {n}." for n in range(3)),
        )
        for criterion in asked
    )
    changed = scenario.revise(
        criteria=(*scenario.criteria, *asked), labelled=(*scenario.labelled, *labelled), max_turns=2
    )
    others = tuple(s for s in contract().scenarios if s.id != SCENARIO)
    return contract().revise(scenarios=(*others, changed))


def conversation(reply: str, seed: int = 3) -> Episode:
    """One turn of the scenario, answered by this reply."""
    persona = next(p.id for p in contract().bank(Split.TRAIN).personas if SCENARIO in p.openings)
    task = Task(environment="scenarios", case=f"{SCENARIO}/{persona}", split=Split.TRAIN, seed=seed)
    slots = case_slots(contract(), task)
    turns = (
        Turn(role="user", content=opening(contract(), task, slots)),
        Turn(role="assistant", content=reply, finish="stop"),
    )
    return Episode(task=task, pair="p", sample=0, seed=1, turns=turns, record=Record(slots=slots))


def judge_at(*urls: str, models: tuple[str, ...] = ("one", "two", "three"), **options: object) -> LlmJudge:
    """A judge of these endpoints that pauses next to nothing between its tries."""
    endpoints = tuple(Endpoint(url=url, model=model) for url, model in zip(urls, models, strict=False))
    return LlmJudge.model_validate({"endpoints": endpoints, "backoff": 0.001, "retries": 2, **options})
