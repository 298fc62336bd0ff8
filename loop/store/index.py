"""Index rows of the nouns that hold many: what SQL can be asked without opening a blob."""

from __future__ import annotations

from typing import Any

from sqlmodel import Session

from loop.core.episode import EpisodeShard
from loop.core.noun import Noun
from loop.core.score import CaseScore, ScoreShard
from loop.core.training_set import TrainingSet
from loop.store.nouns import insert_missing
from loop.store.tables import EpisodeRow, ScoreRow, StepRow, TrainingRowRow, TrainingSetRow, VerdictRow

Row = dict[str, Any]


def index(session: Session, step: StepRow, noun: Noun, blob: str) -> None:
    """Insert the index rows of a recorded noun; nothing for the kinds that have none."""
    keys = {"attempt": step.attempt, "stage": step.stage, "key": step.key}
    if isinstance(noun, EpisodeShard):
        insert_missing(session, EpisodeRow, _episodes(keys, noun, blob))
    elif isinstance(noun, ScoreShard):
        insert_missing(session, ScoreRow, [_score(keys, noun, score) for score in noun.scores])
        insert_missing(session, VerdictRow, [row for score in noun.scores for row in _verdicts(keys, score)])
    elif isinstance(noun, TrainingSet):
        row = {"label": noun.label, "noun": noun.digest, "rows": len(noun.rows), "tokens": noun.tokens}
        insert_missing(session, TrainingSetRow, [keys | row])
        insert_missing(session, TrainingRowRow, _sources(keys, noun))


def _episodes(keys: Row, shard: EpisodeShard, blob: str) -> list[Row]:
    return [
        keys
        | {
            "digest": episode.digest,
            "shard": blob,
            "position": position,
            "pair": episode.pair,
            "task": episode.task.digest,
            "environment": episode.task.environment,
            "case": episode.task.case,
            "split": episode.task.split.value,
            "level": episode.task.level,
            "sample": episode.sample,
            "seed": episode.seed,
            "boundary": episode.failure.boundary if episode.failure else None,
        }
        for position, episode in enumerate(shard.episodes)
    ]


def _score(keys: Row, shard: ScoreShard, score: CaseScore) -> Row:
    return keys | {
        "episode": score.episode,
        "contract": shard.contract,
        "half": shard.half.value,
        "environment": score.task.environment,
        "case": score.task.case,
        "level": score.task.level,
        "score": score.score,
        "passed": score.passed,
    }


def _verdicts(keys: Row, score: CaseScore) -> list[Row]:
    return [
        keys
        | {
            "episode": score.episode,
            "half": verdict.half.value,
            "criterion": verdict.criterion,
            "axiom": verdict.axiom,
            "value": verdict.value,
            "judge": verdict.judge,
        }
        for verdict in score.verdicts
    ]


def _sources(keys: Row, training_set: TrainingSet) -> list[Row]:
    return [
        keys
        | {
            "position": position,
            "label": training_set.label,
            "episode": row.episode,
            "turn": row.turn,
            "task": row.task,
            "environment": row.environment,
            "case": row.case,
            "licence": row.licence,
            "generation": row.generation,
            "score": row.score,
            "weight": row.weight,
        }
        for position, row in enumerate(training_set.rows)
    ]
