"""A generation's stored episodes scored again under another contract version."""

from __future__ import annotations

from loop.core.generation import Exam
from loop.core.noun import Noun


class Rescore(Noun):
    """What the exam of ``generation`` would have found under ``exam.contract``, without playing anything.

    ``exam`` is decided by the stored episodes, but for what no scoring changes (baits taken, routes,
    the panel, the cost of choosing among answers), which is the run's. ``left_out`` says what is neither.
    ``judge`` is the digest of the judge's Spec. ``outside`` counts the exam's cases (parent's
    and child's) that are no cases of this contract, by reason; they are unscored.
    ``reworded`` counts the conversations that this contract would open with other words or
    values: they were scored as they were held. ``experience`` is the visible pass rate by
    ``environment/level`` of the ``collected`` train episodes. ``equal`` says whether this gave
    the very scorecards of the run; None under another contract or judge than the run's.
    """

    generation: str
    judge: str
    exam: Exam
    equal: bool | None = None
    outside: dict[str, int] = {}
    reworded: int = 0
    left_out: tuple[str, ...] = ()
    experience: dict[str, float] = {}
    collected: int = 0
    collected_unscored: int = 0
    judge_calls: int = 0


class Standpoint(Noun):
    """A generation's exam under one contract: its own, or the one a rescore gave it."""

    generation: str
    exam: Exam
    rescored: bool = False
