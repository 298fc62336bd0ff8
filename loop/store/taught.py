"""What a lineage's specialists were taught: the rows of its recorded training sets."""

from __future__ import annotations

from collections.abc import Sequence

from sqlmodel import col, select

from loop.core.training_set import Row, TrainingSet
from loop.ports import Blobs
from loop.store import nouns
from loop.store.database import reading
from loop.store.living import SqlLiving
from loop.store.tables import GenerationRow, TrainingSetRow


def replay(url: str, blobs: Blobs, family: str, ancestors: Sequence[str], label: str) -> tuple[Row, ...]:
    """The training rows of these generations for one label, each once; see SqlStore."""
    found: dict[tuple[str, int], Row] = {}
    forgotten = SqlLiving(url).forgotten()
    for ancestor in ancestors:
        sets = (nouns.load(url, blobs, TrainingSet, digest) for digest in _sets_of(url, family, ancestor, label))
        for row in (row for training_set in sets for row in training_set.rows if row.case not in forgotten):
            found.setdefault((row.episode, row.turn), row)
    return tuple(found.values())


def _sets_of(url: str, family: str, generation: str, label: str) -> Sequence[str]:
    query = (
        select(TrainingSetRow.noun)
        .join(GenerationRow, col(GenerationRow.attempt) == col(TrainingSetRow.attempt))
        .where(GenerationRow.family == family, GenerationRow.digest == generation)
        .where(TrainingSetRow.label == label)
        .order_by(TrainingSetRow.stage, TrainingSetRow.key)
    )
    with reading(url) as session:
        return session.exec(query).all()
