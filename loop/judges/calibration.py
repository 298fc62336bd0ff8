"""The exam of a language-model judge: how it grades replies that are known to hold and to breach."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import fmean, stdev
from typing import ClassVar

from pydantic import Field

from loop.core.base import Base
from loop.core.case import Transcript, filled
from loop.core.checks import Judged
from loop.core.contract import Contract, Criterion, Scenario
from loop.core.errors import UserError
from loop.core.noun import Noun, digest_of
from loop.judges.agreement import krippendorff_alpha
from loop.judges.grade import Grade, mean_of
from loop.judges.llm import LlmJudge, rubric_of
from loop.judges.panel import RubricQuestion
from loop.judges.verify import labelled_transcripts
from loop.remote.endpoint import Endpoint

DEFAULT_SAMPLES = Judged.model_fields["samples"].default


class Specimen(Noun):
    """One labelled reply with the rubric it is graded by; ``expected`` says whether it holds."""

    scenario: str
    criterion: str
    rubric: str
    transcript: Transcript
    samples: int
    expected: bool

    @property
    def key(self) -> str:
        """What names it in a stored calibration, which keeps no reply's text."""
        return digest_of([self.scenario, self.criterion, self.rubric, self.transcript, self.expected])[:16]


class Reading(Noun):
    """What each judge made of one specimen, one value a judge; None where it gave no grade.

    ``scores`` and ``swapped`` are means over the samples, with the rubric after and before
    the conversation; ``spread`` is the standard deviation over the samples.
    """

    key: str
    scenario: str
    criterion: str
    expected: bool
    scores: tuple[float | None, ...]
    swapped: tuple[float | None, ...] = ()
    spread: tuple[float | None, ...] = ()


class JudgeFigures(Noun):
    """One judge over all specimens; scores in [0, 1], None where there is nothing to measure.

    ``accuracy`` is the share of graded specimens on the right side of 0.5; ``order_effect``
    the mean absolute change of a specimen's score when the order is swapped; ``spread`` the
    mean standard deviation when the same request is sampled again.
    """

    model: str
    family: str
    asked: int
    graded: int
    accuracy: float | None
    held: float | None
    breached: float | None
    order_effect: float | None
    spread: float | None


class Calibration(Noun):
    """A judge under a contract, at one time: figures for each judge, agreement between them, and every reading."""

    undigested: ClassVar[frozenset[str]] = frozenset({"calls"})

    contract: str
    judge: str
    prompt: str
    readings: tuple[Reading, ...]
    figures: tuple[JudgeFigures, ...]
    agreement: float | None = None
    warnings: tuple[str, ...] = ()
    calls: int = Field(default=0, ge=0)


def specimens(
    contract: Contract, judge: LlmJudge, *, each: int | None = 2, every: bool = False
) -> tuple[Specimen, ...]:
    """Of each criterion the first ``each`` labelled replies (None: all) that hold and that breach.

    Judged criteria only, unless ``every`` is set or the contract has none: then the text
    of any criterion serves as the rubric.
    """
    pairs = [(scenario, criterion) for scenario in contract.scenarios for criterion in scenario.criteria]
    judged = [pair for pair in pairs if isinstance(pair[1].check, Judged)]
    chosen = pairs if every or not judged else judged
    return tuple(found for scenario, criterion in chosen for found in _of(scenario, criterion, judge.samples, each))


def _of(scenario: Scenario, criterion: Criterion, samples: int | None, each: int | None) -> list[Specimen]:
    check = criterion.check
    count = samples or (check.samples if isinstance(check, Judged) else DEFAULT_SAMPLES)
    rows = [
        Specimen(
            scenario=scenario.id,
            criterion=criterion.id,
            rubric=rubric_of(filled(criterion, transcript.slots)),
            transcript=transcript,
            samples=count,
            expected=expected,
        )
        for entry in scenario.labelled
        if entry.criterion == criterion.id
        for transcript, _, expected in labelled_transcripts(entry)
    ]
    held, breached = ([row for row in rows if row.expected is side][:each] for side in (True, False))
    return [*held, *breached]


def requests(judge: LlmJudge, chosen: Sequence[Specimen]) -> int:
    """The requests of a calibration before any retry: every sample in both orders, and one trial."""
    return len(judge.endpoints) * (1 + 2 * sum(specimen.samples for specimen in chosen))


def calibrate(
    contract: Contract, judge: LlmJudge, chosen: Sequence[Specimen], *, base: Base | None = None
) -> Calibration:
    """Ask every judge for every specimen in both orders; ``budget_calls`` does not bound this.

    A judge whose family is the base's is warned about: it may favour its own kind.
    UserError when a judge does not answer even the first specimen.
    """
    orders = [question_of(specimen, rubric_first=first) for first in (False, True) for specimen in chosen]
    with judge.panel() as panel:
        first = panel.grade([question.revise(samples=1) for question in orders[:1]])
        refuse_silence(judge.models, first)
        grades = panel.grade(orders)
    plain, swapped = grades[: len(chosen)], grades[len(chosen) :]
    readings = tuple(
        reading_of(specimen, before, after) for specimen, before, after in zip(chosen, plain, swapped, strict=True)
    )
    return Calibration(
        contract=contract.digest,
        judge=judge.name,
        prompt=judge.prompt,
        readings=readings,
        figures=figures_of(judge, readings),
        agreement=krippendorff_alpha([reading.scores for reading in readings]),
        warnings=(*family_warnings(judge, base), *lost_warning(grades)),
        calls=sum(grade.calls for question in (*first, *grades) for row in question for grade in row),
    )


