"""The exam's scorecards: of parent and child, of what lies between them, and of the best of many answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from loop.core.budget import Budget
from loop.core.contract import Half
from loop.core.episode import Episode, EpisodeShard, Task
from loop.core.pair import Pair
from loop.core.score import CaseScore, Scorecard
from loop.core.stage import Stage
from loop.gains.contrasts import NEW, OLD, Cell
from loop.pipeline.allowance import Unit, interleaved, spend
from loop.pipeline.experience import chain, generated, play_jobs, score_shards, split_tasks
from loop.pipeline.parts import Run
from loop.pipeline.rollouts import play
from loop.pipeline.steps import each

HALVES = (Half.SEALED, Half.VISIBLE)
BLOCK = 8  # samples a task in one unit of best-of-k: they share its prefill
MOST_BLOCKS = 64

Cards = dict[tuple[Cell, Half], Scorecard]
PARENT_CELL, CHILD_CELL = (OLD, OLD), (NEW, NEW)


def cells(parent: Pair, child: Pair) -> dict[Cell, Pair]:
    """The 2 x 2 transplant, {adapters} x {harness}; with one of them unchanged two cells are equal pairs."""
    return {
        PARENT_CELL: parent,
        CHILD_CELL: child,
        (NEW, OLD): child.revise(harness=parent.harness),
        (OLD, NEW): child.revise(adapters=parent.adapters),
    }


def examine_cells(run: Run, tasks: Sequence[Task], child: Pair) -> Cards:
    """Every cell on the same tasks with the same seeds, in one batch; equal pairs are played once.

    A child that is its parent (the A/A arm) meets sampled answers with luck of its own: it
    takes the second half of twice as many samples. Greedy answers leave nothing to luck.
    """
    plan = run.plan.examine
    made = cells(run.parent.pair, child)
    pairs = tuple({pair.digest: pair for pair in made.values()}.values())
    own_luck = len(pairs) == 1 and plan.temperature > 0
    samples = 2 * plan.samples if own_luck else plan.samples
    shards = split_tasks(tasks, plan.shard_tasks)
    jobs = play_jobs(run, shards, pairs, samples, plan.temperature, "exam")
    played = each(run, Stage.EXAMINE, EpisodeShard, jobs, play, generated)
    episodes = chain(played)
    cards: Cards = {}
    for half in HALVES:
        scores = score_shards(run, Stage.EXAMINE, played, half)
        for cell, pair in made.items():
            first = plan.samples if own_luck and cell == CHILD_CELL else 0
            taken = range(first, first + plan.samples)
            cards[cell, half] = card_of(run.loop.contract.digest, pair, half, episodes, scores, taken)
    return cards


def card_of(
    contract: str, pair: Pair, half: Half, episodes: Sequence[Episode], scores: Sequence[CaseScore], samples: range
) -> Scorecard:
    """The scores of one pair's episodes of these samples, counted from 0; ``contract`` is a digest."""
    owned = {episode.digest for episode in episodes if episode.pair == pair.digest and episode.sample in samples}
    rows = (score for score in scores if score.episode in owned)
    renamed = tuple(row.revise(sample=row.sample - samples.start) if samples.start else row for row in rows)
    return Scorecard(contract=contract, pair=pair.digest, half=half, scores=renamed)


def examine_best(run: Run, tasks: Sequence[Task], tokens: int) -> tuple[Cards, Budget]:
    """The parent's greedy answers against the best of its sampled ones, chosen by the visible checks.

    Samples are drawn until ``tokens`` are generated; the budget says what they came to. A
    task for which they did not suffice keeps its greedy answer.
    """
    plan, pair = run.plan, run.parent.pair
    cards = examine_cells(run, tasks, pair)
    shards = interleaved(split_tasks(tasks, plan.examine.shard_tasks))
    units = [Unit(shard, BLOCK, BLOCK * block) for block in range(MOST_BLOCKS) for shard in shards]
    played = spend(run, Stage.EXAMINE, "best", units, pair, plan.collect.temperature, tokens)
    chosen = best_by_visible(chain(played), score_shards(run, Stage.EXAMINE, played, Half.VISIBLE))
    best = {"best/chosen": EpisodeShard(episodes=chosen)}
    for half in HALVES:
        found = {row.task: row.revise(sample=0) for row in score_shards(run, Stage.EXAMINE, best, half)}
        greedy = cards[PARENT_CELL, half]
        cards[CHILD_CELL, half] = greedy.revise(scores=tuple(found.get(row.task, row) for row in greedy.scores))
    total = Budget()
    for shard in played.values():
        total = total.plus(generated(shard))
    return cards, total


def best_by_visible(episodes: Sequence[Episode], scores: Sequence[CaseScore]) -> tuple[Episode, ...]:
    """For each task, in the order met, the episode whose visible score is best; the first of equals."""
    points = {score.episode: score.score for score in scores}
    best: dict[str, Episode] = {}
    for episode in episodes:
        standing = best.get(episode.task.digest)
        if standing is None or _worth(points, episode) > _worth(points, standing):
            best[episode.task.digest] = episode
    return tuple(best.values())


def _worth(points: Mapping[str, float | None], episode: Episode) -> float:
    found = points.get(episode.digest)
    return -1.0 if found is None else found


def interference(run: Run, tasks: Sequence[Task], child: Pair) -> dict[str, dict[str, float]]:
    """Each environment's sealed score when every specialist's adapter answers in turn, by environment and label."""
    return by_environment(interference_cards(run, tasks, child))


def by_environment(cards: Mapping[str, Scorecard]) -> dict[str, dict[str, float]]:
    """The mean of each environment by the label whose card it is on."""
    found: dict[str, dict[str, float]] = {}
    for label, card in cards.items():
        for name in card.environments():
            mean = card.mean(name)
            if mean is not None:
                found.setdefault(name, {})[label] = mean
    return found


def interference_cards(run: Run, tasks: Sequence[Task], child: Pair) -> dict[str, Scorecard]:
    """The sealed card of each specialist's adapter in the place of every other, by label; empty where not asked for."""
    count = run.plan.examine.interference
    labels = [adapter.label for adapter in child.adapters if _answers(run, adapter.label)]
    if count == 0 or len(labels) < 2:
        return {}
    shards = [shard[:count] for shard in split_tasks(tasks, len(tasks))]
    return side_by_side(run, shards, {label: only(child, label) for label in labels}, "interference")


def side_by_side(
    run: Run, shards: Sequence[tuple[Task, ...]], pairs: Mapping[str, Pair], purpose: str
) -> dict[str, Scorecard]:
    """The sealed card of each named pair on the same tasks, met once and greedily, in one batch."""
    jobs = play_jobs(run, shards, tuple(pairs.values()), 1, 0.0, purpose)
    played = each(run, Stage.EXAMINE, EpisodeShard, jobs, play, generated)
    scores = score_shards(run, Stage.EXAMINE, played, Half.SEALED)
    contract, episodes = run.loop.contract.digest, chain(played)
    return {name: card_of(contract, pair, Half.SEALED, episodes, scores, range(1)) for name, pair in pairs.items()}


def _answers(run: Run, label: str) -> bool:
    return any(environment.label == label for environment in run.loop.environments)


def only(pair: Pair, label: str) -> Pair:
    """The pair in which one specialist's adapter answers for every label."""
    chosen = pair.adapter(label)
    if chosen is None:
        raise KeyError(label)
    return pair.revise(adapters=tuple(chosen.revise(label=adapter.label) for adapter in pair.adapters))
