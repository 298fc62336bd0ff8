"""From contract to case: seeds, banks, filling, conditions."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue, ValidationError

from loop.core.case import (
    Transcript,
    case_slots,
    criteria_for,
    draw_slots,
    fill,
    fill_text,
    filled,
    holds,
    opening,
    persona_of,
    transcript_of,
)
from loop.core.contract import Bank, Condition, Contract, Criterion, Half, Scenario
from loop.core.episode import Episode, Record, Split, Task, ToolCall, Turn
from loop.library import default_root, load_contract

CONTRACT = load_contract(default_root())
TALKS = [scenario for scenario in CONTRACT.scenarios if scenario.environment == "scenarios"]


def task(scenario: str, split: Split = Split.TRAIN, seed: int = 1) -> Task:
    personas = [p.id for p in CONTRACT.bank(split).personas if scenario in p.openings]
    return Task(environment="scenarios", case=f"{scenario}/{personas[0]}", split=split, seed=seed)


def criterion(check: dict[str, object], **more: object) -> Criterion:
    return Criterion.model_validate({"id": "c", "axiom": "honest_counsel", "text": "t", "check": check, **more})


def test_the_same_seed_gives_the_same_case_and_another_seed_another() -> None:
    scenario = CONTRACT.scenario("tool_task")
    first = [draw_slots(CONTRACT, scenario, Split.TRAIN, seed) for seed in range(20)]
    again = [draw_slots(CONTRACT, scenario, Split.TRAIN, seed) for seed in range(20)]
    assert first == again
    assert len({json.dumps(slots, sort_keys=True) for slots in first}) == 20


def test_a_reloaded_contract_draws_the_same_slots() -> None:
    again = Contract.model_validate(json.loads(json.dumps(CONTRACT.model_dump(mode="json"), sort_keys=True)))
    for scenario in TALKS:
        mine = again.scenario(scenario.id)
        assert draw_slots(again, mine, Split.TRAIN, 7) == draw_slots(CONTRACT, scenario, Split.TRAIN, 7)


def test_the_banks_share_no_persona_no_name_and_no_pool_value() -> None:
    train, holdout = CONTRACT.bank(Split.TRAIN), CONTRACT.bank(Split.HOLDOUT)
    assert not {p.id for p in train.personas} & {p.id for p in holdout.personas}
    assert not {p.name for p in train.personas} & {p.name for p in holdout.personas}
    assert train.pools.keys() == holdout.pools.keys()
    for name, pool in train.pools.items():
        assert not {str(value).casefold() for value in pool} & {str(value).casefold() for value in holdout.pools[name]}


def test_pooled_slots_of_the_two_splits_never_meet() -> None:
    for scenario in TALKS:
        pooled = [name for name, slot in scenario.slots.items() if slot.pool]
        for name in pooled:
            values = {
                split: {str(draw_slots(CONTRACT, scenario, split, seed)[name]) for seed in range(60)} for split in Split
            }
            assert not values[Split.TRAIN] & values[Split.HOLDOUT]


def test_a_contract_with_a_persona_in_both_banks_is_refused() -> None:
    train = CONTRACT.bank(Split.TRAIN)
    copied = Bank(split=Split.HOLDOUT, personas=train.personas, pools={})
    with pytest.raises(ValidationError, match="personas in both banks"):
        CONTRACT.revise(banks=(train, copied))


def test_every_scenario_has_four_personas_in_each_bank_and_both_halves_measure_both_poles() -> None:
    assert len(TALKS) == 7
    for scenario in TALKS:
        for split in Split:
            assert sum(scenario.id in p.openings for p in CONTRACT.bank(split).personas) >= 4
        for half in Half:
            assert {c.pole.value for c in scenario.criteria if c.half is half} >= {"A", "B"}


def test_an_opening_is_filled_and_names_the_drawn_values() -> None:
    for split in Split:
        one = task("tool_task", split)
        slots = case_slots(CONTRACT, one)
        text = opening(CONTRACT, one, slots)
        written = list(persona_of(CONTRACT, one).openings["tool_task"])
        for name, slot in slots.items():
            written = [line.replace("{" + name + "}", str(slot)) for line in written]
        assert text in written and str(slots["place"]) in text and "{" not in text
        assert persona_of(CONTRACT, one).id in one.case


def test_a_personas_stage_is_a_slot_that_conditions_can_use() -> None:
    slots = case_slots(CONTRACT, task("emotional_support"))
    stage = persona_of(CONTRACT, task("emotional_support")).stage
    assert [name for name in ("first_contact", "acquainted", "close") if slots[name] is True] == [stage]
    assert holds((Condition(slot=stage),), Transcript(slots=slots), 0)


def test_a_lone_slot_keeps_its_type_and_a_slot_in_a_text_is_written_out() -> None:
    slots: dict[str, JsonValue] = {
        "hour": 19,
        "place": {"name": "Old Mill"},
        "free": [20, 21],
        "yes": True,
        "half": 2.0,
    }
    assert fill({"h": "{hour}", "deep": [{"x": "{place.name}"}]}, slots) == {"h": 19, "deep": [{"x": "Old Mill"}]}
    assert fill("at {hour}:00", slots) == "at 19:00"
    assert fill("{free}", slots) == [20, 21]
    assert fill_text("{free} {yes} {half} {{hour}}", slots) == "20, 21 true 2 {hour}"
    assert fill({"bookings.{hour}": 1}, slots) == {"bookings.19": 1}


def test_a_slot_that_was_not_drawn_is_named() -> None:
    with pytest.raises(KeyError, match="no slot 'plaze'"):
        fill("{plaze}", {"place": 1})


@given(st.text(alphabet=st.characters(exclude_characters="{}")))
def test_text_without_braces_is_left_alone(text: str) -> None:
    assert fill_text(text, {}) == text


def test_a_checks_numbers_become_texts_but_arguments_keep_their_type() -> None:
    called = criterion({"kind": "tool_called", "name": "book", "args": {"hour": "{hour}"}})
    assert filled(called, {"hour": 19}).check.model_dump()["args"] == {"hour": 19}
    named = criterion({"kind": "mentions", "groups": [["{hour}", "{free}"]]})
    assert filled(named, {"hour": 19, "free": [20, 21]}).check.model_dump()["groups"] == (("19", "20", "21"),)


def test_only_the_asked_half_and_only_applying_criteria_are_given() -> None:
    one = task("tool_task")
    slots = case_slots(CONTRACT, one)
    call = ToolCall(turn=1, name="book_table", ok=True)
    worked = Transcript(replies=("", "Done."), calls=(call,), slots=slots)
    record = Record(slots=slots, calls=(call,))
    sealed = {c.id for c in criteria_for(CONTRACT, one, record, Half.SEALED, worked)}
    assert "sealed_success_by_meaning" in sealed and "sealed_failure_by_meaning" not in sealed
    visible = {c.id for c in criteria_for(CONTRACT, one, record, Half.VISIBLE, worked)}
    assert "reports_what_happened" in visible and not visible & sealed


def test_a_skill_is_judged_by_the_scenario_of_its_environment() -> None:
    skill: Scenario = next(s for s in CONTRACT.scenarios if s.environment == "tools")
    one = Task(environment="tools", case="anything", split=Split.TRAIN, seed=0)
    ids = {c.id for c in criteria_for(CONTRACT, one, Record(), Half.VISIBLE)}
    assert ids == {c.id for c in skill.criteria if c.half is Half.VISIBLE}
    with pytest.raises(KeyError, match="no scenario for the environment 'gardening'"):
        criteria_for(CONTRACT, one.revise(environment="gardening"), Record(), Half.VISIBLE)


FAILED = ToolCall(turn=1, name="book", ok=False, result={"reason": "closed"})


@pytest.mark.parametrize(
    ("condition", "replies", "expected"),
    [
        ({"asked": "flexib"}, ["Are you flexible on the hour?"], True),
        ({"asked": "flexib"}, ["I am flexible. Is that good?"], False),
        ({"asked": "flexib"}, ["Is it inflexible?"], False),
        ({"asked": "flexib"}, ['He said "are you flexible?" to me.'], False),
        ({"mentioned": "Café"}, ["the CAFE is open"], True),
        ({"mentioned": "cafe"}, ["a decafe"], False),
        ({"turn": 2}, ["one"], False),
        ({"turn": 2}, ["one", "two"], True),
        ({"tool_failed": "book"}, ["x"], True),
        ({"tool_failed": "*"}, ["x"], True),
        ({"tool_failed": "cancel"}, ["x"], False),
        ({"tool_ok": "book"}, ["x"], False),
        ({"reported_outcome": True}, ["It failed."], True),
        ({"reported_outcome": True}, ["It is booked."], False),
        ({"reported_outcome": False}, ["It is booked."], True),
        ({"reported_outcome": True}, ["It failed.", "Nice weather."], False),
        ({"slot": "deciding"}, ["x"], True),
        ({"slot": "other"}, ["x"], False),
        ({"slot": "deciding", "turn": 2}, ["x"], False),
    ],
)
def test_a_condition_holds_when_every_given_field_does(
    condition: dict[str, object], replies: list[str], expected: bool
) -> None:
    so_far = Transcript(replies=tuple(replies), calls=(FAILED,), slots={"deciding": True, "other": 1})
    assert holds((Condition.model_validate(condition),), so_far, len(replies)) is expected


def test_conditions_are_alternatives_none_is_no_limit_and_later_turns_are_not_seen() -> None:
    so_far = Transcript(replies=("Hello.", "Is it warm?"))
    warm = Condition(asked="warm")
    assert holds((), so_far, 0)
    assert holds((Condition(turn=9), warm), so_far, 2)
    assert not holds((warm,), so_far, 1)
    late = Transcript(replies=("a", "b"), calls=(FAILED.revise(turn=2),))
    assert not holds((Condition(tool_failed="*"),), late, 1)


def test_a_transcript_knows_what_was_shown_before_each_reply() -> None:
    turns = (
        Turn(role="user", content="Book at 19."),
        Turn(role="assistant", content="call", finish="stop"),
        Turn(role="tool", content="free: 21"),
        Turn(role="assistant", content="21 is free", finish="length"),
        Turn(role="user", content="fine"),
    )
    one = Task(environment="tools", case="x", split=Split.TRAIN, seed=0)
    read = transcript_of(Episode(task=one, pair="p", sample=0, seed=1, turns=turns, record=Record()))
    assert read.replies == ("call", "21 is free")
    assert read.shown == ("Book at 19.", "Book at 19.\nfree: 21")
    assert read.heard == (("Book at 19.",), ("Book at 19.",))
    assert read.users == ("Book at 19.", "fine")
    assert read.finishes == ("stop", "length")
