"""An allowance is spent to within half a task, whatever replies cost and however work is cut."""

from __future__ import annotations

from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from loop.core.episode import Episode, EpisodeShard, Record, Split, Task, Usage
from loop.pipeline.allowance import Unit, interleaved, next_wave, rates


def _tasks(environment: str, count: int, start: int = 0) -> tuple[Task, ...]:
    return tuple(
        Task(environment=environment, case="family", split=Split.TRAIN, seed=start + index) for index in range(count)
    )


def _played(unit: Unit, cost: int) -> EpisodeShard:
    """Every episode of the unit generates ``cost`` tokens."""
    episodes = tuple(
        Episode(
            task=task,
            pair="p",
            sample=unit.first_sample + sample,
            seed=1,
            turns=(),
            record=Record(),
            usage=Usage(generated_tokens=cost),
        )
        for task in unit.tasks
        for sample in range(unit.samples)
    )
    return EpisodeShard(episodes=episodes)


def _spend(units: list[Unit], costs: dict[str, int], tokens: int) -> tuple[list[Unit], int]:
    queue, played, done, spent = deque(units), {}, [], 0
    while wave := next_wave(queue, rates(played), tokens - spent):
        for unit in wave:
            played[str(len(done))] = _played(unit, costs[unit.environment])
            done.append(unit)
            spent += costs[unit.environment] * len(unit.tasks) * unit.samples
    return done, spent


@settings(max_examples=60, deadline=None)
@given(
    tokens=st.integers(2_000, 20_000),
    costs=st.tuples(st.integers(1, 60), st.integers(1, 60)),
    samples=st.integers(1, 8),
)
def test_what_is_spent_lies_within_half_a_task_of_the_allowance(
    tokens: int, costs: tuple[int, int], samples: int
) -> None:
    price = dict(zip(("tools", "coding"), costs, strict=True))
    shards = [_tasks(name, 6, 100 * index) for index in range(60) for name in price]
    done, spent = _spend([Unit(shard, samples) for shard in shards], price, tokens)
    whole = sum(price[name] * samples * 60 * 6 for name in price)
    if whole >= tokens and sum(price.values()) * 6 * samples <= tokens:  # else all work, or the first wave, is it
        assert abs(spent - tokens) <= max(costs) * samples / 2
    met = [task.digest for unit in done for task in unit.tasks]
    assert len(met) == len(set(met))


def test_fewer_tokens_are_spent_when_the_work_is_used_up() -> None:
    done, spent = _spend([Unit(_tasks("tools", 3), 2)], {"tools": 5}, 1_000)
    assert (len(done), spent) == (1, 30)


def test_shards_come_in_turn_from_each_environment() -> None:
    tools, coding = [_tasks("tools", 1, index) for index in range(3)], [_tasks("coding", 1, 9)]
    assert interleaved([*tools, *coding]) == [tools[0], coding[0], tools[1], tools[2]]
