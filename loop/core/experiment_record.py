"""An experiment's record: all that its findings are computed from, and nothing that ties it to a machine."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from loop.core.budget import Budget
from loop.core.episode import Task
from loop.core.experiment import Arm
from loop.core.noun import Noun


class ExamCase(Noun):
    """One case of an exam: the task, and which of its samples."""

    task: Task
    sample: int


class Sheet(Noun):
    """One pair's sealed scores, 0..100 or None (unscored), in the order of the case list that ``cases`` names."""

    contract: str
    cases: str
    scores: tuple[float | None, ...]


class GenerationRecord(Noun):
    """A successor: its exam, what its learning cost, and whether it met every rule of the gate."""

    number: int
    sheet: Sheet
    learning: Budget
    passed: bool


class LineageRecord(Noun):
    """One arm under one seed; ``root`` is generation 0's sheet, ``base`` the digest of the base.

    ``shared`` is the digest of the plan without what arms and seeds change in it, ``plan`` that
    of the arm's own plan without its seed and its allowance. ``packages`` are versions by
    distribution where the exams were played.
    """

    undigested: ClassVar[frozenset[str]] = frozenset({"packages"})

    arm: Arm
    seed: int
    base: str
    shared: str
    plan: str
    root: Sheet
    generations: tuple[GenerationRecord, ...] = Field(min_length=1)
    packages: dict[str, str] = {}

    @property
    def contract(self) -> str:
        """The digest of the contract that its newest exam was scored under."""
        return self.generations[-1].sheet.contract

    @property
    def sheets(self) -> tuple[Sheet, ...]:
        """Every generation's sheet, generation 0's first."""
        return self.root, *(generation.sheet for generation in self.generations)


class ExperimentRecord(Noun):
    """The lineages of an experiment that have an examined successor.

    ``contracts`` are versions by digest; ``cases`` the case lists that sheets name, each once.
    """

    schema_version: Literal[1] = 1
    name: str
    contracts: dict[str, str] = {}
    cases: dict[str, tuple[ExamCase, ...]] = {}
    lineages: tuple[LineageRecord, ...] = ()

    @model_validator(mode="after")
    def _sheets_fit_their_cases(self) -> ExperimentRecord:
        counts = {name: len(cases) for name, cases in self.cases.items()}
        if any(counts.get(sheet.cases) != len(sheet.scores) for line in self.lineages for sheet in line.sheets):
            raise ValueError("a sheet has not as many scores as its case list has cases")
        return self
