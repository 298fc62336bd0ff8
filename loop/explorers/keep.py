"""The explorer that searches nothing: the successor keeps its parent's harness."""

from __future__ import annotations

from collections.abc import Sequence

from loop.core.noun import Noun
from loop.core.pair import Harness
from loop.core.score import CaseScore


class Keep(Noun):
    """Only weights change; the harness of generation N+1 is that of generation N."""

    def explore(self, harness: Harness, scores: Sequence[CaseScore]) -> Harness:
        """The harness as it is, whatever the scores."""
        return harness
