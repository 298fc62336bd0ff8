"""How far two scorings of the same cases agree: a replay with its exam, or the same exam in other batches."""

from __future__ import annotations

from collections.abc import Sequence

from loop.core.manifest import Agreement, Floor
from loop.core.score import CaseScore
from loop.gains.intervals import Difference
from loop.gains.sequential import sign_flip

FLIPS = 9_999
# Noise has no direction: below this two-sided p-value the scores moved together, however little.
SHIFT_LEVEL = 0.01


def agreement(before: Sequence[CaseScore], after: Sequence[CaseScore]) -> Agreement:
    """Compare case by case, in order.

    Raises ValueError when the two did not meet the same cases in the same order.
    """
    if [_case(score) for score in before] != [_case(score) for score in after]:
        raise ValueError("the two scorings did not meet the same cases in the same order")
    rows, undecided = [], 0
    for old, new in zip(before, after, strict=True):
        if old.score is not None and new.score is not None:
            task = old.task
            change = new.score - old.score
            rows.append(Difference(environment=task.environment, group=task.group, cluster=task.cluster, value=change))
        else:
            undecided += old.score is not new.score
    sizes = [abs(row.value) for row in rows]
    return Agreement(
        cases=len(before),
        moved=sum(size > 0 for size in sizes),
        undecided=undecided,
        largest=max(sizes, default=0.0),
        mean=sum(sizes) / len(sizes) if sizes else 0.0,
        p=_two_sided(rows),
    )


def disagreements(found: Agreement, floor: Floor | None) -> tuple[str, ...]:
    """Why an agreement is worse than noise, a sentence each; none when it lies within the floor."""
    reasons = []
    if found.undecided:
        reasons.append(f"{found.undecided} case scores are decided in one of the two only")
    if found.largest > (floor.value if floor else 0.0):
        bound = f"is above the noise floor of {floor.value:.2f}" if floor else "has no noise floor to be compared with"
        reasons.append(f"the largest difference of a case score, {found.largest:.2f} points, {bound}")
    if found.p is not None and found.p < SHIFT_LEVEL:
        reasons.append(f"the scores moved in one direction (p = {found.p:.2g}); noise has none")
    return tuple(reasons)


def _case(score: CaseScore) -> tuple[str, int]:
    return (score.task.digest, score.sample)


def _two_sided(rows: Sequence[Difference]) -> float | None:
    up = sign_flip(rows, draws=FLIPS)
    down = sign_flip([row.revise(value=-row.value) for row in rows], draws=FLIPS)
    return None if up is None or down is None else min(1.0, 2 * min(up, down))
