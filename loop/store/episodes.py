"""Reading one episode back: its body from the shard, and the scores that name it."""

from __future__ import annotations

from sqlmodel import Session, col, select

from loop.core.episode import EpisodeShard
from loop.core.errors import UserError
from loop.core.evidence import EpisodeEvidence, Scored
from loop.core.score import ScoreShard
from loop.ports import Blobs
from loop.store import nouns
from loop.store.database import reading
from loop.store.tables import EpisodeRow, ScoreRow, StepRow

SHORTEST_PREFIX = 6


def evidence(url: str, blobs: Blobs, digest: str) -> EpisodeEvidence:
    """An episode by digest or unique prefix of at least 6 digits; UserError, TornBlob."""
    prefix = digest.strip().lower()
    if len(prefix) < SHORTEST_PREFIX or not set(prefix) <= set("0123456789abcdef"):
        raise UserError(f"{digest!r} is no digest: expected at least {SHORTEST_PREFIX} hexadecimal digits")
    with reading(url) as session:
        rows = session.exec(
            select(EpisodeRow)
            .where(col(EpisodeRow.digest).startswith(prefix))
            .order_by(col(EpisodeRow.digest), col(EpisodeRow.attempt))
        ).all()
        found = sorted({row.digest for row in rows})
        if len(found) != 1:
            what = f"fits {len(found)} episodes: give more digits" if found else "is no episode of this store"
            raise UserError(f"{digest} {what}; `macaron-loop why` and the report name episodes")
        shard = _noun(session, rows[0].attempt, rows[0].stage, rows[0].key)
        scored = session.exec(select(ScoreRow).where(ScoreRow.episode == found[0])).all()
        shards = {
            (row.contract, row.half): _noun(session, row.attempt, row.stage, row.key)
            for row in sorted(scored, key=lambda row: (row.contract, row.half != "visible", row.attempt))
        }
    episode = nouns.load(url, blobs, EpisodeShard, shard).episodes[rows[0].position]
    scores = []
    for noun in shards.values():
        card = nouns.load(url, blobs, ScoreShard, noun)
        scores += [
            Scored(contract=card.contract, half=card.half, score=score)
            for score in card.scores
            if score.episode == episode.digest
        ]
    return EpisodeEvidence(episode=episode, scores=tuple(scores))


def _noun(session: Session, attempt: str, stage: str, key: str) -> str:
    return session.get_one(StepRow, (attempt, stage, key)).noun
