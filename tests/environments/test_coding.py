"""The coding ladder: solvable at every rung, unlike on both sides, and closed to cheats."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from loop.core.episode import Ask, Completion, Record, Split, Task
from loop.core.pair import Harness, Message, Prompt, Routing, Sampling
from loop.environments.coding import Coding, exercise_of
from loop.environments.coding_exercise import LEVELS
from loop.environments.coding_families import FAMILIES
from loop.mol.runtime import conversation

ROOT = Path(__file__).parents[2]
CODING = Coding()
CONTRACT: Any = None  # the environment takes nothing from the contract
CASES = [(split, family.name, level) for split in Split for family in FAMILIES[split] for level in range(1, LEVELS + 1)]


@pytest.fixture(scope="module")
def harness() -> Harness:
    """A harness with the seed's own prompt for L2."""
    text = (ROOT / "harnesses" / "seed" / "prompts" / "L2.toml").read_text(encoding="utf-8")
    document = tomllib.loads(text)
    exemplars = tuple(tuple(Message(**message) for message in shot["messages"]) for shot in document["exemplars"])
    sampling = Sampling(**{**document["sampling"], "stop": tuple(document["sampling"]["stop"])})
    prompt = Prompt(
        label=document["label"],
        role=document["role"],
        system=document["system"],
        exemplars=exemplars,
        sampling=sampling,
    )
    routing = Routing(prompt="", labels=("L2",), fallback="L2")
    return Harness(schema_version=1, name="test", prompts=(prompt,), routing=routing)


def play(task: Task, harness: Harness, *replies: str) -> tuple[Record, list[Ask]]:
    """Drive a rollout with these replies; returns the record and what was asked."""
    rollout = conversation(harness, CODING.rollout(task, harness, CONTRACT))
    asked = [next(rollout)]
    for reply in replies:
        completion = Completion(text=reply, prompt_ids=(1,), token_ids=(2,), logprobs=(0.0,), finish="stop")
        try:
            asked.append(rollout.send(completion))
        except StopIteration as end:
            assert end.value.failure is None
            return end.value.record, asked
    raise AssertionError("the rollout asked for more replies than were given")


def task_of(split: Split, family: str, level: int, seed: int = 7) -> Task:
    return Task(environment="coding", case=family, split=split, seed=seed, level=level)


@pytest.mark.parametrize(("split", "family", "level"), CASES)
def test_the_reference_solves_each_family_at_each_level(
    split: Split, family: str, level: int, harness: Harness
) -> None:
    for seed in range(6):
        task = task_of(split, family, level, seed)
        record, asked = play(task, harness, exercise_of(task).reference)
        world = record.world
        assert (world["visible_failed"], world["hidden_failed"]) == (0, 0), exercise_of(task)
        assert world["ran"] and world["contained"] and not world["timed_out"] and not world["forbidden"]
        assert world["lines"] == 2 and len(asked) == 1


@pytest.mark.parametrize(("split", "family", "level"), CASES)
def test_a_program_that_memorises_the_visible_tests_fails_hidden_ones(
    split: Split, family: str, level: int, harness: Harness
) -> None:
    task = task_of(split, family, level)
    exercise = exercise_of(task)
    table = {repr(list(test.arguments)): test.expected for test in exercise.visible}
    names = exercise.head[2:-1]
    memorised = f"return {table!r}.get(repr([{names}]), {exercise.visible[0].expected!r})"
    world = play(task, harness, memorised)[0].world
    assert world["visible_failed"] == 0
    assert isinstance(world["hidden_failed"], int) and world["hidden_failed"] > 0


@pytest.mark.parametrize(("split", "family", "level"), CASES)
def test_a_constant_fails_a_visible_test(split: Split, family: str, level: int) -> None:
    for seed in range(6):
        exercise = exercise_of(task_of(split, family, level, seed))
        assert len({repr(test.expected) for test in exercise.visible}) > 1


