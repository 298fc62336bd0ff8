"""Taking forgotten conversations out of what was stored of them: shards, scores and training sets.

Blobs are addressed by their content, so none is changed: a noun without the forgotten parts, with a
digest of its own, is stored and stands for the old one from then on, and the old one's bytes are taken
away. Index rows stay: digests and numbers that say what a generation was made of, and no words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sqlalchemy import and_
from sqlmodel import Session, col, select

from loop.core.episode import Episode, EpisodeShard, Failure, Record
from loop.core.errors import StoreConflict
from loop.core.living import ERASED, LIVING, Erasure
from loop.core.noun import Noun
from loop.core.score import CaseScore, ScoreShard
from loop.core.training_set import TrainingSet
from loop.store import lease, nouns
from loop.store.blobs import FsBlobs
from loop.store.database import empty_log, now, reading, writing
from loop.store.living import SqlLiving
from loop.store.living_tables import ErasureRow, ForgottenRow
from loop.store.parquet import encode
from loop.store.tables import (
    AttemptRow,
    EpisodeRow,
    GenerationAdapterRow,
    GenerationRow,
    NounRow,
    RescoreRow,
    ScoreRow,
    StepRow,
    TrainingRowRow,
    TrainingSetRow,
)

GONE = Failure(boundary=ERASED, message="taken away at its owner's wish")


def erase(url: str, blobs: FsBlobs) -> Erasure:
    """Take every forgotten case out of every stored body; what is out already is not touched again.

    A lineage that a run holds is left ``waiting``: erase again when it has ended.
    """
    total = Erasure()
    for family in _families(url):
        try:
            with lease.hold(url, family, "erasing forgotten conversations"):
                done = _Sweep(url, blobs, family, SqlLiving(url).forgotten()).run()
        except StoreConflict:
            total = total.revise(waiting=(*total.waiting, family))
            continue
        total = total.revise(
            episodes=total.episodes + done.episodes,
            rows=total.rows + done.rows,
            adapters=tuple(sorted({*total.adapters, *done.adapters})),
        )
    with reading(url) as session:
        bodies = session.exec(select(NounRow.blob).join(ErasureRow, col(ErasureRow.noun) == NounRow.digest)).all()
    for blob in bodies:
        blobs.erase(blob)
    empty_log(url)
    return total


def _families(url: str) -> tuple[str, ...]:
    """The lineages whose episodes met a forgotten case."""
    query = (
        select(AttemptRow.family)
        .join(EpisodeRow, col(EpisodeRow.attempt) == AttemptRow.digest)
        .join(ForgottenRow, col(ForgottenRow.case) == EpisodeRow.case)
        .where(EpisodeRow.environment == LIVING)
        .distinct()
    )
    with reading(url) as session:
        return tuple(sorted(session.exec(query).all()))


@dataclass(frozen=True)
class _Sweep:
    """One lineage swept; ``forgotten`` are the cases to take out."""

    url: str
    blobs: FsBlobs
    family: str
    forgotten: frozenset[str]

    def run(self) -> Erasure:
        with reading(self.url) as session:
            shards, sets = set(self._shards(session)), set(self._sets(session))
            scores = set(self._scores(session))
            adapters = tuple(self._adapters(session))
        gone: dict[str, Episode] = {}
        rows = 0
        replaced: list[tuple[str, Noun]] = []
        for digest in sorted(shards):
            shard = nouns.load(self.url, self.blobs, EpisodeShard, digest)
            found = {e.digest: _stub(e) for e in shard.episodes if e.task.case in self.forgotten}
            gone |= {old: stub for old, stub in found.items() if old != stub.digest}
            replaced.append((digest, shard.revise(episodes=tuple(found.get(e.digest, e) for e in shard.episodes))))
        for digest in sorted(scores):
            scored = nouns.load(self.url, self.blobs, ScoreShard, digest)
            replaced.append((digest, scored.revise(scores=tuple(_unscored(s, gone) for s in scored.scores))))
        for digest in sorted(sets):
            learned = nouns.load(self.url, self.blobs, TrainingSet, digest)
            kept = tuple(row for row in learned.rows if row.case not in self.forgotten)
            rows += len(learned.rows) - len(kept)
            replaced.append((digest, learned.revise(rows=kept)))
        self._replace(replaced)
        return Erasure(episodes=len(gone), rows=rows, adapters=adapters if gone or rows else ())

    def _replace(self, replaced: list[tuple[str, Noun]]) -> None:
        """Store what stands for each noun from now on, then say so, in one transaction."""
        stored = [(digest, noun, self.blobs.put(encode(noun))) for digest, noun in replaced]
        with writing(self.url) as session:
            lease.fence(session, self.url, self.family)
            for digest, noun, blob in stored:
                old = nouns.standing(session, digest)
                if old == noun.digest:
                    continue
                nouns.add_noun(session, noun, blob)
                session.flush()
                session.add(ErasureRow(noun=old, replacement=noun.digest, at=now()))
                body = session.get_one(NounRow, old).blob
                for row in session.exec(select(EpisodeRow).where(EpisodeRow.shard == body)):
                    row.shard = blob

    def _shards(self, session: Session) -> Iterator[str]:
        met = select(EpisodeRow.attempt, EpisodeRow.stage, EpisodeRow.key).where(
            EpisodeRow.environment == LIVING, col(EpisodeRow.case).in_(self.forgotten)
        )
        return self._steps(session, set(session.exec(met.distinct()).all()))

    def _scores(self, session: Session) -> Iterator[str]:
        met = select(ScoreRow.attempt, ScoreRow.stage, ScoreRow.key).where(
            ScoreRow.environment == LIVING, col(ScoreRow.case).in_(self.forgotten)
        )
        yield from self._steps(session, set(session.exec(met.distinct()).all()))
        again = (
            select(RescoreRow.noun)
            .join(NounRow, col(NounRow.digest) == RescoreRow.noun)
            .join(GenerationRow, col(GenerationRow.digest) == RescoreRow.generation)
            .where(GenerationRow.family == self.family, NounRow.kind == ScoreShard.__name__)
        )
        yield from session.exec(again.distinct())

    def _sets(self, session: Session) -> Iterator[str]:
        rows, sets = TrainingRowRow, TrainingSetRow
        same = and_(col(rows.attempt) == sets.attempt, col(rows.stage) == sets.stage, col(rows.key) == sets.key)
        learned = (
            select(TrainingSetRow.noun)
            .join(AttemptRow, col(AttemptRow.digest) == TrainingSetRow.attempt)
            .join(TrainingRowRow, same)
            .where(AttemptRow.family == self.family, TrainingRowRow.environment == LIVING)
            .where(col(TrainingRowRow.case).in_(self.forgotten))
        )
        yield from session.exec(learned.distinct())

    def _steps(self, session: Session, met: set[tuple[str, str, str]]) -> Iterator[str]:
        for keys in sorted(met):
            if session.get_one(AttemptRow, keys[0]).family == self.family:
                yield session.get_one(StepRow, keys).noun

    def _adapters(self, session: Session) -> Iterator[str]:
        """The adapters of generations whose attempts trained their specialist on a forgotten case."""
        query = (
            select(GenerationAdapterRow.adapter)
            .join(GenerationRow, col(GenerationRow.digest) == GenerationAdapterRow.generation)
            .join(TrainingRowRow, col(TrainingRowRow.attempt) == GenerationRow.attempt)
            .where(TrainingRowRow.environment == LIVING, col(TrainingRowRow.case).in_(self.forgotten))
            .where(TrainingRowRow.label == GenerationAdapterRow.label, GenerationRow.family == self.family)
        )
        yield from session.exec(query.distinct())


def _stub(episode: Episode) -> Episode:
    """What is left of an episode: that it was played, and what it cost."""
    return episode.revise(turns=(), record=Record(), failure=GONE)


def _unscored(score: CaseScore, gone: Mapping[str, Episode]) -> CaseScore:
    stub = gone.get(score.episode)
    if stub is None:
        return score
    return CaseScore(
        episode=stub.digest, task=score.task, sample=score.sample, score=None, passed=None, failure=stub.failure
    )
