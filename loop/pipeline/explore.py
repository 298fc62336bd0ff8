"""Explore: search the successor's harness by trying it on train tasks, within an allowance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from loop.core.budget import Budget
from loop.core.contract import Half
from loop.core.episode import EpisodeShard, Split, Task
from loop.core.noun import seed_from
from loop.core.pair import Harness
from loop.core.results import TaskList
from loop.core.score import CaseScore
from loop.core.stage import Stage
from loop.core.training_set import TrainingSet
from loop.pipeline.experience import chain, generated, play_jobs, score_shards, split_tasks
from loop.pipeline.parts import Run
from loop.pipeline.rollouts import play
from loop.pipeline.steps import each


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

    def play(self, harness: Harness, label: str) -> tuple[CaseScore, ...] | None:
        """Greedy visible scores of the parent's adapters under this harness; None without allowance."""
        allowance = self.run.plan.allowance.explore
        if allowance is not None and self.spent >= allowance:
            return None
        pair = self.run.parent.pair.revise(harness=harness)
        tasks = self._tasks(label)
        shards = split_tasks(tasks, self.run.plan.explore.shard_tasks)
        jobs = play_jobs(self.run, shards, (pair,), 1, 0.0, f"trial/{self.count:03d}")

        def cost(shard: EpisodeShard) -> Budget:
            return generated(shard).plus(Budget(trials=int(shard.episodes[0].task == tasks[0])))

        played = each(self.run, Stage.EXPLORE, EpisodeShard, jobs, play, cost)
        self.count += 1
        self.spent += sum(generated(shard).generated_tokens for shard in played.values())
        return score_shards(self.run, Stage.EXPLORE, played, Half.VISIBLE)

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
