"""Exports of an experiment join when they differ in their seeds alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from loop.core.errors import UserError
from loop.core.experiment import Arm
from loop.core.experiment_record import ExperimentRecord, LineageRecord
from loop.gains.findings import findings
from loop.gains.records import join, record_of
from tests.gains.test_findings import CARDS, ITERATED, ONE_SHOT

WHOLE = record_of("x", {Arm.ITERATED: ITERATED, Arm.ONE_SHOT: ONE_SHOT}, CARDS.__getitem__, {"c": "v1"})
Change = Callable[[LineageRecord], LineageRecord]


def _part(seed: int, change: Change = lambda line: line) -> ExperimentRecord:
    return WHOLE.revise(lineages=tuple(change(line) for line in WHOLE.lineages if line.seed == seed))


@pytest.mark.parametrize("order", [(1, 2), (2, 1), (1, 2, 1)])
def test_seeds_from_different_files_come_to_what_they_come_to_together(order: tuple[int, ...]) -> None:
    parts = {f"{place}.json": _part(seed) for place, seed in enumerate(order)}
    assert findings(join(parts)) == findings(WHOLE)


def _other_contract(line: LineageRecord) -> LineageRecord:
    last = line.generations[-1]
    sheet = last.sheet.revise(contract="d" * 64)
    return line.revise(generations=(*line.generations[:-1], last.revise(sheet=sheet)))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_other_contract, "contracts are v1 and dddddddddddd"),
        (lambda line: line.revise(base="other"), "bases"),
        (lambda line: line.revise(shared="other"), "different plans"),
        (lambda line: line.revise(plan="other"), "different plans"),
    ],
)
def test_files_of_other_contracts_bases_or_plans_are_refused_by_name(change: Change, words: str) -> None:
    with pytest.raises(UserError, match=words) as refused:
        join({"a.json": _part(1), "b.json": _part(2, change)})
    assert "a.json and b.json" in str(refused.value)


def test_other_packages_are_no_other_figures_and_another_score_is() -> None:
    join({"a": _part(1), "b": _part(1, lambda line: line.revise(packages={"torch": "1"}))})
    wrong = _part(1, lambda line: line.revise(root=line.root.revise(scores=(1.0, *line.root.scores[1:]))))
    with pytest.raises(UserError, match="both hold arm iterated with seed 1, with different figures"):
        join({"a": _part(1), "b": wrong})


def test_a_sheet_with_too_few_scores_is_no_record() -> None:
    with pytest.raises(ValueError, match="as many scores"):
        _part(1, lambda line: line.revise(root=line.root.revise(scores=line.root.scores[1:])))
