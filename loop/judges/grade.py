"""One sample of one judge: reading the grade out of its answer, and many samples as one finding."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from loop.core.noun import Noun
from loop.judges.finding import span
from loop.remote.line import NoAnswer

LONGEST_ANSWER = 20_000  # characters; far more than any grade needs
_FENCE = "`"


class Answer(BaseModel):
    """The JSON object a judge is asked for; other keys are ignored."""

    model_config = ConfigDict(strict=True)

    quote: str
    reason: str
    score: float = Field(ge=0, le=1, allow_inf_nan=False)


class Grade(Noun):
    """One sample: a score in [0, 1], or None and why; ``calls`` are the requests it cost."""

    score: float | None = Field(default=None, ge=0, le=1)
    evidence: str
    calls: int = 0


class PanelFinding(Noun):
    """What all samples of all judges say of one criterion: the mean of the judges' means, or None."""

    value: float | None = Field(default=None, ge=0, le=1)
    evidence: str
    calls: int = 0


def read_answer(content: str) -> Answer:
    """The one grade in a judge's answer; raises NoAnswer.

    Around the object there may be words before it and a code fence, but it ends the
    answer and no other object is a grade: a grade that the judge only quotes from the
    record must not be taken for its own.
    """
    if len(content) > LONGEST_ANSWER:
        raise NoAnswer("malformed: the answer is too long")
    found = [(value, rest) for value, rest in _objects(content) if value.keys() >= Answer.model_fields.keys()]
    if len(found) != 1 or found[0][1].strip(f"{_FENCE} \t\r\n"):
        raise NoAnswer("malformed: not one JSON object with quote, reason and score")
    try:
        return Answer.model_validate(found[0][0])
    except ValidationError as error:
        field = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise NoAnswer(f"malformed: {field} is not what was asked for") from None


def _objects(content: str) -> list[tuple[dict[str, object], str]]:
    """Each outermost JSON object in a text, with the text that follows it."""
    decoder, found, position = json.JSONDecoder(), list[tuple[dict[str, object], str]](), 0
    while (start := content.find("{", position)) >= 0:
        try:
            value, position = decoder.raw_decode(content, start)
        except (ValueError, RecursionError):
            position = start + 1
            continue
        found.append((value, content[position:]))
    return found


def told(answer: Answer, record: str) -> str:
    """The evidence of a grade: the quotation, whether the record has it, and the reason."""
    known = " ".join(answer.quote.split()).casefold() in " ".join(record.split()).casefold()
    doubt = "" if known else " (not in the record)"
    return f"{span(answer.quote)}{doubt}: {span(answer.reason, 160)}"


def merged(models: Sequence[str], grades: Sequence[Sequence[Grade]]) -> PanelFinding:
    """One finding of every judge's samples; ``grades[i]`` are those of ``models[i]``.

    Each judge must have answered more than half of its samples, or the criterion is left
    undecided: a panel that lost a judge is another panel.
    """
    calls = sum(grade.calls for row in grades for grade in row)
    short = [_lost(model, row) for model, row in zip(models, grades, strict=True) if _mean(row) is None]
    means = [mean for row in grades if (mean := _mean(row)) is not None]
    if short or not means:
        return PanelFinding(evidence=f"undecided: {'; '.join(short) or 'no judge was asked'}", calls=calls)
    evidence = "; ".join(_gave(model, row) for model, row in zip(models, grades, strict=True))
    return PanelFinding(value=sum(means) / len(means), evidence=evidence, calls=calls)


def mean_of(grades: Sequence[Grade]) -> float | None:
    """The mean of the scores that were given; None with none."""
    scores = [grade.score for grade in grades if grade.score is not None]
    return sum(scores) / len(scores) if scores else None


def _mean(grades: Sequence[Grade]) -> float | None:
    answered = sum(grade.score is not None for grade in grades)
    return mean_of(grades) if 2 * answered > len(grades) else None


def _lost(model: str, grades: Sequence[Grade]) -> str:
    reasons = Counter(grade.evidence for grade in grades if grade.score is None)
    answered = sum(grade.score is not None for grade in grades)
    why = ", ".join(f"{reason} x{count}" for reason, count in sorted(reasons.items()))
    return f"{model} answered {answered} of {len(grades)} ({why})"


def _gave(model: str, grades: Sequence[Grade]) -> str:
    """A judge's mean, its samples, and what it said where it came nearest to that mean."""
    mean = _mean(grades)
    answered = [(grade.score, grade.evidence) for grade in grades if grade.score is not None]
    nearest = min(answered, key=lambda one: abs(one[0] - (mean or 0.0)))
    return f"{model} {mean:.2f} ({len(answered)} of {len(grades)}): {nearest[1]}"
