"""The cases that moved most between parent and child, with the criteria that moved them."""

from __future__ import annotations

from loop.core.noun import Noun
from loop.core.score import CaseScore, Scorecard


class Change(Noun):
    """A criterion whose value changed, with the evidence of the child's episode."""

    criterion: str
    axiom: str
    before: float | None
    after: float | None
    evidence: str


class Moved(Noun):
    """One case: its scores, 0..100, the child's episode, and what changed."""

    case: str
    level: int
    before: float
    after: float
    episode: str
    changes: tuple[Change, ...]


def moved(parent: Scorecard, child: Scorecard, most: int = 3) -> tuple[Moved, ...]:
    """Up to ``most`` of the largest losses, then as many of the largest gains; cases decided in both."""
    before = {(row.task.digest, row.sample): row for row in parent.scores}
    pairs = [(before[key], row) for row in child.scores if (key := (row.task.digest, row.sample)) in before]
    rows = [_moved(old, new) for old, new in pairs if old.score is not None and new.score is not None]
    found = sorted((row for row in rows if row.after != row.before), key=lambda row: row.after - row.before)
    losses = [row for row in found if row.after < row.before][:most]
    gains = [row for row in reversed(found) if row.after > row.before][:most]
    return (*losses, *gains)


def _moved(old: CaseScore, new: CaseScore) -> Moved:
    values = {verdict.criterion: verdict.value for verdict in old.verdicts}
    changes = tuple(
        Change(
            criterion=verdict.criterion,
            axiom=verdict.axiom,
            before=values.get(verdict.criterion),
            after=verdict.value,
            evidence=verdict.evidence[:300],
        )
        for verdict in new.verdicts
        if verdict.value != values.get(verdict.criterion)
    )
    return Moved(
        case=f"{new.task.environment}/{new.task.case}",
        level=new.task.level,
        before=old.score or 0.0,
        after=new.score or 0.0,
        episode=new.episode,
        changes=changes,
    )
