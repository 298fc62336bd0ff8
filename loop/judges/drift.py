"""Whether a judge still grades as it did when it was calibrated; asked before a run spends anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from loop.core.checks import Judged
from loop.core.contract import Contract
from loop.core.errors import UserError
from loop.core.noun import Noun, seed_from
from loop.judges.calibration import (
    Calibration,
    Reading,
    Specimen,
    accuracy,
    held_and_breached,
    question_of,
    reading_of,
    refuse_silence,
    specimens,
)
from loop.judges.llm import LlmJudge

AGAIN = "run macaron-loop judge calibrate and put the digest it prints into the judge's options as calibration"


class Drift(Noun):
    """How far one figure of one judge moved between two calibrations, over the replies that both have."""

    model: str
    figure: str
    before: float
    after: float

    @property
    def change(self) -> float:
        """After less before."""
        return self.after - self.before


def drift(models: Sequence[str], before: Sequence[Reading], after: Sequence[Reading]) -> tuple[Drift, ...]:
    """Each judge's accuracy and mean scores of held and breached replies, then and now.

    A pure function of the readings. Only replies that both have, graded by that judge both
    times, are compared; a figure with none is left out.
    """
    known = {reading.key: reading for reading in before}
    pairs = [(known[reading.key], reading) for reading in after if reading.key in known]
    moved: list[Drift] = []
    for place, model in enumerate(models):
        graded = [pair for pair in pairs if None not in (pair[0].scores[place], pair[1].scores[place])]
        then, now = (_figures([pair[side] for pair in graded], place) for side in (0, 1))
        moved.extend(Drift(model=model, figure=name, before=then[name], after=now[name]) for name in then)
    return tuple(moved)


def _figures(readings: Sequence[Reading], place: int) -> dict[str, float]:
    held, breached = held_and_breached(readings, place)
    found = {"accuracy": accuracy(readings, place), "mean held score": held, "mean breached score": breached}
    return {name: value for name, value in found.items() if value is not None}


def refuse_drift(moved: Sequence[Drift], tolerance: float) -> None:
    """UserError naming the figure that moved furthest, when it moved beyond the tolerance."""
    worst = max(moved, key=lambda one: abs(one.change), default=None)
    if worst is None or abs(worst.change) <= tolerance:
        return
    raise UserError(
        f"judge {worst.model} drifted: its {worst.figure} on the calibration's replies was {worst.before:.2f} and is "
        f"{worst.after:.2f} now, which is beyond the tolerance of {tolerance:g}; {AGAIN}"
    )


def make_ready(judge: LlmJudge, contract: Contract, load: Callable[[str], Calibration]) -> None:
    """Check a judge before a run: endpoints, keys, the calibration it names, and drift since then.

    Asks the endpoints for ``judge.probes`` of the calibration's replies. Without a judged
    criterion in the contract nothing is asked. UserError says what is wrong.
    """
    if not any(isinstance(c.check, Judged) for scenario in contract.scenarios for c in scenario.criteria):
        return
    if not judge.endpoints:
        raise UserError("the judge llm has no endpoints; give it url and model under endpoints in the judge's options")
    for endpoint in judge.endpoints:
        endpoint.key()
    if not judge.calibration:
        raise UserError(f"the judge {judge.name} is not calibrated; {AGAIN}")
    reference = load(judge.calibration)
    if (reference.judge, reference.contract) != (judge.name, contract.digest):
        raise UserError(
            f"the calibration {reference.short} is of {reference.judge} under contract {reference.contract[:12]}, "
            f"and this run has {judge.name} under {contract.short}; {AGAIN}"
        )
    refuse_drift(drift(judge.models, reference.readings, probe(judge, contract, reference)), judge.tolerance)


def probe(judge: LlmJudge, contract: Contract, reference: Calibration) -> tuple[Reading, ...]:
    """Grade some of a calibration's replies again; UserError when a judge grades none of them."""
    chosen = probes(judge, contract, reference)
    with judge.panel() as panel:
        grades = panel.grade([question_of(specimen, rubric_first=False) for specimen in chosen])
    refuse_silence(judge.models, grades)
    return tuple(reading_of(specimen, found) for specimen, found in zip(chosen, grades, strict=True))


def probes(judge: LlmJudge, contract: Contract, reference: Calibration) -> tuple[Specimen, ...]:
    """The replies to ask again: half of them hold, half breach, the same ones each time."""
    known = {specimen.key: specimen for specimen in specimens(contract, judge, each=None, every=True)}
    rows = [reading for reading in reference.readings if reading.key in known and None not in reading.scores]
    rows.sort(key=lambda reading: seed_from("probe", reading.key))
    sides = ([reading for reading in rows if reading.expected is side] for side in (True, False))
    return tuple(known[reading.key] for side in sides for reading in side[: judge.probes // 2])
