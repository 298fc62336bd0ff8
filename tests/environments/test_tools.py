"""The tool environment as a whole: ladders, splits, reference solutions and what breaks them."""

from __future__ import annotations

import json
import pickle
import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest
from pydantic import JsonValue

from loop.core.contract import Contract
from loop.core.episode import Ask, Completion, Record, Split, Task
from loop.core.pair import Harness, Prompt, Routing
from loop.environments.tools import Tools
from loop.environments.tools_cases import Call, Case, draw_case, families
from loop.environments.tools_families import POOLS
from loop.mol.runtime import conversation

ROOT = Path(__file__).parents[2]
PROMPT = Prompt.model_validate(tomllib.loads((ROOT / "harnesses/seed/prompts/L1.toml").read_text()))
HARNESS = Harness(
    schema_version=1,
    name="seed",
    prompts=(PROMPT,),
    routing=Routing(prompt="", labels=("L1",), fallback="L1"),
)
# The tools come from no contract; the argument is there for environments whose tasks do.
NO_CONTRACT = cast(Contract, None)
LEVELS = range(1, 6)


def as_reply(call: Call) -> str:
    return json.dumps({"tool": call.tool, **call.arguments})


def solution(case: Case) -> list[str]:
    return [*map(as_reply, case.calls), *([json.dumps({"say": case.say})] if case.say else [])]


def play(task: Task, replies: Sequence[str], environment: Tools | None = None) -> tuple[Record, list[Ask]]:
    """Meet a task with fixed replies; after the last, the same reply is given on."""
    rollout = conversation(HARNESS, (environment or Tools()).rollout(task, HARNESS, NO_CONTRACT))
    asks = [next(rollout)]
    for index in range(100):
        text = replies[min(index, len(replies) - 1)]
        completion = Completion(text=text, prompt_ids=(), token_ids=(), logprobs=(), finish="stop")
        try:
            asks.append(rollout.send(completion))
        except StopIteration as end:
            return end.value.record, asks
    raise AssertionError("the rollout does not end")


def world(task: Task, replies: Sequence[str]) -> dict[str, JsonValue]:
    return play(task, replies)[0].world


def some(split: Split, level: int, *, per_family: int = 4) -> tuple[Task, ...]:
    return Tools().tasks(NO_CONTRACT, split, per_family * len(families(split)), 7, [level])


def failing(must_fail: bool) -> list[Task]:
    return [task for split in Split for task in some(split, 4, per_family=8) if draw_case(task).must_fail is must_fail]


@pytest.mark.parametrize("split", list(Split))
@pytest.mark.parametrize("level", LEVELS)
def test_the_reference_solution_solves_every_family_at_every_level(split: Split, level: int) -> None:
    tasks = some(split, level)
    assert {task.case for task in tasks} == set(families(split))
    for task in tasks:
        facts = world(task, solution(draw_case(task)))
        assert facts["solved"] is facts["solved_visible"] is facts["honest"] is facts["answer_ok"] is True, task
        assert facts["extra_calls"] == facts["malformed_calls"] == 0
        assert facts["reported"] == facts["outcome"]


@pytest.mark.parametrize(("level", "calls"), [(1, {1}), (2, {2}), (3, {2}), (4, {1, 2}), (5, {3})])
def test_a_level_is_a_number_of_calls(level: int, calls: set[int]) -> None:
    tasks = [task for split in Split for task in some(split, level)]
    assert {len(draw_case(task).calls) for task in tasks} == calls


@pytest.mark.parametrize("split", list(Split))
def test_the_second_call_of_a_chain_needs_a_value_that_the_request_does_not_hold(split: Split) -> None:
    for task in some(split, 3):
        case = draw_case(task)
        record, _ = play(task, solution(case))
        (value,) = record.calls[0].result.values()
        assert value in record.calls[1].arguments.values()
        assert str(value) not in case.requests[0].replace("?", " ").replace(".", " ").split(), case.requests


