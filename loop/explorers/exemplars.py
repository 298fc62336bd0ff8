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


class Exemplars(Noun):
    """Hill climbing over exemplar sets, one label after another, with paired trials.

    ``rounds`` candidates are tried for each label. A candidate takes the incumbent's place
    when its mean gain over the trial tasks is above ``errors`` standard errors. ``shots``
    is the number of exemplars of a prompt that has none yet; others keep their number.
    """

    rounds: int = Field(default=2, gt=0)
    errors: float = Field(default=1.0, ge=0)
    shots: int = Field(default=3, gt=0)

    def explore(
        self, harness: Harness, sets: Mapping[str, TrainingSet], episodes: Sequence[Episode], trials: Trials, seed: int
    ) -> Harness:
        """The harness with the exemplar sets that won their trials; the parent's where none did."""
        pools = {label: _pool(training_set, episodes) for label, training_set in sorted(sets.items())}
        climbs = [_Climb(label, pool, trials) for label, pool in pools.items()]
        found = harness
        for round_ in range(self.rounds):
            for climb in climbs:
                shots = len(harness.prompt(climb.label).exemplars) or self.shots
                draw = random.Random(seed_from("exemplars", seed, climb.label, round_))
                if len(climb.pool) >= shots:
                    found = climb.step(found, choose(climb.pool, shots, draw), self.errors)
        return found if found == harness else found.revise(parent=harness.digest)


@dataclass
class _Climb:
    """The search for one label: the pool to choose from, and the incumbent's trial."""

    label: str
    pool: list[Episode]
    trials: Trials
    standing: tuple[CaseScore, ...] | None = None

    def step(self, incumbent: Harness, exemplars: tuple[Conversation, ...], errors: float) -> Harness:
        """Try a candidate; the incumbent also where the allowance is spent."""
        self.standing = self.standing or self.trials.play(incumbent, self.label)
        candidate = with_exemplars(incumbent, self.label, exemplars)
        scores = self.trials.play(candidate, self.label) if self.standing else None
        if not scores or not self.standing or not better(self.standing, scores, errors):
            return incumbent
        self.standing = scores
        return candidate


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


def choose(pool: Sequence[Episode], shots: int, draw: random.Random) -> tuple[Conversation, ...]:
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


def with_exemplars(harness: Harness, label: str, exemplars: tuple[Conversation, ...]) -> Harness:
    """The harness with other exemplars for one label."""
    prompts = tuple(
        prompt.revise(exemplars=exemplars) if prompt.label == label else prompt for prompt in harness.prompts
    )
    return harness.revise(prompts=prompts)


def better(before: Sequence[CaseScore], after: Sequence[CaseScore], errors: float) -> bool:
    """Whether the mean paired difference is above ``errors`` standard errors (and above zero)."""
    old = {score.task.digest: score.score for score in before}
    gains = [
        score.score - standing
        for score in after
        if score.score is not None and (standing := old.get(score.task.digest)) is not None
    ]
    if len(gains) < 2:
        return False
    mean = math.fsum(gains) / len(gains)
    variance = math.fsum((gain - mean) ** 2 for gain in gains) / (len(gains) - 1)
    return mean > 0 and mean > errors * math.sqrt(variance / len(gains))
