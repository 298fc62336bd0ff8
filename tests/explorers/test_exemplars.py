"""Exemplar selection keeps what trials show to be better, and only what the train bank gave."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from loop.core.episode import Episode, Record, Split, Task, Turn
from loop.core.pair import Harness
from loop.core.score import CaseScore
from loop.core.training_set import Row, TrainingSet
from loop.explorers.exemplars import Exemplars, better, choose, conversation
from tests import fakes


def _episode(index: int, split: Split = Split.TRAIN) -> Episode:
    task = Task(environment="twice", case=f"family{index % 3}", split=split, seed=index, level=1 + index % 2)
    turns = (Turn(role="user", content=f"ask {index}"), Turn(role="assistant", content=f"one {index}"))
    return Episode(task=task, pair="p", sample=0, seed=1, turns=turns, record=Record())


def _set(episodes: list[Episode]) -> TrainingSet:
    rows = tuple(
        Row(
            episode=episode.digest,
            task=episode.task.digest,
            split=Split.TRAIN,
            environment="twice",
            case=episode.task.case,
            level=1,
            turn=0,
            generation=0,
            licence="x",
            score=100.0,
            prompt_ids=(1,),
            response_ids=(2,),
            text="one",
        )
        for episode in episodes
    )
    return TrainingSet(label="L0", rows=rows)


def _scores(points: list[float | None]) -> tuple[CaseScore, ...]:
    return tuple(
        CaseScore(episode=str(i), task=_episode(i).task, sample=0, score=value, passed=None)
        for i, value in enumerate(points)
    )


@dataclass
class Bench:
    """Trials whose score is 50, or 80 for the exemplar named ``liked``; ``left`` may be played."""

    liked: str
    left: int = 99
    played: list[Harness] = field(default_factory=list)

    def play(self, harness: Harness, label: str) -> tuple[CaseScore, ...] | None:
        if self.left == len(self.played):
            return None
        self.played.append(harness)
        said = [message.content for shot in harness.prompt(label).exemplars for message in shot]
        return _scores([80.0 if self.liked in said else 50.0, 60.0, 60.0 + 10 * (self.liked in said)])


def test_the_candidate_that_wins_its_trial_takes_the_incumbents_place() -> None:
    episodes = [_episode(index) for index in range(6)]
    bench = Bench(liked="one 4")
    found = Exemplars(rounds=40, shots=2).explore(fakes.harness(), {"L0": _set(episodes)}, episodes, bench, 7)
    shots = found.prompt("L0").exemplars
    assert len(shots) == 2 and "one 4" in [message.content for shot in shots for message in shot]
    assert found.parent == fakes.harness().digest
    assert [message.role for message in shots[0]] == ["user", "assistant"]


def test_a_harness_that_nothing_beats_stays_as_it_is() -> None:
    episodes = [_episode(index) for index in range(6)]
    assert Exemplars().explore(fakes.harness(), {"L0": _set(episodes)}, episodes, Bench("no"), 7) == fakes.harness()


def test_the_search_ends_where_the_allowance_does() -> None:
    episodes = [_episode(index) for index in range(6)]
    bench = Bench(liked="no", left=4)
    Exemplars(rounds=1000).explore(fakes.harness(), {"L0": _set(episodes)}, episodes, bench, 7)
    assert len(bench.played) == 4


def test_nothing_is_tried_where_too_few_episodes_passed() -> None:
    bench = Bench(liked="no")
    Exemplars(shots=3).explore(fakes.harness(), {"L0": _set([_episode(1)])}, [_episode(1)], bench, 7)
    assert not bench.played


def test_an_episode_of_the_holdout_can_never_be_an_exemplar() -> None:
    leaked = [_episode(index, Split.HOLDOUT) for index in range(4)]
    with pytest.raises(ValueError, match="not of the train bank"):
        Exemplars().explore(fakes.harness(), {"L0": _set(leaked)}, leaked, Bench("no"), 7)


def test_exemplars_are_of_distinct_tasks_and_spread_over_cases_and_levels() -> None:
    episodes = [_episode(index) for index in range(12)] + [_episode(index) for index in range(12)]
    for seed in range(20):
        shots = choose(episodes, 6, random.Random(seed))
        assert len(set(shots)) == 6
        places = [next(e for e in episodes if conversation(e) == shot).task for shot in shots]
        assert len({(task.case, task.level) for task in places}) == 6


def test_a_gain_counts_when_it_is_above_its_standard_error() -> None:
    # differences 0, 10, 20: mean 10, standard deviation 10, standard error 10 / sqrt(3) = 5.77
    before, after = _scores([50.0, 50.0, 50.0]), _scores([50.0, 60.0, 70.0])
    assert better(before, after, 1.7) and not better(before, after, 1.74)
    assert not better(after, before, 0.0)
    # one case decided in both is no evidence
    assert not better(_scores([50.0, None, 50.0]), _scores([90.0, 90.0, None]), 0.0)
