"""The tables of conversations."""

from __future__ import annotations

from sqlalchemy import Index
from sqlmodel import Field

from loop.core.conversation import Exchange, Summed
from loop.store.tables import Table, document


class ExchangeRow(Table, table=True):
    """One delivered turn; ``parent`` is the turn it follows, so that a conversation may branch.

    ``opening`` is the first turn of the conversation, itself for the first; ``number`` counts
    from 1 along a branch. ``history`` is the digest of all that client and agent said so far.
    """

    __tablename__ = "exchanges"
    __table_args__ = (Index("ix_exchanges_owner_history", "owner", "history"),)

    id: str = Field(primary_key=True)
    owner: str
    parent: str | None = Field(foreign_key="exchanges.id")
    opening: str = Field(index=True)
    number: int
    history: str
    at: str
    document: Exchange = Field(sa_column=document(Exchange))


class SummedRow(Table, table=True):
    """The summaries of a turn that were written after its reply; the first to come stays."""

    __tablename__ = "exchange_summaries"

    exchange: str = Field(primary_key=True, foreign_key="exchanges.id")
    at: str
    document: Summed = Field(sa_column=document(Summed))