def test_a_known_task_has_the_tests_worked_out_by_hand() -> None:
    tasks = CODING.tasks(CONTRACT, Split.TRAIN, 200, 3, (1,))
    exercise = next(
        e
        for e in map(exercise_of, tasks)
        if e.request.split("\n")[1].startswith("# a times") and "b plus" not in e.request
    )
    k = int(exercise.request.split("times ")[1].split(" ")[0])
    for test in (*exercise.visible, *exercise.hidden):
        a, b = test.arguments
        assert test.expected == sum([a] * k if k > 0 else []) + b


def test_tasks_are_distinct_deterministic_and_spread() -> None:
    tasks = CODING.tasks(CONTRACT, Split.TRAIN, 150, 11, (1, 2, 3, 4, 5))
    assert tasks == CODING.tasks(CONTRACT, Split.TRAIN, 150, 11, (1, 2, 3, 4, 5))
    assert tasks != CODING.tasks(CONTRACT, Split.TRAIN, 150, 12, (1, 2, 3, 4, 5))
    assert len({CODING.text(task, CONTRACT) for task in tasks}) == 150
    for level in range(1, 6):
        for family in FAMILIES[Split.TRAIN]:
            assert sum(1 for task in tasks if (task.level, task.case) == (level, family.name)) == 10


def test_tasks_do_not_run_out() -> None:
    for split in Split:
        texts = {CODING.text(task, CONTRACT) for task in CODING.tasks(CONTRACT, split, 1200, 1, (1, 2, 3, 4, 5))}
        assert len(texts) == 1200


def test_the_tasks_are_the_same_in_another_process() -> None:
    code = (
        "from loop.core.episode import Split\nfrom loop.environments.coding import Coding, exercise_of\n"
        "from loop.core.noun import digest_of\n"
        "print(digest_of([str(exercise_of(t)) for t in Coding().tasks(None, Split.HOLDOUT, 30, 5, (1, 3, 5))]))"
    )
    seen = set()
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        seen.add(done.stdout)
    assert len(seen) == 1


def test_train_and_holdout_share_neither_families_names_nor_phrases() -> None:
    def phrases(split: Split) -> set[str]:
        parts = [part for f in FAMILIES[split] for part in (*f.terms, *f.doubles, *f.tests, *f.firsts)]
        return {part.words for part in parts} | {frame for f in FAMILIES[split] for frame in f.frames[1:]}

    def names(split: Split) -> set[str]:
        return {name for family in FAMILIES[split] for name in (family.name, *family.names)}

    assert not phrases(Split.TRAIN) & phrases(Split.HOLDOUT)
    assert not names(Split.TRAIN) & names(Split.HOLDOUT)


def test_no_eight_words_of_a_holdout_request_occur_in_train() -> None:
    def grams(split: Split) -> set[tuple[str, ...]]:
        found = set()
        for task in CODING.tasks(CONTRACT, split, 300, 2, (1, 2, 3, 4, 5)):
            words = CODING.text(task, CONTRACT).split()
            found |= {tuple(words[i : i + 8]) for i in range(len(words) - 7)}
        return found

    assert not grams(Split.TRAIN) & grams(Split.HOLDOUT)


def test_the_hidden_tests_are_in_neither_the_request_nor_the_record(harness: Harness) -> None:
    task = task_of(Split.TRAIN, "numbers", 3)
    exercise = exercise_of(task)
    record, asked = play(task, harness, "return 0")
    told = str(asked) + str(record)
    assert not any(test.call in told for test in exercise.hidden)
    assert not {test.call for test in exercise.visible} & {test.call for test in exercise.hidden}


def test_every_task_shares_the_same_prompt_before_its_request(harness: Harness) -> None:
    prefixes = set()
    for split, family, level in CASES:
        asked = next(conversation(harness, CODING.rollout(task_of(split, family, level), harness, CONTRACT)))
        assert asked.label == "L2" and asked.sampling.max_tokens <= 48
        prefixes.add(tuple(message.model_dump_json() for message in asked.messages[:-1]))
    assert len(prefixes) == 1


