"""Why a generation is what it is: score -> adapters -> training rows -> episodes -> verdicts."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlmodel import Session, case, col, desc, func, select

from loop.core.contract import Half
from loop.core.generation import Generation
from loop.core.pair import Adapter
from loop.core.score import PASS_THRESHOLD
from loop.store import queries
from loop.store.database import reading
from loop.store.tables import AttemptRow, EpisodeRow, GenerationRow, TrainingRowRow, TrainingSetRow, VerdictRow
from loop.store.views import AdapterWhy, CriterionView, EpisodeView, SourceView, WhyView

TOP_SOURCES = 8
TOP_EXAMPLES = 5


def why(url: str, generation: Generation) -> WhyView:
    """The evidence behind a registered generation; the root has none but its pair."""
    with reading(url) as session:
        row = session.exec(select(GenerationRow).where(GenerationRow.digest == generation.digest)).one()
        parent = (
            session.exec(select(GenerationRow).where(GenerationRow.digest == row.parent)).one() if row.parent else None
        )
        attempt = session.get(AttemptRow, row.attempt) if row.attempt else None
        before = {adapter.digest for adapter in parent.document.pair.adapters} if parent else set()
        return WhyView(
            generation=generation,
            parent_number=parent.number if parent else None,
            attempt=queries.attempt_view(session, attempt) if attempt else None,
            adapters=tuple(
                _adapter(session, row.attempt, adapter, parent is not None and adapter.digest not in before)
                for adapter in generation.pair.adapters
            ),
            openings=queries.openings(url, row.family, row.attempt) if row.attempt else (),
        )


def _adapter(session: Session, attempt: str | None, adapter: Adapter, trained: bool) -> AdapterWhy:
    built = session.exec(
        select(TrainingSetRow)
        .where(TrainingSetRow.attempt == attempt, TrainingSetRow.label == adapter.label)
        .order_by(TrainingSetRow.stage, TrainingSetRow.key)
    ).first()
    if built is None:
        return AdapterWhy(adapter=adapter, trained=trained)
    mine = (
        col(TrainingRowRow.attempt) == built.attempt,
        col(TrainingRowRow.stage) == built.stage,
        col(TrainingRowRow.key) == built.key,
    )
    episodes = session.exec(select(func.count(func.distinct(TrainingRowRow.episode))).where(*mine)).one()
    licences = session.exec(
        select(TrainingRowRow.licence, func.count()).where(*mine).group_by(TrainingRowRow.licence)
    ).all()
    return AdapterWhy(
        adapter=adapter,
        trained=trained,
        training_set=built.noun,
        rows=built.rows,
        tokens=built.tokens,
        episodes=episodes,
        licences=dict(sorted(licences)),
        sources=_sources(session, mine),
        criteria=_criteria(session, mine),
        examples=_examples(session, mine),
    )


def _sources(session: Session, mine: tuple[Any, ...]) -> tuple[SourceView, ...]:
    """The cases most rows come from."""
    keys: tuple[Any, ...] = (TrainingRowRow.environment, TrainingRowRow.case, TrainingRowRow.generation)
    rows = func.count().label("rows")
    query: Any = (
        sa.select(*keys, rows, func.count(func.distinct(TrainingRowRow.episode)), func.avg(TrainingRowRow.score))
        .where(*mine)
        .group_by(*keys)
        .order_by(desc("rows"), *keys)
        .limit(TOP_SOURCES)
    )
    return tuple(
        SourceView(
            environment=environment,
            case=name,
            generation=generation,
            rows=count,
            episodes=episodes,
            mean_score=score,
        )
        for environment, name, generation, count, episodes, score in session.connection().execute(query)
    )


def _criteria(session: Session, mine: tuple[Any, ...]) -> tuple[CriterionView, ...]:
    """Visible verdicts on the rows' episodes, those most often breached first."""
    value = col(VerdictRow.value)
    episode = VerdictRow.episode

    def episodes_where(condition: Any) -> Any:
        return func.count(func.distinct(case((condition, episode))))

    query = (
        sa.select(
            col(VerdictRow.criterion),
            col(VerdictRow.axiom),
            episodes_where(value >= PASS_THRESHOLD),
            episodes_where(value < PASS_THRESHOLD).label("breached"),
            episodes_where(value.is_(None)),
        )
        .where(col(VerdictRow.half) == Half.VISIBLE.value)
        .where(col(episode).in_(select(TrainingRowRow.episode).where(*mine)))
        .group_by(col(VerdictRow.criterion), col(VerdictRow.axiom))
        .order_by(desc("breached"), col(VerdictRow.criterion))
    )
    return tuple(
        CriterionView(criterion=criterion, axiom=axiom, held=held, breached=breached, undecided=undecided)
        for criterion, axiom, held, breached, undecided in session.connection().execute(query)
    )


def _examples(session: Session, mine: tuple[Any, ...]) -> tuple[EpisodeView, ...]:
    """The episodes with the best scores, and where their bodies are."""
    rows = func.count().label("rows")
    score = func.max(TrainingRowRow.score).label("best")
    query = (
        select(TrainingRowRow.episode, rows, score)
        .where(*mine)
        .group_by(TrainingRowRow.episode)
        .order_by(desc("best"), desc("rows"), TrainingRowRow.episode)
        .limit(TOP_EXAMPLES)
    )
    found: list[EpisodeView] = []
    for digest, count, best in session.exec(query).all():
        body = session.exec(
            select(EpisodeRow)
            .where(EpisodeRow.digest == digest)
            .order_by(col(EpisodeRow.attempt), col(EpisodeRow.position))
        ).first()
        if body is not None:
            found.append(
                EpisodeView(
                    episode=digest,
                    environment=body.environment,
                    case=body.case,
                    level=body.level,
                    sample=body.sample,
                    rows=count,
                    score=best,
                    shard=body.shard,
                    position=body.position,
                )
            )
    return tuple(found)
