"""The table of responses."""

from __future__ import annotations

from sqlmodel import Field

from loop.core.response import KeptResponse
from loop.store.tables import Table, document


class ResponseRow(Table, table=True):
    """A response by its public id; ``turn`` is the turn that it ended, None while there is none."""

    __tablename__ = "responses"

    id: str = Field(primary_key=True)
    owner: str = Field(index=True)
    turn: str | None = Field(default=None, index=True)
    at: str
    document: KeptResponse = Field(sa_column=document(KeptResponse))