def question_of(specimen: Specimen, *, rubric_first: bool) -> RubricQuestion:
    """What the judges are asked about a specimen."""
    return RubricQuestion(
        rubric=specimen.rubric,
        transcript=specimen.transcript,
        samples=specimen.samples,
        rubric_first=rubric_first,
    )


def refuse_silence(models: Sequence[str], grades: Sequence[Sequence[Sequence[Grade]]]) -> None:
    """UserError naming the first judge that gave no grade at all; ``grades`` are ``[question][judge][sample]``."""
    for place, model in enumerate(models):
        mine = [grade for question in grades for grade in question[place]]
        if all(grade.score is None for grade in mine):
            why = mine[0].evidence if mine else "the contract has no labelled reply to ask about"
            raise UserError(
                f"judge {model} gives no grade: {why}; see that its endpoint is up and serves it, then run again"
            )


def reading_of(
    specimen: Specimen, plain: Sequence[Sequence[Grade]], swapped: Sequence[Sequence[Grade]] = ()
) -> Reading:
    """``plain`` and ``swapped`` are ``[judge][sample]``; without a second order nothing is swapped."""
    return Reading(
        key=specimen.key,
        scenario=specimen.scenario,
        criterion=specimen.criterion,
        expected=specimen.expected,
        scores=tuple(mean_of(row) for row in plain),
        swapped=tuple(mean_of(row) for row in swapped),
        spread=tuple(_spread(row) for row in plain),
    )


def _spread(grades: Sequence[Grade]) -> float | None:
    scores = [grade.score for grade in grades if grade.score is not None]
    return stdev(scores) if len(scores) > 1 else None


def figures_of(judge: LlmJudge, readings: Sequence[Reading]) -> tuple[JudgeFigures, ...]:
    """The figures of each judge over these readings."""
    return tuple(
        JudgeFigures(
            model=endpoint.model,
            family=endpoint.family,
            asked=len(readings),
            graded=sum(reading.scores[place] is not None for reading in readings),
            accuracy=accuracy(readings, place),
            held=held_and_breached(readings, place)[0],
            breached=held_and_breached(readings, place)[1],
            order_effect=_mean(_moved(reading, place) for reading in readings),
            spread=_mean(reading.spread[place] for reading in readings if reading.spread),
        )
        for place, endpoint in enumerate(judge.endpoints)
    )


def accuracy(readings: Sequence[Reading], place: int) -> float | None:
    """The share of a judge's graded readings on the right side of 0.5; None with none."""
    return _mean(
        None if (score := reading.scores[place]) is None else float((score >= 0.5) is reading.expected)
        for reading in readings
    )


def held_and_breached(readings: Sequence[Reading], place: int) -> tuple[float | None, float | None]:
    """A judge's mean score of the replies that hold and of those that breach."""
    held, breached = (_mean(row.scores[place] for row in readings if row.expected is side) for side in (True, False))
    return held, breached


def _moved(reading: Reading, place: int) -> float | None:
    before, after = reading.scores[place], reading.swapped[place] if reading.swapped else None
    return None if before is None or after is None else abs(after - before)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def family_warnings(judge: LlmJudge, base: Base | None) -> tuple[str, ...]:
    """A sentence for each judge that is, or may be, of the candidate base's family."""
    if base is None:
        return ("the base is not known before generation 0, so its family was not compared with the judges'",)
    told = (_family_warning(endpoint, base) for endpoint in judge.endpoints)
    return tuple(sentence for sentence in told if sentence)


def _family_warning(endpoint: Endpoint, base: Base) -> str:
    family, own, model = _bare(base.family), _bare(endpoint.family), _bare(endpoint.model)
    if own == family or family in model or model == _bare(base.id):
        return f"judge {endpoint.model} is of the base's own family ({base.family}): it may favour its own kind"
    return "" if own else f"judge {endpoint.model} states no family, so it was compared by its name alone"


def lost_warning(grades: Sequence[Sequence[Sequence[Grade]]]) -> tuple[str, ...]:
    """A sentence when samples got no grade, with the most frequent reason; ``[question][judge][sample]``."""
    samples = [grade for question in grades for row in question for grade in row]
    reasons = Counter(grade.evidence for grade in samples if grade.score is None)
    if not reasons:
        return ()
    reason = reasons.most_common(1)[0][0]
    return (f"{reasons.total()} of {len(samples)} samples got no grade, most often because: {reason}",)


def _bare(name: str) -> str:
    """Letters and digits in lower case: ``SmolLM2`` and ``smol-lm2`` are one family."""
    return "".join(character for character in name.casefold() if character.isalnum())
