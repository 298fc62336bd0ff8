"""The table of imported adapters."""

from __future__ import annotations

from sqlmodel import Field

from loop.core.imported import Imported
from loop.store.tables import Table, document


class ImportRow(Table, table=True):
    """An adapter that came from elsewhere; ``blob`` is what is quarantined, under whatever label."""

    __tablename__ = "imported_adapters"

    adapter: str = Field(primary_key=True)
    label: str
    owner: str
    blob: str = Field(index=True)
    standing: str
    at: str
    document: Imported = Field(sa_column=document(Imported))
