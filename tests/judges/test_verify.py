"""The checks' own exam, on the contract in this checkout and on spoiled copies of it."""

from __future__ import annotations

from loop.core.contract import Contract, Labelled, Scenario
from loop.judges.rules import Rules
from loop.judges.verify import verify
from tests.judges.talk import contract


def only(scenario: Scenario, **changes: object) -> Contract:
    """The contract with a single, changed scenario."""
    return contract().revise(scenarios=(scenario.revise(**changes),))


def labelled_for(scenario: Scenario, criterion: str) -> Labelled:
    return next(entry for entry in scenario.labelled if entry.criterion == criterion)


def test_every_check_of_the_contract_is_right_on_all_its_labelled_replies() -> None:
    report = verify(contract(), Rules())
    assert report.clean, "\n".join(report.lines())
    assert report.accuracy == 1.0 and report.problems() == ()
    assert len(report.criteria) == sum(len(s.criteria) for s in contract().scenarios)
    assert all(row.holding >= 3 and row.breaching >= 3 for row in report.criteria)


def test_a_wrong_label_is_told_with_its_evidence() -> None:
    scenario = contract().scenario("tool_task")
    entry = labelled_for(scenario, "reports_what_happened")
    assert entry.slots["fails"] is True
    wrong = entry.revise(holds=(*entry.holds, "Your table is booked."))
    report = verify(only(scenario, labelled=(wrong,)), Rules())
    row = next(row for row in report.criteria if row.criterion == "reports_what_happened")
    assert [item.text for item in row.wrong] == ["Your table is booked."]
    assert row.accuracy == 1 - 1 / len(row.items)
    assert not report.clean
    assert any("should hold" in line and "claims the opposite" in line for line in report.lines())
    assert "decides 'Your table is booked.' wrongly" in " ".join(report.problems())


def test_too_few_labelled_replies_keep_a_check_from_being_published() -> None:
    scenario = contract().scenario("tool_task")
    entry = labelled_for(scenario, "invents_no_numbers")
    few = entry.revise(holds=entry.holds[:2])
    report = verify(only(scenario, labelled=(few,)), Rules())
    row = next(row for row in report.criteria if row.criterion == "invents_no_numbers")
    assert row.faults == ("2 labelled replies that hold, at least 3 are needed",)
    missing = next(row for row in report.criteria if row.criterion == "is_short")
    assert len(missing.faults) == 2 and missing.accuracy is None


def test_a_criterion_that_names_an_unknown_slot_is_a_fault() -> None:
    scenario = contract().scenario("tool_task")
    spoiled = scenario.criteria[0].revise(text="Books {plaze}.")
    report = verify(only(scenario, criteria=(spoiled, *scenario.criteria[1:])), Rules())
    assert any("no slot 'plaze'" in fault for fault in report.criteria[0].faults)
