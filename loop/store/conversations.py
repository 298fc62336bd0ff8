"""Conversations: turns that follow one another, each committed whole, each seen by its owner alone.

Turns are only ever added: two that go on from the same one are two branches, so that
several servers on one database need no lock between them, and a turn that was not
committed has never been.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import uuid4

from sqlalchemy import delete
from sqlmodel import Session, col, select

from loop.core.conversation import Exchange, Summed, Timeline, joined
from loop.store.conversation_tables import ExchangeRow, SummedRow
from loop.store.database import now, reading, writing
from loop.store.lease import alone
from loop.store.living import consent_of, forget_cases
from loop.store.living_tables import ExportedRow, OptOutRow
from loop.store.nouns import insert_missing
from loop.store.response_tables import ResponseRow


@dataclass(frozen=True)
class SqlConversations:
    """The conversations of every owner; one of another owner is as unknown as one that never was."""

    url: str

    def append(self, owner: str, after: str | None, exchange: Exchange) -> str:
        """Commit a turn after another (None begins a conversation) and return its id; LookupError."""
        name = f"turn_{uuid4().hex}"
        with writing(self.url) as session:
            before = None if after is None else _own(session, owner, after)
            session.add(
                ExchangeRow(
                    id=name,
                    owner=owner,
                    parent=after,
                    opening=before.opening if before else name,
                    number=before.number + 1 if before else 1,
                    history=exchange.history,
                    at=now(),
                    document=exchange,
                )
            )
        return name

    def sum_up(self, owner: str, turn: str, summed: Summed) -> None:
        """Keep what was written of a turn after its reply; the first to come stays. LookupError."""
        with writing(self.url) as session:
            _own(session, owner, turn)
            row = SummedRow(exchange=turn, at=now(), document=summed)
            insert_missing(session, SummedRow, [row.model_dump() | {"document": summed}])

    def timeline(self, owner: str, turn: str) -> Timeline:
        """All that was said up to and with a turn; LookupError."""
        with reading(self.url) as session:
            path = _path(session, _own(session, owner, turn))
            names = [row.id for row in path]
            late = session.exec(select(SummedRow).where(col(SummedRow.exchange).in_(names))).all()
        summed = {row.exchange: row.document for row in late}
        return joined([(row.document, summed.get(row.id)) for row in path])

    def exchange(self, owner: str, turn: str) -> Exchange:
        """One turn as it was delivered; LookupError."""
        with reading(self.url) as session:
            return _own(session, owner, turn).document

    def find(self, owner: str, history: str) -> str | None:
        """The turn that a visible history ends with, the newest where several do; None when there is none."""
        wanted = select(ExchangeRow.id).where(ExchangeRow.owner == owner, ExchangeRow.history == history)
        with reading(self.url) as session:
            return session.exec(wanted.order_by(col(ExchangeRow.at).desc(), col(ExchangeRow.id)).limit(1)).first()

    def forget(self, owner: str, turn: str) -> int:
        """Delete the whole conversation of a turn, every branch, with its responses, and forget the cases made of it.

        Returns how many turns. LookupError.
        """
        with writing(self.url) as session:
            alone(session, consent_of(owner))
            opening = _own(session, owner, turn).opening
            rows = session.exec(select(ExchangeRow).where(ExchangeRow.opening == opening)).all()
            session.exec(delete(ResponseRow).where(col(ResponseRow.turn).in_([row.id for row in rows])))
            forget_cases(session, ExportedRow.opening == opening)
            session.exec(delete(OptOutRow).where(col(OptOutRow.opening) == opening))
            session.exec(delete(SummedRow).where(col(SummedRow.exchange).in_([row.id for row in rows])))
            # A turn goes before the one it follows.
            for row in sorted(rows, key=lambda row: row.number, reverse=True):
                session.exec(delete(ExchangeRow).where(col(ExchangeRow.id) == row.id))
        return len(rows)


def _own(session: Session, owner: str, turn: str) -> ExchangeRow:
    row = session.get(ExchangeRow, turn)
    if row is None or row.owner != owner:
        raise LookupError(f"there is no turn {turn!r}")
    return row


def _path(session: Session, last: ExchangeRow) -> Sequence[ExchangeRow]:
    rows = {row.id: row for row in session.exec(select(ExchangeRow).where(ExchangeRow.opening == last.opening))}
    path = [last]
    while path[-1].parent is not None:
        path.append(rows[path[-1].parent])
    return path[::-1]