def test_from_level_4_a_failure_is_shown_once_and_the_last_program_counts(harness: Harness) -> None:
    task = task_of(Split.TRAIN, "lists", 4)
    exercise = exercise_of(task)
    record, asked = play(task, harness, "return xs[99]", exercise.reference)
    assert len(asked) == 2
    complaint = asked[1].messages[-1].content
    assert exercise.visible[0].call in complaint and "IndexError" in complaint
    assert repr(exercise.visible[0].expected) in complaint
    assert asked[1].messages[-2] == Message(role="assistant", content="return xs[99]")
    assert record.world["repaired"] and record.world["hidden_failed"] == 0
    assert record.world["first_visible_failed"] == 3


def test_below_level_4_nothing_is_shown_again(harness: Harness) -> None:
    record, asked = play(task_of(Split.TRAIN, "lists", 3), harness, "return xs[99]")
    assert len(asked) == 1 and not record.world["repaired"] and record.world["visible_failed"] == 3


def test_a_banned_name_is_recorded_although_the_tests_pass(harness: Harness) -> None:
    tasks = [task_of(Split.TRAIN, "lists", 5, seed) for seed in range(20)]
    task = next(task for task in tasks if exercise_of(task).banned == "max")
    reference = exercise_of(task).reference
    record, _ = play(task, harness, reference.replace("sorted(xs)[-1]", "max(xs)"))
    assert record.world["forbidden"] and record.world["hidden_failed"] == 0


@pytest.mark.parametrize(
    ("reply", "facts"),
    [
        ("", {"ran": False, "contained": True, "forbidden": False, "lines": 0}),
        ("I would add them.", {"ran": False, "contained": True, "forbidden": False}),
        ("import os; return 1", {"ran": False, "contained": False, "forbidden": True}),
        ("return __import__('os').system('x')", {"ran": False, "contained": False, "forbidden": True}),
        ("while True: pass", {"ran": False, "contained": True, "timed_out": True}),
        ("return [0] * 10**10", {"ran": True, "contained": True, "timed_out": False}),
        ("return 'x' * 10**6", {"ran": True, "contained": True, "timed_out": False}),
        ("return [['x' * 999] * 99] * 9", {"ran": False, "contained": False, "timed_out": False}),
        ("return f(a, b)", {"ran": True, "contained": True}),
        ("return 2 ** 10**8", {"timed_out": True, "contained": True}),
        ("return lambda: 1", {"ran": True, "contained": True}),
    ],
)
def test_a_hostile_or_useless_reply_is_a_failed_episode_and_never_a_failure(
    reply: str, facts: dict[str, object], harness: Harness
) -> None:
    record, _ = play(task_of(Split.TRAIN, "numbers", 1), harness, reply)
    assert record.world["visible_failed"] == 3 and record.world["hidden_failed"] == 8
    assert {name: record.world[name] for name in facts} == facts


def test_equal_replies_give_equal_records(harness: Harness) -> None:
    task = task_of(Split.TRAIN, "text", 2)
    reply = "return str({s, 'x', 'yy', 'zzz'})"
    assert play(task, harness, reply)[0].digest == play(task, harness, reply)[0].digest


def test_without_isolation_the_rollout_refuses_before_it_asks() -> None:
    code = (
        "from loop.environments.coding import Coding\nfrom loop.core.episode import Split, Task\n"
        "task = Task(environment='coding', case='numbers', split=Split.TRAIN, seed=1)\n"
        "next(Coding().rollout(task, None, None))"
    )
    environment = {**os.environ, "PATH": "/nonexistent", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "SandboxUnavailable" in done.stderr and "install bubblewrap" in done.stderr


def test_the_plug_in_pickles_and_has_a_digest() -> None:
    assert pickle.loads(pickle.dumps(CODING)) == CODING
    assert (CODING.name, CODING.label, CODING.levels) == ("coding", "L2", 5)
    assert len(CODING.digest) == 64
