"""The judge that asks language models: judged criteria go to a panel of endpoints, all others to the rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pydantic import ConfigDict, Field, field_validator, model_validator

from loop.core.case import criteria_for, transcript_of
from loop.core.checks import Judged
from loop.core.contract import Contract, Criterion, Half
from loop.core.episode import Episode
from loop.core.noun import Noun
from loop.core.score import Verdict
from loop.judges.grade import PanelFinding, merged
from loop.judges.panel import Panel, RubricQuestion
from loop.judges.prompt import PROMPT_HASH
from loop.judges.rules import Rules
from loop.remote.endpoint import Endpoint
from loop.remote.line import opened

HASH_SHOWN = 8


class LlmJudge(Noun):
    """One or more language models behind OpenAI-compatible URLs.

    ``samples`` overrides the criteria's own number. ``timeout`` (seconds) bounds one
    request, ``retries`` how often it is repeated, ``backoff`` (seconds) the first pause.
    ``budget_calls`` caps the requests of one shard of episodes, ``generation_calls`` those
    of a whole generation (or of its rescore) over all stages, workers and resumes, whose
    shards are then scored one after the other; what no longer fits is undecided.
    ``calibration`` is the digest that ``macaron-loop judge calibrate`` prints: a run asks
    ``probes`` of its replies again and stops when a figure moved by more than ``tolerance``.
    ``prompt`` pins the hash of the prompt; left out, it is this program's.
    """

    model_config = ConfigDict(hide_input_in_errors=True)

    endpoints: tuple[Endpoint, ...] = ()
    samples: int | None = Field(default=None, ge=1, le=100)
    temperature: float = Field(default=0.7, ge=0, le=2)
    max_tokens: int = Field(default=300, ge=16)
    timeout: float = Field(default=60.0, gt=0)
    retries: int = Field(default=3, ge=0, le=10)
    backoff: float = Field(default=1.0, gt=0, le=60)
    in_flight: int = Field(default=8, ge=1, le=64)
    budget_calls: int | None = Field(default=None, ge=0)
    generation_calls: int | None = Field(default=None, ge=0)
    tolerance: float = Field(default=0.15, gt=0, le=1)
    probes: int = Field(default=12, ge=2)
    calibration: str = ""
    prompt: str = Field(default="", validate_default=True)
    rules: Rules = Rules()

    @field_validator("prompt")
    @classmethod
    def _this_prompt(cls, pinned: str) -> str:
        if pinned not in ("", PROMPT_HASH):
            raise ValueError(f"this program's judge prompt is {PROMPT_HASH}; calibrate it and pin that")
        return PROMPT_HASH

    @model_validator(mode="after")
    def _judges_differ(self) -> LlmJudge:
        if len({(endpoint.url, endpoint.model) for endpoint in self.endpoints}) < len(self.endpoints):
            raise ValueError("two endpoints are the same model at the same url")
        return self

    @property
    def models(self) -> tuple[str, ...]:
        """The model ids, in the order of the endpoints."""
        return tuple(endpoint.model for endpoint in self.endpoints)

    @property
    def name(self) -> str:
        """What its verdicts are signed with: the model ids and the start of the prompt's hash."""
        return f"llm:{'+'.join(self.models)}@{self.prompt[:HASH_SHOWN]}"

    @contextmanager
    def panel(self, budget: int | None = None) -> Iterator[Panel]:
        """Open lines to the endpoints; ``budget`` caps the requests of each ``grade``."""
        with opened(self.endpoints, timeout=self.timeout, retries=self.retries, backoff=self.backoff) as lines:
            yield Panel(lines, self.temperature, self.max_tokens, self.in_flight, budget)

    def within(self, calls: int) -> LlmJudge:
        """This judge with at most so many requests for one ``judge_many``."""
        return self.revise(budget_calls=calls if self.budget_calls is None else min(calls, self.budget_calls))

    def judge(self, contract: Contract, episode: Episode, half: Half) -> tuple[Verdict, ...]:
        """A verdict for each criterion of that half that applies; a Failure is not judged and has none."""
        return self.judge_many(contract, (episode,), half)[0]

    def judge_many(self, contract: Contract, episodes: Sequence[Episode], half: Half) -> list[tuple[Verdict, ...]]:
        """The verdicts of each episode, in order; a judged criterion that nobody could grade is undecided."""
        rows = [list(row) for row in self.rules.judge_many(contract, episodes, half)]
        places: list[tuple[int, int]] = []
        questions: list[RubricQuestion] = []
        for row, episode in enumerate(episodes):
            if episode.failure is not None:
                continue
            transcript = transcript_of(episode)
            criteria = criteria_for(contract, episode.task, episode.record, half, transcript)
            for column, criterion in enumerate(criteria):
                if isinstance(criterion.check, Judged):
                    places.append((row, column))
                    questions.append(
                        RubricQuestion(
                            rubric=rubric_of(criterion),
                            transcript=transcript,
                            samples=self.samples or criterion.check.samples,
                        )
                    )
        for (row, column), finding in zip(places, self._findings(questions), strict=True):
            rows[row][column] = rows[row][column].revise(
                value=finding.value, evidence=finding.evidence, judge=self.name, calls=finding.calls
            )
        return [tuple(row) for row in rows]

    def _findings(self, questions: Sequence[RubricQuestion]) -> list[PanelFinding]:
        if not questions:
            return []
        with self.panel(self.budget_calls) as panel:
            return [merged(self.models, grades) for grades in panel.grade(questions)]


def rubric_of(criterion: Criterion) -> str:
    """What a judge grades by: the criterion's text, and its rubric where it has one."""
    check = criterion.check
    return f"{criterion.text}\n{check.rubric}" if isinstance(check, Judged) else criterion.text