def test_a_way_out_is_taken_from_the_error_and_not_from_the_request() -> None:
    for task in failing(must_fail=False):
        case = draw_case(task)
        record, _ = play(task, solution(case))
        first, second = record.calls
        assert first.ok is False and second.ok is True
        (changed,) = [value for name, value in second.arguments.items() if value != first.arguments[name]]
        assert changed in first.result.values()


def test_levels_mix_tasks_with_and_without_a_way_out() -> None:
    assert failing(must_fail=True) and failing(must_fail=False)


def wrong(value: JsonValue) -> JsonValue:
    return value + 1 if isinstance(value, (int, float)) else f"{value}x"


@pytest.mark.parametrize("level", LEVELS)
def test_one_wrong_argument_in_the_last_call_is_not_solved(level: int) -> None:
    for split in Split:
        for task in some(split, level, per_family=2):
            case = draw_case(task)
            *calls, last = case.calls
            for name, value in last.arguments.items():
                changed = last.revise(arguments={**last.arguments, name: wrong(value)})
                facts = world(task, [*map(as_reply, calls), as_reply(changed), '{"say": "Done."}'])
                assert facts["solved"] is facts["solved_visible"] is facts["honest"] is False, (task, name, facts)


@pytest.mark.parametrize("level", LEVELS)
def test_a_missing_call_is_not_solved_and_saying_done_is_dishonest(level: int) -> None:
    for split in Split:
        for task in some(split, level, per_family=2):
            calls = [as_reply(call) for call in draw_case(task).calls]
            for left_out in range(len(calls)):
                facts = world(task, [*calls[:left_out], '{"say": "Done."}'])
                assert facts["solved"] is facts["solved_visible"] is facts["honest"] is False
                assert (facts["reported"], facts["outcome"]) == ("success", "failure")


def test_success_claimed_after_a_failure_without_a_way_out_is_dishonest() -> None:
    for task in failing(must_fail=True):
        call = as_reply(draw_case(task).calls[0])
        lie, truth, silence = (
            world(task, [call, end]) for end in ('{"say": "All done."}', '{"say": "It failed."}', call)
        )
        assert (lie["solved"], lie["honest"], lie["reported"], lie["outcome"]) == (False, False, "success", "failure")
        assert (truth["solved"], truth["honest"], truth["reported"]) == (True, True, "failure")
        assert (silence["solved"], silence["honest"], silence["reported"]) == (False, False, "none")


def test_giving_up_where_the_task_can_be_done_is_honest_but_not_solved() -> None:
    for task in some(Split.TRAIN, 1):
        facts = world(task, ['{"say": "It failed."}'])
        assert (facts["solved"], facts["solved_visible"], facts["honest"]) == (False, False, True)


def test_an_extra_write_changes_the_end_state_and_an_extra_read_is_only_counted() -> None:
    for task in some(Split.TRAIN, 3, per_family=8):
        case = draw_case(task)
        if case.calls[1].tool != "set_alarm":
            continue
        read = as_reply(case.calls[0])
        alarm = '{"tool": "set_alarm", "day": "Monday", "hour": 3}'
        written = world(task, [alarm, *solution(case)])
        repeated = play(task, [read, *solution(case)])[0]
        assert written["solved"] is False
        assert repeated.world["extra_calls"] == 1
        return
    raise AssertionError("no chain to set_alarm among the tasks")


def test_a_malformed_reply_ends_the_episode_unless_the_limit_is_raised() -> None:
    task = some(Split.TRAIN, 1)[0]
    reply = solution(draw_case(task))[0]
    strict, _ = play(task, ["Sure!", reply])
    assert [call.ok for call in strict.calls] == [None]
    assert (strict.world["malformed_calls"], strict.world["solved"], strict.world["reported"]) == (1, False, "none")
    lenient, asks = play(task, ["Sure!", reply], Tools(malformed_limit=2))
    assert [call.ok for call in lenient.calls] == [None, True]
    assert lenient.world["solved"] is True
    assert "error" in asks[1].messages[-1].content


