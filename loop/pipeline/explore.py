"""Explore: search the successor's harness by trying it on train tasks, within an allowance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, pairwise, takewhile

from loop.core.budget import Budget
from loop.core.contract import Half
from loop.core.episode import EpisodeShard, Split, Task
from loop.core.noun import seed_from
from loop.core.pair import Harness
from loop.core.results import TaskList
from loop.core.score import CaseScore
from loop.core.stage import Stage
from loop.core.training_set import TrainingSet
from loop.pipeline.allowance import SAFE_SHARE
from loop.pipeline.experience import chain, generated, play_jobs, score_shards, split_tasks
from loop.pipeline.parts import Run
from loop.pipeline.rollouts import PlayJob, play
from loop.pipeline.steps import each

# A harness, and the label whose trial tasks it is to meet.
Trial = tuple[Harness, str]


def explore(run: Run, episodes: Mapping[str, EpisodeShard], sets: Mapping[str, TrainingSet]) -> Harness:
    """The successor's harness, searched from the parent's.

    It comes after curate: what an explorer may show a model has passed the same filters as
    what is trained on.
    """

    found = run.attempt.find(Stage.EXPLORE, Harness)
    if found is not None:
        return found
    collected = sum(generated(shard).generated_tokens for shard in episodes.values())
    trials = HarnessTrials(run, collected)
    seed = seed_from("explore", *run.seed)
    # The trials are recorded steps with times of their own, so the search is not timed around them.
    chosen = run.loop.explorer.explore(run.parent.pair.harness, sets, chain(episodes), trials, seed)
    return run.attempt.once(Stage.EXPLORE, Harness, lambda: chosen)


@dataclass
class HarnessTrials:
    """Recorded trials of harnesses; ``spent`` are the generated tokens of the attempt so far."""

    run: Run
    spent: int
    count: int = 0
    tasks: dict[str, tuple[Task, ...]] = field(default_factory=dict)
    costs: dict[str, list[int]] = field(default_factory=dict)

    def play(self, trials: Sequence[Trial]) -> tuple[tuple[CaseScore, ...], ...]:
        """Greedy visible scores of the parent's adapters under these harnesses, as many as the allowance covers."""
        found: list[tuple[CaseScore, ...]] = []
        while wave := self._wave(trials[len(found) :]):
            found += self._play(wave)
        return tuple(found)

    def _wave(self, trials: Sequence[Trial]) -> Sequence[Trial]:
        """The first of these that are surely within the allowance; none where half a trial is more than is left.

        What is played depends on what the played trials cost, never on how many workers there are.
        """
        allowance = self.run.plan.allowance.explore
        if allowance is None or not trials:
            return trials
        left = allowance - self.spent
        if trials[0][1] not in self.costs:
            return trials[:1] if left > 0 else ()
        planned = list(accumulate(self._cost(label) for label in takewhile(self.costs.get, (t[1] for t in trials))))
        safe = sum(tokens <= SAFE_SHARE * left for tokens in planned)
        return trials[: safe or int(planned[0] <= 2 * left)]

    def _cost(self, label: str) -> float:
        return sum(self.costs[label]) / len(self.costs[label])

    def _play(self, trials: Sequence[Trial]) -> list[tuple[CaseScore, ...]]:
        run = self.run
        jobs: dict[str, partial[PlayJob]] = {}
        keys: list[list[str]] = []
        first = {task for _, label in trials for task in self._tasks(label)[:1]}
        for harness, label in trials:
            pair = run.parent.pair.revise(harness=harness)
            shards = split_tasks(self._tasks(label), run.plan.explore.shard_tasks)
            mine = play_jobs(run, shards, (pair,), 1, 0.0, f"trial/{self.count:05d}")
            self.count += 1
            jobs |= mine
            keys.append(list(mine))

        def cost(shard: EpisodeShard) -> Budget:
            return generated(shard).plus(Budget(trials=int(shard.episodes[0].task in first)))

        played = each(run, Stage.EXPLORE, EpisodeShard, jobs, play, cost)
        for (_, label), own in zip(trials, keys, strict=True):
            self.costs.setdefault(label, []).append(sum(generated(played[key]).generated_tokens for key in own))
            self.spent += self.costs[label][-1]
        scores = score_shards(run, Stage.EXPLORE, played, Half.VISIBLE)
        cuts = [0, *accumulate(sum(len(played[key].episodes) for key in own) for own in keys)]
        return [scores[begin:end] for begin, end in pairwise(cuts)]

    def _tasks(self, label: str) -> tuple[Task, ...]:
        """The label's trial tasks: fresh train tasks, the same for every trial of the attempt."""
        if label not in self.tasks:
            loop, counts = self.run.loop, self.run.plan.explore.tasks
            self.tasks[label] = tuple(
                task
                for environment in loop.environments
                if environment.label == label and counts.get(environment.name, 0)
                for task in environment.tasks(
                    loop.contract,
                    Split.TRAIN,
                    counts[environment.name],
                    seed_from("trial", *self.run.seed, environment.name),
                    self._levels(environment.name),
                )
            )
        return self.tasks[label]

    def _levels(self, environment: str) -> tuple[int, ...]:
        """The rungs that the parent's experience is collected on."""
        found = self.run.attempt.find(Stage.DISCOVER, TaskList)
        return found.levels.get(environment, (1,)) if found else (1,)
