"""A night ends in one of ten ways, loses nothing, and says in the morning what came of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from loop.core.night import Ending, Night
from loop.pipeline.generation import plant, run_generation
from loop.pipeline.nightly import Terms, total
from loop.pipeline.parts import Loop
from loop.store.registry import CHAMPION
from tests import fakes
from tests.pipeline.nights import BEGINS, TickingClock, night, parts

ROOT = Path(__file__).parents[2]
# fakes.plan(): 12 tasks in shards of 4 are collected and scored, 40 exam tasks in shards of 20.
WEAK = fakes.plan().revise(profile=fakes.plan().profile.revise(min_rows=10_000))  # trains nothing: rejected


@pytest.fixture
def made(tmp_path: Path) -> Loop:
    return parts(tmp_path)


def undisturbed(folder: Path) -> str:
    """The digest of generation 1 where nothing interferes."""
    loop = parts(folder)
    return run_generation(loop, plant(loop, fakes.pair(), 1), fakes.plan()).digest


def steps(loop: Loop) -> int:
    """Steps recorded by all attempts of the lineage."""
    return int(loop.store.table_counts()["steps"])  # type: ignore[attr-defined]


def test_an_empty_lineage_gets_its_root_and_a_promoted_successor(made: Loop) -> None:
    ended = night(lambda: made)
    one = made.store.generation("test", 1)
    assert (ended.ending, ended.ending.exit_code) == (Ending.PROMOTED, 0)
    assert (ended.parent_number, ended.number, ended.generation) == (0, 1, one.digest)
    assert ended.gain == (one.exam.gain if one.exam else None) and ended.gain is not None and ended.gain.low > 0
    assert total(ended.spent).generated_tokens == one.budget.generated_tokens > 0
    assert not ended.failures and not ended.resumed and ended.tries == 1


def test_the_next_night_grows_from_the_champion(made: Loop) -> None:
    first, second = night(lambda: made), night(lambda: made)
    assert second.parent == first.generation and (second.parent_number, second.number) == (1, 2)
    assert made.store.status("test").lease is None  # type: ignore[attr-defined]


def test_after_a_rejection_the_next_night_tries_another_trial(made: Loop) -> None:
    first = night(lambda: made, plan=WEAK)
    again = night(lambda: made, plan=WEAK)
    assert [first.ending, again.ending] == [Ending.REJECTED, Ending.REJECTED]
    assert [first.trial, again.trial] == [0, 1] and first.ending.exit_code == 10
    assert first.reasons and first.attempt != again.attempt
    assert {g.number for g in made.store.generations("test")} == {0, 1}


def test_a_champion_that_was_rolled_back_has_nothing_to_grow(made: Loop) -> None:
    night(lambda: made)
    root = made.store.generation("test", 0)
    made.store.point("test", "local", CHAMPION, root, "a bad day")  # type: ignore[attr-defined]
    before = steps(made)
    ended = night(lambda: made)
    assert ended.ending is Ending.NOTHING_TO_DO and "rollback 1" in ended.next_step
    assert steps(made) == before


@pytest.mark.parametrize(
    ("terms", "word"),
    [
        (Terms(tokens=100), "tokens"),
        (Terms(seconds=25.0), "seconds"),
    ],
)
def test_out_of_budget_it_stops_between_steps_and_the_next_nights_go_on_to_the_same_digest(
    made: Loop, tmp_path: Path, terms: Terms, word: str
) -> None:
    elsewhere = tmp_path / "undisturbed"
    elsewhere.mkdir()
    nights: list[Night] = []
    recorded = []
    while not nights or nights[-1].ending is Ending.OUT_OF_BUDGET:
        nights.append(night(lambda: made, terms, clock=TickingClock(tick=5.0)))
        recorded.append(steps(made))
    *stopped, last = nights
    assert len(stopped) >= 2 and all(word in ended.text and ended.ending.exit_code == 12 for ended in stopped)
    assert all("resumes attempt" in ended.next_step for ended in stopped)
    assert recorded == sorted(set(recorded)), "every night gets further"
    assert last.ending is Ending.PROMOTED and last.generation == undisturbed(elsewhere)
    assert [ended.resumed for ended in nights] == [False] + [True] * len(stopped)
    # What the nights say they spent adds up to what the generation says it cost.
    whole = sum((total(ended.spent).generated_tokens for ended in nights), 0)
    assert whole == made.store.generation("test", 1).budget.generated_tokens


def test_the_first_step_runs_even_under_the_smallest_budget(made: Loop) -> None:
    ended = night(lambda: made, Terms(tokens=1))
    assert ended.ending is Ending.OUT_OF_BUDGET
    # 4 tasks x 4 samples x 2 turns x 2 tokens (fakes): one shard and no more
    assert total(ended.spent).generated_tokens == 64


class DearJudge(fakes.RecordJudge):
    """Its verdicts count as calls of a language model."""

    def judge(self, *arguments: object) -> tuple[fakes.Verdict, ...]:
        return tuple(v.revise(judge="model", calls=1) for v in super().judge(*arguments))  # type: ignore[arg-type]


def test_judges_stop_when_tonights_money_is_spent(tmp_path: Path) -> None:
    made = parts(tmp_path, judge=DearJudge())
    ended = night(lambda: made, Terms(judge_cost=0.30, judge_price=0.01))
    # 16 verdicts a shard: after two shards 0.32 of 0.30 is spent, before the third begins.
    assert (ended.ending, ended.judge_cost) == (Ending.OUT_OF_BUDGET, pytest.approx(0.32))
    assert total(ended.spent).judge_calls == 32


def test_at_the_windows_end_it_stops_and_the_next_night_resumes(made: Loop, tmp_path: Path) -> None:
    closes = Terms(closes=BEGINS + timedelta(seconds=30))
    first = night(lambda: made, closes, clock=TickingClock(tick=10.0))
    assert (first.ending, first.ending.exit_code) == (Ending.WINDOW_CLOSED, 14)
    second = night(lambda: made)
    assert second.resumed and second.attempt == first.attempt
    elsewhere = tmp_path / "undisturbed"
    elsewhere.mkdir()
    assert second.generation == undisturbed(elsewhere)


def test_a_stage_that_breaks_is_tried_again_after_pauses_that_double(tmp_path: Path) -> None:
    sound, broken = parts(tmp_path), parts(tmp_path, engine=fakes.ScriptedEngine(breaks=True))
    opened = iter([sound, broken, broken, sound])  # the first is asked for its store alone
    clock = TickingClock()
    ended = night(lambda: next(opened), Terms(retries=2, pause_seconds=30.0), clock=clock)
    assert ended.ending is Ending.PROMOTED and ended.tries == 3
    assert clock.pauses == [30.0, 60.0]
    assert len(ended.failures) == 2 and all("device fell off the bus" in text for text in ended.failures)


def test_what_stays_broken_fails_with_its_cause_and_nothing_is_lost(tmp_path: Path) -> None:
    broken = parts(tmp_path, engine=fakes.ScriptedEngine(breaks=True))
    ended = night(lambda: broken, Terms(retries=1))
    assert (ended.ending, ended.ending.exit_code, ended.tries) == (Ending.FAILED, 1, 2)
    assert "device fell off the bus" in ended.text and "resumes attempt" in ended.next_step
    mended = night(lambda: parts(tmp_path))
    assert mended.ending is Ending.PROMOTED and mended.attempt == ended.attempt


def test_no_retry_waits_beyond_the_window(tmp_path: Path) -> None:
    broken, clock = parts(tmp_path, engine=fakes.ScriptedEngine(breaks=True)), TickingClock()
    terms = Terms(retries=5, pause_seconds=30.0, closes=BEGINS + timedelta(seconds=50))
    assert night(lambda: broken, terms, clock=clock).ending is Ending.FAILED
    assert clock.pauses == [30.0]


def test_changed_settings_are_refused_once_and_never_retried(made: Loop) -> None:
    night(lambda: made, Terms(tokens=1))
    clock = TickingClock()
    ended = night(lambda: made, Terms(retries=5), plan=fakes.plan(seed=2), clock=clock)
    assert (ended.ending, ended.ending.exit_code, ended.tries) == (Ending.REFUSED, 2, 1)
    assert "seed: 1 -> 2" in ended.text and "--fresh" in ended.text and clock.pauses == []
    anew = night(lambda: made, Terms(fresh=True), plan=fakes.plan(seed=2))
    assert anew.ending is Ending.PROMOTED and not anew.resumed


def test_a_fresh_trial_that_breaks_is_resumed_by_its_retry(tmp_path: Path) -> None:
    sound, broken = parts(tmp_path), parts(tmp_path, engine=fakes.ScriptedEngine(breaks=True))
    night(lambda: sound, Terms(tokens=1))
    opened = iter([sound, broken, sound])
    ended = night(lambda: next(opened), Terms(fresh=True, retries=1))
    assert (ended.ending, ended.trial, ended.tries) == (Ending.PROMOTED, 1, 2)


def test_a_held_lineage_is_left_alone_and_its_holder_named(made: Loop) -> None:
    with made.store.lease("test", "last night's run"):
        ended = night(lambda: made)
        assert (ended.ending, ended.ending.exit_code) == (Ending.HELD, 3)
        assert "last night's run" in ended.text and str(os.getpid()) in ended.text
    assert made.store.generations("test") == ()


def test_a_late_run_waits_for_the_holder_no_longer_than_its_window(made: Loop) -> None:
    clock = TickingClock()
    terms = Terms(waits=True, closes=BEGINS + timedelta(seconds=50))
    with made.store.lease("test", "last night's run"):
        assert night(lambda: made, terms, clock=clock).ending is Ending.HELD
    assert clock.pauses == [20.0, 20.0, 10.0]


def test_a_night_that_is_interrupted_says_so_and_resumes(tmp_path: Path) -> None:
    class Interrupted(fakes.ScriptedEngine):
        def generate(self, *arguments: object) -> fakes.EngineReport:
            raise KeyboardInterrupt

    stopped = night(lambda: parts(tmp_path, engine=Interrupted()))
    assert (stopped.ending, stopped.ending.exit_code) == (Ending.INTERRUPTED, 130)
    assert night(lambda: parts(tmp_path)).attempt == stopped.attempt


def test_the_post_mortem_can_be_kept_in_the_store(made: Loop) -> None:
    ended = night(lambda: made)
    assert made.store.load(Night, made.store.save(ended)) == ended


def test_every_ending_has_an_exit_code_of_its_own() -> None:
    codes = [ending.exit_code for ending in Ending]
    assert len(set(codes)) == len(codes) == 10
    assert {ending.exit_code for ending in Ending if ending.calm} == {0, 10, 11, 12, 13, 14}


def start(home: Path, seconds: float, executor: str = "here") -> subprocess.Popen[str]:
    """A night as a process of its own, ready to begin."""
    command = [sys.executable, "-m", "tests.pipeline.nights", str(home), str(seconds), executor]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    expect(process, "ready")
    return process


def expect(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline() == f"{word}\n", process.stderr.read()


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def test_of_two_nights_that_start_together_exactly_one_runs(tmp_path: Path) -> None:
    parts(tmp_path)  # the schema stands
    both = [start(tmp_path, 0.2) for _ in range(2)]
    for process in both:
        go(process)
    said = [process.communicate(timeout=120)[0] for process in both]
    assert sorted(process.returncode for process in both) == [0, 3], said
    loser = next(json.loads(out) for process, out in zip(both, said, strict=True) if process.returncode == 3)
    winner = next(process for process in both if process.returncode == 0)
    assert f"process {winner.pid}" in loser["text"] and "macaron-loop nightly" in loser["text"]
    assert [g.number for g in parts(tmp_path).store.generations("test")] == [0, 1]


@pytest.mark.parametrize("jobs", [1, 3, 6, 9])
def test_a_night_that_is_killed_is_resumed_to_the_digest_of_an_undisturbed_one(tmp_path: Path, jobs: int) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "undisturbed"
    for folder in (home, elsewhere):
        folder.mkdir()
    process = start(home, 0.05)
    go(process)
    for _ in range(jobs):
        expect(process, "working")
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    assert [g.number for g in parts(home).store.generations("test")] == [0]
    ended = night(lambda: parts(home))
    assert ended.resumed and ended.ending is Ending.PROMOTED
    assert ended.generation == undisturbed(elsewhere)
    killed, whole = (parts(folder).store.generation("test", 1).budget for folder in (home, elsewhere))
    assert killed.generated_tokens == whole.generated_tokens and killed.trained_tokens == whole.trained_tokens


@pytest.mark.parametrize("executor", ["here", "ray"])
def test_sigterm_ends_a_night_like_ctrl_c_also_where_ray_meets_it_first(tmp_path: Path, executor: str) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "undisturbed"
    for folder in (home, elsewhere):
        folder.mkdir()
    process = start(home, 0.3, executor)
    go(process)
    expect(process, "working")
    process.send_signal(signal.SIGTERM)
    said, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert json.loads(said.splitlines()[-1])["ending"] == Ending.INTERRUPTED
    ended = night(lambda: parts(home))
    assert ended.resumed and ended.ending is Ending.PROMOTED
    assert ended.generation == undisturbed(elsewhere)
