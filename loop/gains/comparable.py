"""Which scores may stand in one series: those of one contract version, over the same cases."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from loop.core.errors import UserError
from loop.core.gate import Interval
from loop.core.generation import Generation
from loop.core.plan import GatePlan
from loop.core.score import Scorecard
from loop.gains.intervals import interval, paired


def series(generations: Sequence[Generation]) -> dict[str, tuple[Generation, ...]]:
    """The examined generations by the contract their score is under, in the order they came."""
    groups: dict[str, list[Generation]] = defaultdict(list)
    for generation in generations:
        if generation.exam is not None:
            groups[generation.exam.contract].append(generation)
    return {contract: tuple(group) for contract, group in groups.items()}


def refuse_mixed(generations: Sequence[Generation], names: Mapping[str, str]) -> None:
    """UserError when these generations' scores are of more than one contract; ``names`` are the versions by digest."""
    groups = series(generations)
    if len(groups) < 2:
        return
    told = "; ".join(
        f"{_version(contract, names)}: {', '.join(str(g.number) for g in group)}" for contract, group in groups.items()
    )
    # Drafts of one name are told apart by a digest after it; the command takes the name alone.
    newest = _version(list(groups)[-1], names).split()[0]
    raise UserError(
        f"scores of different contracts do not compare (generations by contract {told}): "
        f"score the ancestors again with `macaron-loop rescore --contract {newest}`"
    )


def gain_since(first: Scorecard, last: Scorecard, gate: GatePlan, seed: int) -> Interval | None:
    """The gain of one generation's exam over an earlier one's, on the cases both decided; None for no such case.

    Raises ValueError for scorecards of different contracts or halves, or of other cases:
    such a figure would not be a gain.
    """
    return interval(paired(first, last), level=gate.level, draws=gate.draws, seed=seed)


def _version(contract: str, names: Mapping[str, str]) -> str:
    return names.get(contract, contract[:12])
