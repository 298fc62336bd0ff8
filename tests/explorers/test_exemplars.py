"""Exemplar selection keeps what trials show to be better, and only what the train bank gave."""

from __future__ import annotations

import random
from collections.abc import Sequence
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
    """Trials that exemplars change by what they are worth; ``left`` may be played."""

    worth: dict[str, int]
    left: int = 99
    played: list[Harness] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)

    def play(self, trials: Sequence[tuple[Harness, str]]) -> tuple[tuple[CaseScore, ...], ...]:
        within = trials[: self.left - len(self.played)]
        self.asked.append(len(trials))
        self.played += [harness for harness, _ in within]
        return tuple(self._scores(harness, label) for harness, label in within)

    def _scores(self, harness: Harness, label: str) -> tuple[CaseScore, ...]:
        said = [message.content for shot in harness.prompt(label).exemplars for message in shot]
        gain = max(self.worth.get(one, 0) for one in ["", *said])
        return _scores([50.0 + 3 * gain, 60.0, 60.0 + gain])


def test_the_candidate_that_wins_its_trial_takes_the_incumbents_place() -> None:
    episodes = [_episode(index) for index in range(6)]
    bench = Bench({"one 4": 10})
    found = Exemplars(rounds=40, shots=2).explore(fakes.harness(), {"L0": _set(episodes)}, episodes, bench, 7)
    shots = found.prompt("L0").exemplars
    assert len(shots) == 2 and "one 4" in [message.content for shot in shots for message in shot]
    assert found.parent == fakes.harness().digest
    assert [message.role for message in shots[0]] == ["user", "assistant"]


def test_a_harness_that_nothing_beats_stays_as_it_is() -> None:
    episodes = [_episode(index) for index in range(6)]
    assert Exemplars().explore(fakes.harness(), {"L0": _set(episodes)}, episodes, Bench({}), 7) == fakes.harness()


def test_the_best_of_those_tried_side_by_side_is_kept() -> None:
    episodes = [_episode(index) for index in range(6)]
    bench = Bench({"one 1": 4, "one 4": 10})
    found = Exemplars(rounds=20, breadth=20, shots=1).explore(
        fakes.harness(), {"L0": _set(episodes)}, episodes, bench, 7
    )
    assert bench.asked == [21]
    assert [message.content for shot in found.prompt("L0").exemplars for message in shot] == ["ask 4", "one 4"]


def test_every_label_is_tried_at_once_each_from_its_own_incumbent() -> None:
    episodes = [_episode(index) for index in range(6)]
    bench = Bench({f"one {index}": index + 1 for index in range(6)})
    harness = fakes.harness()
    harness = harness.revise(prompts=tuple(harness.prompt("L0").revise(label=label) for label in ("L0", "L1")))
    sets = {label: _set(episodes).revise(label=label) for label in ("L0", "L1")}
    found = Exemplars(rounds=5, breadth=2, shots=1).explore(harness, sets, episodes, bench, 7)
    assert bench.asked == [6, 4, 2]
    tried = {label: {each.prompt(label).exemplars for each in bench.played} - {()} for label in ("L0", "L1")}
    for label, of in tried.items():
        best = max(of, key=lambda exemplars: bench.worth[exemplars[0][1].content])
        assert found.prompt(label).exemplars == best


def test_the_search_ends_where_the_allowance_does() -> None:
    episodes = [_episode(index) for index in range(6)]
    bench = Bench({}, left=4)
    Exemplars(rounds=1000).explore(fakes.harness(), {"L0": _set(episodes)}, episodes, bench, 7)
    assert len(bench.played) == 4
    assert bench.asked == [5]


def test_a_label_without_trial_tasks_is_not_tried_again_and_again() -> None:
    asked = []

    class Nothing:
        def play(self, trials: Sequence[tuple[Harness, str]]) -> tuple[tuple[CaseScore, ...], ...]:
            asked.append(len(trials))
            return tuple(() for _ in trials)

    episodes = [_episode(index) for index in range(6)]
    found = Exemplars(rounds=1000).explore(fakes.harness(), {"L0": _set(episodes)}, episodes, Nothing(), 7)
    assert asked == [5] and found == fakes.harness()


def test_nothing_is_tried_where_too_few_episodes_passed() -> None:
    bench = Bench({})
    Exemplars(shots=3).explore(fakes.harness(), {"L0": _set([_episode(1)])}, [_episode(1)], bench, 7)
    assert not bench.played


def test_an_episode_of_the_holdout_can_never_be_an_exemplar() -> None:
    leaked = [_episode(index, Split.HOLDOUT) for index in range(4)]
    with pytest.raises(ValueError, match="not of the train bank"):
        Exemplars().explore(fakes.harness(), {"L0": _set(leaked)}, leaked, Bench({}), 7)


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
    assert better(before, after, 1.7) == 10 and better(before, after, 1.74) is None
    assert better(after, before, 0.0) is None
    # one case decided in both is no evidence
    assert better(_scores([50.0, None, 50.0]), _scores([90.0, 90.0, None]), 0.0) is None
