"""Responses by their ids, each seen by its owner alone."""

from __future__ import annotations

from dataclasses import dataclass

from sqlmodel import Session, col, select

from loop.core.response import KeptResponse
from loop.store.conversation_tables import ExchangeRow
from loop.store.database import now, reading, writing
from loop.store.response_tables import ResponseRow


@dataclass(frozen=True)
class SqlResponses:
    """The responses of every owner; one of another owner is as unknown as one that never was."""

    url: str

    def add(self, owner: str, name: str, response: KeptResponse) -> None:
        """Keep a response under its id."""
        with writing(self.url) as session:
            turn = response.turn or None
            session.add(ResponseRow(id=name, owner=owner, turn=turn, at=now(), document=response))

    def get(self, owner: str, name: str) -> KeptResponse:
        """A response; LookupError."""
        with reading(self.url) as session:
            return _own(session, owner, name).document

    def close(self, owner: str, name: str, response: KeptResponse) -> KeptResponse:
        """Replace one that is still open; returns what stands then: the first end to come stays. LookupError."""
        with writing(self.url) as session:
            row = _own(session, owner, name, for_update=True)
            if row.document.is_open:
                row.document, row.turn = response, response.turn or None
                session.add(row)
            return row.document

    def delete(self, owner: str, name: str) -> str:
        """Delete a response; its turn where no other response of the conversation is left, else empty. LookupError."""
        with writing(self.url) as session:
            row = _own(session, owner, name)
            turn, exchange = row.turn, session.get(ExchangeRow, row.turn or "")
            session.delete(row)
            session.flush()
            if turn is None or exchange is None:
                return ""
            same = select(ResponseRow.id).join(ExchangeRow, col(ResponseRow.turn) == ExchangeRow.id)
            left = session.exec(same.where(ExchangeRow.opening == exchange.opening).limit(1)).first()
            return "" if left else turn


def _own(session: Session, owner: str, name: str, for_update: bool = False) -> ResponseRow:
    row = session.get(ResponseRow, name, with_for_update=for_update)
    if row is None or row.owner != owner:
        raise LookupError(f"there is no response {name!r}")
    return row
