"""One episode with everything that was said of it: for people who ask why a case scored what it scored."""

from __future__ import annotations

from loop.core.contract import Half
from loop.core.episode import Episode
from loop.core.noun import Noun
from loop.core.score import CaseScore


class Scored(Noun):
    """A case score with the contract (digest) and the half it was given under."""

    contract: str
    half: Half
    score: CaseScore


class EpisodeEvidence(Noun):
    """An episode and its scores, in the order they were recorded."""

    episode: Episode
    scores: tuple[Scored, ...] = ()
