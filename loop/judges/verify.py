"""The exam of the checks themselves: each is run on replies that are known to hold and to breach."""

from __future__ import annotations

import json
from typing import Any

from pydantic import JsonValue

from loop.core.case import CONVERSATIONS, Transcript, case_slots, fill, filled, opening, text_of
from loop.core.contract import Contract, Criterion, Labelled, Scenario
from loop.core.episode import Split, Task, ToolCall
from loop.core.noun import Noun
from loop.judges.finding import Finding
from loop.judges.rules import Question, Rules

LEAST_LABELLED = 3
_TRIED_SEEDS = 3


class LabelledItem(Noun):
    """One labelled reply (or set of facts), what it should be, and what the check found."""

    text: str
    expected: bool
    found: float | None
    evidence: str

    @property
    def right(self) -> bool:
        """Whether the check says what the label says; undecided is wrong."""
        return self.found is not None and (self.found >= 0.5) is self.expected


class CriterionReport(Noun):
    """How one criterion's check did on its labelled replies."""

    scenario: str
    criterion: str
    kind: str
    items: tuple[LabelledItem, ...]
    faults: tuple[str, ...] = ()

    @property
    def holding(self) -> int:
        """How many labelled replies should hold."""
        return sum(item.expected for item in self.items)

    @property
    def breaching(self) -> int:
        """How many labelled replies should breach."""
        return len(self.items) - self.holding

    @property
    def wrong(self) -> tuple[LabelledItem, ...]:
        """The items the check got wrong or left undecided; none for a language-model check."""
        return () if self.kind == "judge" else tuple(item for item in self.items if not item.right)

    @property
    def accuracy(self) -> float | None:
        """Share of labelled replies decided rightly, in [0, 1]; None without replies or without a judge."""
        if not self.items or self.kind == "judge":
            return None
        return 1.0 - len(self.wrong) / len(self.items)

    @property
    def clean(self) -> bool:
        """Whether the check may be published."""
        return not self.wrong and not self.faults


class VerifyReport(Noun):
    """The exam of a whole contract."""

    contract: str
    criteria: tuple[CriterionReport, ...]

    @property
    def clean(self) -> bool:
        """Whether the contract may be published."""
        return all(report.clean for report in self.criteria)

    @property
    def accuracy(self) -> float:
        """Share of all labelled replies of deterministic checks that were decided rightly."""
        items = [item for report in self.criteria if report.kind != "judge" for item in report.items]
        return sum(item.right for item in items) / len(items) if items else 0.0

    def problems(self) -> tuple[str, ...]:
        """What keeps the contract from being published: empty when it is clean."""
        return tuple(
            f"{report.scenario}.{report.criterion}: {problem}"
            for report in self.criteria
            for problem in (*report.faults, *(f"decides {item.text!r} wrongly" for item in report.wrong))
        )

    def lines(self) -> tuple[str, ...]:
        """The report for people: a line for each criterion, below it each fault and each wrong item."""
        told: list[str] = []
        for report in self.criteria:
            share = "not judged here" if report.accuracy is None else f"{report.accuracy:.0%}"
            told.append(
                f"{report.scenario}.{report.criterion} [{report.kind}] {share} of "
                f"{report.holding} holding and {report.breaching} breaching"
            )
            told.extend(f"  fault: {fault}" for fault in report.faults)
            told.extend(
                f"  wrong: {item.text!r} should {'hold' if item.expected else 'breach'}; "
                f"{'undecided' if item.found is None else item.found}: {item.evidence}"
                for item in report.wrong
            )
        items = sum(len(report.items) for report in self.criteria)
        told.append(f"{self.accuracy:.1%} of {items} labelled replies; {'clean' if self.clean else 'not clean'}")
        return tuple(told)


def verify(contract: Contract, judge: Rules) -> VerifyReport:
    """Run every check on its labelled replies, and fill every criterion for every persona.

    A check is clean with at least three holding and three breaching replies, all decided
    rightly; a ``judge`` check needs a language model and is only counted.
    """
    plan = [(scenario, criterion) for scenario in contract.scenarios for criterion in scenario.criteria]
    items: list[list[tuple[str, bool]]] = []
    faults: list[tuple[str, ...]] = []
    questions: list[Question] = []
    for scenario, criterion in plan:
        asked, mine, broken = _exam(scenario, criterion)
        items.append(mine)
        faults.append((*broken, *_unfilled(contract, scenario, criterion)))
        questions.extend(asked)
    findings = iter(judge.decide(contract, questions))
    reports = tuple(
        _report(scenario, criterion, [(text, expected, next(findings)) for text, expected in mine], broken)
        for (scenario, criterion), mine, broken in zip(plan, items, faults, strict=True)
    )
    return VerifyReport(contract=contract.folder_digest, criteria=reports)


