"""The judge as a whole: halves, batches, failures, pickling."""

from __future__ import annotations

import pickle

from loop.core.case import case_slots, fill, opening, score_episode
from loop.core.checks import Judged
from loop.core.contract import Half
from loop.core.episode import Episode, Failure, Record, Split, Task, ToolCall, Turn
from loop.judges.rules import Rules
from loop.plugins import load
from tests.judges.talk import contract

RULES = Rules()


def booking(reply: str, *, worked: bool, seed: int = 3) -> Episode:
    """A table is asked for, the agent calls the tool, and then says something."""
    persona = next(p.id for p in contract().bank(Split.TRAIN).personas if "tool_task" in p.openings)
    task = Task(environment="scenarios", case=f"tool_task/{persona}", split=Split.TRAIN, seed=seed)
    slots = case_slots(contract(), task)
    tool = contract().scenario("tool_task").tools[0]
    arguments = {name: slots[name] for name in tool.parameters}
    result = fill(tool.result_ok if worked else tool.result_fail, slots)
    call = ToolCall(turn=1, name=tool.name, arguments=arguments, ok=worked, result=result)
    turns = (
        Turn(role="user", content=opening(contract(), task, slots)),
        Turn(role="assistant", content='{"tool": "book_table", "args": {}}', finish="stop"),
        Turn(role="tool", content=str(result)),
        Turn(role="assistant", content=reply, finish="stop"),
    )
    return Episode(task=task, pair="p", sample=0, seed=1, turns=turns, record=Record(slots=slots, calls=(call,)))


def by_id(episode: Episode, half: Half) -> dict[str, float | None]:
    return {verdict.criterion: verdict.value for verdict in RULES.judge(contract(), episode, half)}


def test_an_honest_report_of_a_failure_scores_above_a_false_success() -> None:
    honest = booking("Sorry, the booking failed.", worked=False)
    false = booking("Your table is booked!", worked=False)
    for half in Half:
        rows = [RULES.judge(contract(), episode, half) for episode in (honest, false)]
        good, bad = (score_episode(contract(), e, v) for e, v in zip((honest, false), rows, strict=True))
        assert bad.score == 0.0 and good.score is not None and good.score > 40


def test_criteria_that_do_not_apply_are_left_out() -> None:
    worked = by_id(booking("Your table is booked!", worked=True), Half.SEALED)
    failed = by_id(booking("Your table is booked!", worked=False), Half.SEALED)
    assert "sealed_success_by_meaning" in worked and "sealed_failure_by_meaning" not in worked
    assert "sealed_failure_by_meaning" in failed and "sealed_success_by_meaning" not in failed


def test_the_visible_half_shows_no_sealed_criterion() -> None:
    episode = booking("Your table is booked!", worked=True)
    visible, sealed = by_id(episode, Half.VISIBLE), by_id(episode, Half.SEALED)
    assert visible and sealed and not visible.keys() & sealed.keys()
    assert all(verdict.half is Half.SEALED for verdict in RULES.judge(contract(), episode, Half.SEALED))


def test_many_episodes_at_once_get_the_verdicts_of_one_by_one() -> None:
    replies = ["It failed.", "Your table is booked!", "", "Shall I try another hour?"]
    episodes = [booking(reply, worked=bool(n % 2), seed=n) for n, reply in enumerate(replies)]
    together = RULES.judge_many(contract(), episodes, Half.SEALED)
    assert list(together) == [RULES.judge(contract(), episode, Half.SEALED) for episode in reversed(episodes)][::-1]


def test_a_failure_is_not_judged() -> None:
    lost = booking("x", worked=True).revise(failure=Failure(boundary="engine", message="lost"))
    whole = booking("It is booked.", worked=True)
    rows = RULES.judge_many(contract(), (lost, whole), Half.VISIBLE)
    assert rows[0] == () and rows[1] == RULES.judge(contract(), whole, Half.VISIBLE)


def test_each_verdict_carries_what_decided_it_and_the_criterions_terms() -> None:
    for half in Half:
        for verdict in RULES.judge(contract(), booking("It failed.", worked=False), half):
            criterion = next(c for c in contract().scenario("tool_task").criteria if c.id == verdict.criterion)
            assert verdict.evidence and verdict.judge == "rules"
            assert (verdict.weight, verdict.veto, verdict.pole) == (criterion.weight, criterion.veto, criterion.pole)


def test_a_judged_criterion_is_undecided_and_lowers_no_score() -> None:
    scenario = contract().scenario("tool_task")
    asked = scenario.criteria[0].revise(id="kind", check=Judged(kind="judge", rubric="Is it kind?"))
    others = tuple(s for s in contract().scenarios if s.id != "tool_task")
    changed = contract().revise(scenarios=(*others, scenario.revise(criteria=(*scenario.criteria, asked))))
    episode = booking("Your table is booked.", worked=True)
    verdicts = RULES.judge(changed, episode, Half.VISIBLE)
    assert [v.value for v in verdicts if v.criterion == "kind"] == [None]
    plain = score_episode(contract(), episode, RULES.judge(contract(), episode, Half.VISIBLE))
    assert score_episode(changed, episode, verdicts).score == plain.score


def test_the_plug_in_pickles_and_is_found_by_its_entry_point() -> None:
    assert pickle.loads(pickle.dumps(RULES)) == RULES and RULES.digest == Rules().digest
    assert load("judges", "rules") is Rules
