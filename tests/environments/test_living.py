"""People's conversations met again: their words, no holdout, and no verdict that nothing bears out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loop.cli.files import write_noun
from loop.core.checks import Avoids
from loop.core.contract import Contract, Criterion, Half, Scenario
from loop.core.conversation import Reply
from loop.core.episode import Episode, Record, Split, Task, Turn
from loop.core.errors import UserError
from loop.core.living import LIVING, LivingExport
from loop.core.score import case_score, passed
from loop.environments.living import Living
from loop.judges.rules import Rules
from tests import fakes


def talk(case: str, *turns: tuple[str, str]) -> Episode:
    task = Task(environment=LIVING, case=case, split=Split.TRAIN, seed=0)
    told = tuple(Turn.model_validate({"role": role, "content": content}) for role, content in turns)
    return Episode(task=task, pair="", sample=0, seed=0, turns=told, record=Record())


TWO = talk("a", ("system", "A friend."), ("user", "hello"), ("assistant", "hi"), ("user", "and?"), ("assistant", "so"))
ONE = talk("b", ("user", "what now"), ("assistant", "that"), ("user", "nobody answered this"))
TOOLS = talk("c", ("user", "find it"), ("assistant", "call"), ("tool", "{}"), ("assistant", "found"))


def written(folder: Path, *episodes: Episode) -> Living:
    write_noun(LivingExport(episodes=episodes), folder / "export.json", "export")
    return Living(path=str(folder / "export.json"))


def looking() -> Contract:
    """A contract that says what to look for in people's conversations."""
    criterion = Criterion(
        id="plain",
        axiom="forward_movement",
        text="Says so plainly.",
        check=Avoids(kind="avoids", forms=("as an AI",)),
    )
    scenario = Scenario(
        id="living",
        name="Living",
        environment=LIVING,
        provenance="this-project",
        pole_a="",
        pole_b="",
        axioms=("forward_movement",),
        criteria=(criterion,),
    )
    return fakes.contract().revise(scenarios=(scenario,))


def test_the_users_side_is_said_word_for_word_whatever_is_replied(tmp_path: Path) -> None:
    living = written(tmp_path, TWO, ONE)
    rollout = living.rollout(TWO.task, fakes.harness(), fakes.contract())
    first = next(rollout)
    second = rollout.send(Reply(text="something else"))
    assert [(m.role, m.content) for m in first.messages] == [("system", "A friend."), ("user", "hello")]
    assert [m.content for m in second.messages] == ["and?"] and first.label == "" and first.tools is False
    with pytest.raises(StopIteration) as end:
        rollout.send(Reply(text="another"))
    assert end.value.value.failure is None
    assert living.text(ONE.task, fakes.contract()) == "what now"


def test_tasks_go_round_the_conversations_without_tools_and_none_is_a_holdouts(tmp_path: Path) -> None:
    living, contract = written(tmp_path, TWO, ONE, TOOLS), fakes.contract()
    tasks = living.tasks(contract, Split.TRAIN, 5, 7, (1,))
    assert len({task.digest for task in tasks}) == 5 and {task.case for task in tasks[:2]} == {"a", "b"}
    assert tasks == living.tasks(contract, Split.TRAIN, 5, 7, (1,))
    assert living.tasks(contract, Split.HOLDOUT, 5, 7, (1,)) == ()


def test_a_conversation_that_was_taken_out_is_not_met_again(tmp_path: Path) -> None:
    living = written(tmp_path, TWO, ONE)
    assert len({task.case for task in living.tasks(fakes.contract(), Split.TRAIN, 2, 1, (1,))}) == 2
    living = written(tmp_path, ONE)
    assert {task.case for task in living.tasks(fakes.contract(), Split.TRAIN, 2, 1, (1,))} == {"b"}
    with pytest.raises(LookupError, match="no longer holds"):
        next(living.rollout(TWO.task, fakes.harness(), fakes.contract()))


def test_where_the_contract_says_nothing_the_verdict_is_undecided_not_passed() -> None:
    rules, contract = Rules(), looking()
    good, bad = TWO, TWO.revise(turns=(*TWO.turns[:2], Turn(role="assistant", content="As an AI, I cannot.")))
    for silent in (fakes.contract(), contract.revise(scenarios=())):
        assert rules.judge_many(silent, (good, bad), Half.VISIBLE) == ((), ()) and passed(()) is None
        assert case_score((), silent.rule) is None
    verdicts = rules.judge_many(contract, (good, bad), Half.VISIBLE)
    assert [passed(found) for found in verdicts] == [True, False]
    # another environment that a contract forgot is still a mistake
    with pytest.raises(KeyError, match="no scenario"):
        rules.judge(contract, good.revise(task=good.task.revise(environment="twice")), Half.VISIBLE)


def test_a_bad_export_is_one_sentence_and_what_people_said_is_not_in_it(tmp_path: Path) -> None:
    def tasks(living: Living) -> object:
        return living.tasks(fakes.contract(), Split.TRAIN, 1, 1, (1,))

    with pytest.raises(UserError, match="cannot read"):
        tasks(Living(path=str(tmp_path / "nothing.json")))
    with pytest.raises(UserError, match="holds no conversation"):
        tasks(written(tmp_path, TOOLS))
    path = tmp_path / "export.json"
    written(tmp_path, ONE)
    changed = json.loads(path.read_text())
    changed["episodes"][0]["turns"][0]["content"] = "a secret"
    path.write_text(json.dumps(changed))
    with pytest.raises(UserError, match="was changed"):
        tasks(Living(path=str(path)))
    for text in ('{"digest": 1, "episodes": ["a secret"]}', "a secret", "[]"):
        path.write_text(text)
        with pytest.raises(UserError, match="is no export") as error:
            tasks(Living(path=str(path)))
        assert "secret" not in str(error.value)
