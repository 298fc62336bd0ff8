"""The judge that needs no language model: one function per kind of check, all embedding in one batch."""

from __future__ import annotations

from collections.abc import Sequence

from loop.core.case import Transcript, criteria_for, transcript_of
from loop.core.checks import (
    Avoids,
    Check,
    EndsCleanly,
    EndState,
    GroundedNumbers,
    Judged,
    Length,
    Mentions,
    NotBoilerplate,
    OffersChoice,
    Questions,
    ReportsOutcome,
    Semantic,
    StanceKept,
    ToolCalled,
    ToolNotCalled,
)
from loop.core.contract import Contract, Criterion, Half
from loop.core.episode import Episode
from loop.core.noun import Noun
from loop.core.score import Verdict
from loop.judges.checks_facts import end_state, grounded_numbers, reports_outcome, tool_called, tool_not_called
from loop.judges.checks_meaning import not_boilerplate, offers_choice, parts_of, semantic, stance_kept
from loop.judges.checks_words import asks, avoids, ends_cleanly, length, mentions
from loop.judges.embedder import MiniLm
from loop.judges.finding import Finding, said_in, undecided
from loop.judges.meaning import Meaning

NAME = "rules"


class Question(Noun):
    """One filled check to decide on one conversation."""

    check: Check
    transcript: Transcript


class Rules(Noun):
    """Deterministic checks; ``semantic``, ``stance_kept`` and ``not_boilerplate`` use the embedder."""

    embedder: MiniLm = MiniLm()

    @property
    def generation_calls(self) -> None:
        """No cap: rules ask nobody."""
        return None

    def within(self, calls: int) -> Rules:
        """The same judge."""
        return self

    def judge(self, contract: Contract, episode: Episode, half: Half) -> tuple[Verdict, ...]:
        """A verdict for each criterion of that half that applies; a Failure is not judged and has none."""
        return self.judge_many(contract, (episode,), half)[0]

    def judge_many(
        self, contract: Contract, episodes: Sequence[Episode], half: Half
    ) -> tuple[tuple[Verdict, ...], ...]:
        """The verdicts of each episode, in order; equal to ``judge`` one by one, with one batch of vectors."""
        criteria: list[tuple[Criterion, ...]] = []
        questions: list[Question] = []
        for episode in episodes:
            transcript = transcript_of(episode)
            mine = (
                ()
                if episode.failure is not None
                else criteria_for(contract, episode.task, episode.record, half, transcript)
            )
            criteria.append(mine)
            questions.extend(Question(check=criterion.check, transcript=transcript) for criterion in mine)
        findings = iter(self.decide(contract, questions))
        return tuple(tuple(_verdict(criterion, next(findings)) for criterion in mine) for mine in criteria)

    def decide(self, contract: Contract, questions: Sequence[Question]) -> tuple[Finding, ...]:
        """A finding for each question, in order."""
        texts = sorted({text for question in questions for text in texts_of(question, contract.boilerplate)})
        meaning = Meaning(dict(zip(texts, self.embedder.embed(texts), strict=True)))
        return tuple(decide(question, contract.boilerplate, meaning) for question in questions)


def texts_of(question: Question, boilerplate: Sequence[str]) -> tuple[str, ...]:
    """Every text whose vector the check will need."""
    check, transcript = question.check, question.transcript
    if isinstance(check, Semantic):
        return (*check.near, *check.far, *parts_of(said_in(transcript, check.turn)))
    if isinstance(check, StanceKept):
        return (*check.stance, *check.opposite, *parts_of(said_in(transcript, None)))
    if isinstance(check, NotBoilerplate):
        return (*boilerplate, *parts_of(said_in(transcript, check.turn)))
    return ()


def decide(question: Question, boilerplate: Sequence[str], meaning: Meaning) -> Finding:
    """Run one check on one conversation."""
    check, transcript = question.check, question.transcript
    if isinstance(check, (Semantic, StanceKept, NotBoilerplate)):
        return _decide_meaning(check, transcript, boilerplate, meaning)
    match check:
        case ReportsOutcome() | GroundedNumbers() | ToolCalled() | ToolNotCalled() | EndState():
            return _decide_fact(check, transcript)
        case Mentions():
            return mentions(check, transcript)
        case Avoids():
            return avoids(check, transcript)
        case Questions():
            return asks(check, transcript)
        case Length():
            return length(check, transcript)
        case EndsCleanly():
            return ends_cleanly(check, transcript)
        case OffersChoice():
            return offers_choice(check, transcript)
        case Judged():
            return undecided("needs a language-model judge")


def _decide_fact(
    check: ReportsOutcome | GroundedNumbers | ToolCalled | ToolNotCalled | EndState, transcript: Transcript
) -> Finding:
    match check:
        case ReportsOutcome():
            return reports_outcome(check, transcript)
        case GroundedNumbers():
            return grounded_numbers(check, transcript)
        case ToolCalled():
            return tool_called(check, transcript)
        case ToolNotCalled():
            return tool_not_called(check, transcript)
        case EndState():
            return end_state(check, transcript)


def _decide_meaning(
    check: Semantic | StanceKept | NotBoilerplate, transcript: Transcript, boilerplate: Sequence[str], meaning: Meaning
) -> Finding:
    match check:
        case Semantic():
            return semantic(check, transcript, meaning)
        case StanceKept():
            return stance_kept(check, transcript, meaning)
        case NotBoilerplate():
            return not_boilerplate(check, transcript, boilerplate, meaning)


def _verdict(criterion: Criterion, finding: Finding) -> Verdict:
    return Verdict(
        criterion=criterion.id,
        axiom=criterion.axiom,
        pole=criterion.pole,
        weight=criterion.weight,
        veto=criterion.veto,
        half=criterion.half,
        value=finding.value,
        evidence=finding.evidence,
        judge=NAME,
    )