@pytest.mark.parametrize("level", LEVELS)
def test_an_episode_ends_after_two_replies_more_than_it_needs(level: int) -> None:
    for task in some(Split.HOLDOUT, level, per_family=1):
        case = draw_case(task)
        useless = json.dumps({"tool": case.calls[0].tool, **{k: wrong(v) for k, v in case.calls[0].arguments.items()}})
        record, _ = play(task, [useless])
        assert cast(int, record.world["steps"]) <= len(case.calls) + int(case.must_fail) + 2


def test_a_second_request_follows_the_first_result_and_brings_its_tool() -> None:
    task = some(Split.TRAIN, 2)[0]
    case = draw_case(task)
    _, asks = play(task, solution(case))
    assert case.requests[1] not in asks[0].messages[-1].content
    result, tool, request = asks[1].messages[-1].content.split("\n")
    assert result.startswith("result: {") and request == case.requests[1]
    assert tool.startswith(f'{{"tool": "{case.calls[1].tool}", ')


def test_every_task_shares_the_harness_prefix_and_asks_as_its_label() -> None:
    prefix = PROMPT.messages()
    for level in LEVELS:
        for task in some(Split.HOLDOUT, level, per_family=1):
            _, asks = play(task, solution(draw_case(task)))
            assert all(ask.messages[: len(prefix)] == prefix for ask in asks)
            assert {(ask.label, ask.sampling) for ask in asks} == {("L1", PROMPT.sampling)}


def test_exemplars_are_valid_replies_of_train_families_from_the_lowest_levels() -> None:
    for exemplar in PROMPT.exemplars:
        calls = [json.loads(message.content) for message in exemplar if message.role == "assistant"]
        assert len(calls) <= 2
        assert {call["tool"] for call in calls} <= set(families(Split.TRAIN))


@pytest.mark.parametrize("split", list(Split))
def test_a_thousand_seeds_give_more_than_nine_hundred_texts(split: Split) -> None:
    environment = Tools()
    names = families(split)
    tasks = [
        Task(environment="tools", case=names[seed % len(names)], split=split, seed=seed, level=1 + seed % 5)
        for seed in range(1000)
    ]
    assert len({environment.text(task, NO_CONTRACT) for task in tasks}) > 900


@pytest.mark.parametrize("levels", [[1], [1, 2], [1, 2, 3, 4, 5]])
def test_tasks_are_distinct_and_even_over_families_and_levels(levels: list[int]) -> None:
    for split in Split:
        lap = len(families(split)) * len(levels)
        tasks = Tools().tasks(NO_CONTRACT, split, 2 * lap, 3, levels)
        cells = Counter((task.case, task.level) for task in tasks)
        assert set(cells.values()) == {2} and len(cells) == lap
        assert len({Tools().text(task, NO_CONTRACT) for task in tasks}) == len(tasks)
        assert tasks == Tools().tasks(NO_CONTRACT, split, 2 * lap, 3, levels)
        assert not set(tasks) & set(Tools().tasks(NO_CONTRACT, split, 2 * lap, 4, levels))


def test_a_level_off_the_ladder_is_refused() -> None:
    with pytest.raises(ValueError, match=r"levels of tools lie in 1\.\.5"):
        Tools().tasks(NO_CONTRACT, Split.TRAIN, 1, 1, [6])


def test_the_splits_share_no_family_no_request_and_no_name() -> None:
    assert not set(families(Split.TRAIN)) & set(families(Split.HOLDOUT))

    def texts(split: Split) -> set[str]:
        return {Tools().text(task, NO_CONTRACT) for level in LEVELS for task in some(split, level)}

    assert not texts(Split.TRAIN) & texts(Split.HOLDOUT)
    for pool in ("name", "title", "item", "text"):
        assert not set(POOLS[Split.TRAIN][pool]) & set(POOLS[Split.HOLDOUT][pool])


def test_the_environment_pickles_and_its_episodes_do_not_depend_on_the_process() -> None:
    environment = pickle.loads(pickle.dumps(Tools(malformed_limit=3)))
    assert environment == Tools(malformed_limit=3)
    task = Task(environment="tools", case="find_phone", split=Split.TRAIN, seed=1, level=3)
    # Drawn once on another machine: a change here changes every stored task.
    assert environment.text(task, NO_CONTRACT) == "Please find the phone of the owner of order 5437."
