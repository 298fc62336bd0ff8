"""The stages of growing a generation, in the order they run."""

from __future__ import annotations

from enum import StrEnum


class Stage(StrEnum):
    """Each is a line of ``run_generation``."""

    DISCOVER = "discover"
    COLLECT = "collect"
    SCORE = "score"
    CURATE = "curate"
    EXPLORE = "explore"
    TRAIN = "train"
    EXAMINE = "examine"
    DECIDE = "decide"
    REGISTER = "register"
