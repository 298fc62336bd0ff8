"""Mental arithmetic as an environment: a whole plug-in for macaron-loop in one file."""

from collections.abc import Sequence
from random import Random

from loop.core.contract import Contract
from loop.core.conversation import Say
from loop.core.episode import Outcome, Record, Split, Task
from loop.core.noun import Noun, seed_from
from loop.core.pair import Harness, Message
from loop.ports import Rollout


class Sums(Noun):
    """Sums of two numbers with ``level`` digits; the fields are the options of a settings file."""

    name: str = "sums"
    label: str = "L1"
    levels: int = 3

    def tasks(self, contract: Contract, split: Split, count: int, seed: int, levels: Sequence[int]) -> tuple[Task, ...]:
        """``count`` tasks in turn over the levels; the two splits draw from different seeds."""
        seeds = [seed_from("sums", split.value, seed, index) >> 16 for index in range(count)]
        rungs = [levels[index % len(levels)] for index in range(count)]
        return tuple(
            Task(environment=self.name, case=f"digits-{level}", split=split, seed=drawn, level=level)
            for drawn, level in zip(seeds, rungs, strict=True)
        )

    def rollout(self, task: Task, harness: Harness, contract: Contract) -> Rollout:
        """Ask once; record the answer, for the contract's criteria to compare with."""
        left, right = _numbers(task)
        yield Say(messages=(Message(role="user", content=self.text(task, contract)),), label=self.label)
        return Outcome(record=Record(slots={"left": left, "right": right, "answer": str(left + right)}))

    def text(self, task: Task, contract: Contract) -> str:
        """The question as the model reads it."""
        return "What is {} + {}? Answer with the number.".format(*_numbers(task))


def _numbers(task: Task) -> tuple[int, int]:
    """The two numbers, from the task's own seed alone."""
    random, most = Random(task.seed), 10**task.level - 1
    return random.randint(most // 10, most), random.randint(most // 10, most)
