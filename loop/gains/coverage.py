"""pass@k, so that sharpening is told from new ability, and the alarm on lost diversity."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import comb

from loop.core.score import CaseScore

MASTERED = 0.9


def pass_at_k(n: int, c: int, k: int) -> float:
    """Unbiased pass@k from n samples with c passes: 1 - C(n-c, k) / C(n, k).

    Source: Chen et al. 2021, "Evaluating Large Language Models Trained on Code", eq. 1.
    Raises ValueError when k > n, for then no unbiased estimate exists.
    """
    if not 0 < k <= n or not 0 <= c <= n:
        raise ValueError(f"pass@k needs 0 < k <= n and 0 <= c <= n, found n={n} c={c} k={k}")
    return 1.0 - comb(n - c, k) / comb(n, k)


def mean_pass_at_k(scores: Sequence[CaseScore], k: int) -> float | None:
    """Mean pass@k over the tasks that have at least k decided samples; None when none has."""
    tasks: dict[str, list[bool]] = defaultdict(list)
    for score in scores:
        if score.passed is not None:
            tasks[score.task.digest].append(score.passed)
    values = [pass_at_k(len(rows), sum(rows), k) for rows in tasks.values() if len(rows) >= k]
    return sum(values) / len(values) if values else None


def distinct_share(texts: Sequence[Sequence[str]]) -> float | None:
    """Mean over tasks of (distinct replies / replies); None for no task with two replies."""
    shares = [len(set(replies)) / len(replies) for replies in texts if len(replies) > 1]
    return sum(shares) / len(shares) if shares else None


def collapse_alarms(before: dict[str, float], after: dict[str, float], tolerance: float = 0.05) -> tuple[str, ...]:
    """Sentences that name an environment whose diversity collapsed in training.

    Keys are ``<environment>/pass@1``, ``<environment>/pass@k`` and
    ``<environment>/distinct``. Raised when pass@k fell beyond ``tolerance`` while pass@1
    did not fall, or when the distinct share fell below half of what it was. Where nearly
    every sample passes, equal replies are right replies, and no alarm.
    """
    alarms = []
    for name in sorted({key.rsplit("/", 1)[0] for key in before}):
        one, many, distinct = f"{name}/pass@1", f"{name}/pass@k", f"{name}/distinct"
        if {one, many} <= before.keys() & after.keys():
            lost, kept = before[many] - after[many], after[one] >= before[one]
            if lost > tolerance and kept:
                alarms.append(f"{name}: pass@k fell from {before[many]:.2f} to {after[many]:.2f} while pass@1 held")
        halved = distinct in before and distinct in after and after[distinct] < 0.5 * before[distinct]
        if halved and after.get(one, 0.0) < MASTERED:
            alarms.append(f"{name}: distinct replies fell from {before[distinct]:.2f} to {after[distinct]:.2f}")
    return tuple(alarms)