def _report(
    scenario: Scenario, criterion: Criterion, found: list[tuple[str, bool, Finding]], broken: tuple[str, ...]
) -> CriterionReport:
    items = tuple(
        LabelledItem(text=text, expected=expected, found=finding.value, evidence=finding.evidence)
        for text, expected, finding in found
    )
    report = CriterionReport(scenario=scenario.id, criterion=criterion.id, kind=criterion.check.kind, items=items)
    few = [
        f"{count} labelled replies that {word}, at least {LEAST_LABELLED} are needed"
        for count, word in ((report.holding, "hold"), (report.breaching, "breach"))
        if count < LEAST_LABELLED
    ]
    return report.revise(faults=(*broken, *few))


def _exam(scenario: Scenario, criterion: Criterion) -> tuple[list[Question], list[tuple[str, bool]], list[str]]:
    """The questions of one criterion, with the text and the label of each, and what could not be asked."""
    questions: list[Question] = []
    items: list[tuple[str, bool]] = []
    faults: list[str] = []
    for entry in (entry for entry in scenario.labelled if entry.criterion == criterion.id):
        try:
            for transcript, text, expected in labelled_transcripts(entry):
                check = filled(criterion, transcript.slots).check
                questions.append(Question(check=check, transcript=transcript))
                items.append((text, expected))
        except (KeyError, ValueError) as error:
            faults.append(f"the labelled replies cannot be read: {error}")
    return questions, items, faults


def labelled_transcripts(entry: Labelled) -> list[tuple[Transcript, str, bool]]:
    """Each labelled item as a conversation, its text, and whether it holds; KeyError or ValueError when unreadable."""
    rows: list[tuple[Transcript, str, bool]] = []
    for expected, replies in ((True, entry.holds), (False, entry.breaches)):
        for reply in replies:
            texts = (reply,) if isinstance(reply, str) else reply
            rows.append((_transcript(entry, texts, {}), " | ".join(texts), expected))
    for expected, facts in ((True, entry.holds_facts), (False, entry.breaches_facts)):
        for fact in facts:
            text = json.dumps(fact, ensure_ascii=False, sort_keys=True)
            rows.append((_transcript(entry, (), fact), text, expected))
    return rows


def _transcript(entry: Labelled, replies: tuple[str, ...], fact: dict[str, JsonValue]) -> Transcript:
    """The conversation of one labelled item; its own facts go before those of the whole entry."""
    slots: dict[str, Any] = entry.slots | _mapping(fact, "slots")
    rows = fact["calls"] if "calls" in fact else list(entry.calls)
    if not isinstance(rows, list):
        raise ValueError(f"calls are a list, found {type(rows).__name__}")
    calls = tuple(ToolCall.model_validate({"turn": 1, "ok": None, **fill(row, slots)}) for row in rows)
    users = tuple(text_of(fill(text, slots)) for text in entry.user)
    results = [json.dumps(call.result, ensure_ascii=False) for call in calls if call.ok is not None]
    return Transcript(
        users=users,
        replies=tuple(text_of(fill(reply, slots)) if "{" not in reply[:1] else reply for reply in replies),
        shown=tuple("\n".join((*users, *results)) for _ in replies),
        calls=calls,
        world=fill(_mapping(fact, "world") or entry.world, slots),
        slots=slots,
    )


def _mapping(fact: dict[str, JsonValue], key: str) -> dict[str, JsonValue]:
    value = fact.get(key, {})
    if not isinstance(value, dict):
        raise ValueError(f"{key} is a table, found {type(value).__name__}")
    return value


def _unfilled(contract: Contract, scenario: Scenario, criterion: Criterion) -> tuple[str, ...]:
    """Where a conversation's criterion names a slot that some persona's cases do not have."""
    if scenario.environment != CONVERSATIONS:
        return ()
    cases = [
        Task(environment=CONVERSATIONS, case=f"{scenario.id}/{persona.id}", split=split, seed=seed)
        for split in Split
        for persona in contract.bank(split).personas
        if scenario.id in persona.openings
        for seed in range(_TRIED_SEEDS)
    ]
    faults = (_fill_fault(contract, criterion, task) for task in cases)
    return tuple(dict.fromkeys(fault for fault in faults if fault is not None))


def _fill_fault(contract: Contract, criterion: Criterion, task: Task) -> str | None:
    try:
        slots = case_slots(contract, task)
        filled(criterion, slots)
        opening(contract, task, slots)
    except (KeyError, ValueError) as error:
        return f"cannot be filled for {task.case}: {error}"
    return None
