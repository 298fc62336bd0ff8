"""Exemplar selection: few-shot examples chosen from the parent's own episodes that passed.

The few-shot prompt is the part of a harness that a small model feels most. Candidates are
drawn from curated experience and kept only where trials on fresh train tasks say so; the
sealed exam decides afterwards, as for weights.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import Field

from loop.core.episode import Episode, Split
from loop.core.living import LIVING
from loop.core.noun import Noun, seed_from
from loop.core.pair import Harness, Message
from loop.core.score import CaseScore
from loop.core.training_set import TrainingSet
from loop.ports import Trials

Conversation = tuple[Message, ...]
Exemplified = tuple[Conversation, ...]
Scores = tuple[CaseScore, ...]


class Exemplars(Noun):
    """Hill climbing over exemplar sets, for every label, with paired trials.

    ``rounds`` candidates are tried for each label, ``breadth`` of them side by side. The best
    of those whose mean gain over the trial tasks is above ``errors`` standard errors takes the
    incumbent's place. ``shots`` is the number of exemplars of a prompt that has none yet; others
    keep their number.
    """

    rounds: int = Field(default=2, gt=0)
    breadth: int = Field(default=4, gt=0)
    errors: float = Field(default=1.0, ge=0)
    shots: int = Field(default=3, gt=0)

    def explore(
        self, harness: Harness, sets: Mapping[str, TrainingSet], episodes: Sequence[Episode], trials: Trials, seed: int
    ) -> Harness:
        """The harness with the exemplar sets that won their trials; the parent's where none did."""
        pools = {label: _pool(training_set, episodes) for label, training_set in sorted(sets.items())}
        shots = {label: len(harness.prompt(label).exemplars) or self.shots for label in pools}
        climbs = [_Climb(label, pool, shots[label]) for label, pool in pools.items() if len(pool) >= shots[label]]
        found = harness
        for first in range(0, self.rounds, self.breadth):
            rounds = range(first, min(first + self.breadth, self.rounds))
            wanted: list[tuple[_Climb, Exemplified | None]] = [(climb, None) for climb in climbs if not climb.standing]
            wanted += [(climb, climb.candidate(seed, round_)) for round_ in rounds for climb in climbs]
            asked = [(climb.harness(found, exemplars), climb.label) for climb, exemplars in wanted]
            scores = trials.play(asked)
            for climb in climbs:
                tried = [(each[1], its) for each, its in zip(wanted, scores, strict=False) if each[0] is climb]
                found = climb.harness(found, climb.settle(tried, self.errors))
            climbs = [climb for climb in climbs if climb.standing]
            if len(scores) < len(asked) or not climbs:
                break
        return found if found == harness else found.revise(parent=harness.digest)


@dataclass(eq=False)
class _Climb:
    """The search for one label: the pool to choose from, and the incumbent's trial."""

    label: str
    pool: list[Episode]
    shots: int
    standing: Scores = ()

    def candidate(self, seed: int, round_: int) -> Exemplified:
        """The exemplars to be tried in a round."""
        return choose(self.pool, self.shots, random.Random(seed_from("exemplars", seed, self.label, round_)))

    def harness(self, incumbent: Harness, exemplars: Exemplified | None) -> Harness:
        """The incumbent with these exemplars for the label; itself without."""
        return incumbent if exemplars is None else with_exemplars(incumbent, self.label, exemplars)

    def settle(self, tried: Sequence[tuple[Exemplified | None, Scores]], errors: float) -> Exemplified | None:
        """The best candidate that beats the incumbent, whose place it takes; None where none does."""
        before = next((scores for exemplars, scores in tried if exemplars is None), self.standing)
        self.standing, best, most = before, None, 0.0
        for exemplars, scores in tried:
            gain = better(before, scores, errors) if exemplars is not None else None
            if gain is not None and gain > most:
                self.standing, best, most = scores, exemplars, gain
        return best


def _pool(training_set: TrainingSet, episodes: Sequence[Episode]) -> list[Episode]:
    """The episodes behind a training set, each once, in the order of its rows.

    None of people's conversations: a harness is read by everyone, and outlives a deletion.
    """
    known = {episode.digest: episode for episode in episodes}
    wanted = dict.fromkeys(row.episode for row in training_set.rows if row.environment != LIVING)
    pool = [known[digest] for digest in wanted if digest in known]
    leaked = [episode for episode in pool if episode.task.split is not Split.TRAIN]
    if leaked:
        raise ValueError(f"{len(leaked)} exemplar candidates are not of the train bank")
    return pool


def choose(pool: Sequence[Episode], shots: int, draw: random.Random) -> Exemplified:
    """``shots`` conversations of distinct tasks, spread over cases and levels as far as they go."""
    groups: dict[tuple[str, int], list[Episode]] = defaultdict(list)
    for episode in draw.sample(list(pool), len(pool)):
        groups[episode.task.case, episode.task.level].append(episode)
    order = draw.sample(sorted(groups), len(groups))
    taken: dict[str, Episode] = {}
    while len(taken) < shots and any(groups.values()):
        for key in order:
            if groups[key] and len(taken) < shots:
                episode = groups[key].pop()
                taken.setdefault(episode.task.digest, episode)
    return tuple(conversation(episode) for episode in taken.values())


def conversation(episode: Episode) -> Conversation:
    """What an episode's turns look like as earlier turns of a prompt."""
    return tuple(Message(role=turn.role, content=turn.content) for turn in episode.turns)


def with_exemplars(harness: Harness, label: str, exemplars: Exemplified) -> Harness:
    """The harness with other exemplars for one label."""
    prompts = tuple(
        prompt.revise(exemplars=exemplars) if prompt.label == label else prompt for prompt in harness.prompts
    )
    return harness.revise(prompts=prompts)


def better(before: Sequence[CaseScore], after: Sequence[CaseScore], errors: float) -> float | None:
    """The mean paired difference where it is above ``errors`` standard errors and above zero, else None."""
    old = {score.task.digest: score.score for score in before}
    gains = [
        score.score - standing
        for score in after
        if score.score is not None and (standing := old.get(score.task.digest)) is not None
    ]
    if len(gains) < 2:
        return None
    mean = math.fsum(gains) / len(gains)
    variance = math.fsum((gain - mean) ** 2 for gain in gains) / (len(gains) - 1)
    return mean if mean > 0 and mean > errors * math.sqrt(variance / len(gains)) else None
