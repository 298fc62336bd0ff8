"""The explorer that searches nothing: the successor keeps its parent's harness."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from loop.core.episode import Episode
from loop.core.noun import Noun
from loop.core.pair import Harness
from loop.core.training_set import TrainingSet
from loop.ports import Trials


class Keep(Noun):
    """Only weights change; the harness of generation N+1 is that of generation N."""

    def explore(
        self, harness: Harness, sets: Mapping[str, TrainingSet], episodes: Sequence[Episode], trials: Trials, seed: int
    ) -> Harness:
        """The harness as it is, whatever was seen."""
        return harness
