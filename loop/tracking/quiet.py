"""Tracking turned off: the lineage store alone remembers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from loop.core.generation import Generation
from loop.core.noun import Noun
from loop.ports import Trained


class QuietTracker(Noun):
    """Publishes nothing."""

    def publish(
        self,
        generation: Generation,
        parent: Generation | None,
        trained: Sequence[Trained],
        scores: Mapping[str, Any],
    ) -> str:
        """The empty run id, because there is no run."""
        return ""

    def attach(self, generation: Generation, path: Path) -> None:
        """Nothing: there is no run."""
