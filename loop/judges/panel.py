"""Every sample of every judge for many questions: asked at once within bounds, answered in order."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from loop.core.case import Transcript
from loop.core.noun import Noun, seed_from
from loop.judges.client import SPENT, exchange
from loop.judges.grade import Grade, read_answer, told
from loop.judges.prompt import RESPONSE_FORMAT, messages
from loop.remote.line import Line, NoAnswer
from loop.remote.threads import in_order


class RubricQuestion(Noun):
    """One rubric to be graded on one conversation, ``samples`` times by each judge.

    ``rubric_first`` shows the rubric before the conversation instead of after it.
    """

    rubric: str
    transcript: Transcript
    samples: int
    rubric_first: bool = False


@dataclass(frozen=True)
class _Sample:
    """One sample of one judge; ``number`` counts it among the judge's samples of the question."""

    question: RubricQuestion
    line: Line
    number: int


@dataclass(frozen=True)
class Panel:
    """Open lines to the judges; at most ``in_flight`` requests run at once.

    ``budget`` caps the requests of one ``grade``. First requests are reserved in the
    order of the questions, so that what goes unasked does not depend on timing; retries
    share what is left over.
    """

    lines: tuple[Line, ...]
    temperature: float
    max_tokens: int
    in_flight: int
    budget: int | None = None

    def grade(self, questions: Sequence[RubricQuestion]) -> list[tuple[tuple[Grade, ...], ...]]:
        """For each question, in order, the grades of each judge's samples (``[judge][sample]``)."""
        asked = self._affordable(questions)
        samples = [
            _Sample(question, line, number)
            for question, is_asked in zip(questions, asked, strict=True)
            if is_asked
            for line in self.lines
            for number in range(question.samples)
        ]
        grades = iter(self._all(samples))
        unasked = Grade(evidence=SPENT)
        return [
            tuple(tuple(next(grades) if is_asked else unasked for _ in range(question.samples)) for _ in self.lines)
            for question, is_asked in zip(questions, asked, strict=True)
        ]

    def _affordable(self, questions: Sequence[RubricQuestion]) -> list[bool]:
        if self.budget is None:
            return [True] * len(questions)
        left, asked = self.budget, list[bool]()
        for question in questions:
            cost = len(self.lines) * question.samples
            asked.append(cost <= left)
            left -= cost if asked[-1] else 0
        for allowance in {id(line.allowance): line.allowance for line in self.lines}.values():
            allowance.left = left
        return asked

    def _all(self, samples: Sequence[_Sample]) -> list[Grade]:
        try:
            return in_order(self._one, samples, self.in_flight)
        except BaseException:
            # An interrupt above all: no retry sleeps on.
            for line in self.lines:
                line.allowance.closed.set()
            raise

    def _one(self, sample: _Sample) -> Grade:
        question, line = sample.question, sample.line
        # Drawn after the record was written: nothing in the record can hold it.
        nonce = secrets.token_hex(16)
        shown = messages(question.rubric, question.transcript, nonce, rubric_first=question.rubric_first)
        body = {
            "model": line.endpoint.model,
            "messages": shown,
            "temperature": self.temperature,
            "max_tokens": self.max_tokens,
            "seed": seed_from("judge", question.digest, sample.number) % 2**31,
        }
        reply = exchange(line, body, RESPONSE_FORMAT)
        if reply.content is None:
            return Grade(evidence=reply.problem, calls=reply.calls)
        try:
            answer = read_answer(reply.content)
        except NoAnswer as error:
            return Grade(evidence=str(error), calls=reply.calls)
        return Grade(score=answer.score, evidence=told(answer, _said(question.transcript)), calls=reply.calls)


def _said(transcript: Transcript) -> str:
    """Everything a judge may quote: what was said, and the tools' results."""
    results = (json.dumps(call.result, ensure_ascii=False) for call in transcript.calls)
    return "\n".join((*transcript.users, *transcript.replies, *results))
