"""The tables of consent and of what was made under it."""

from __future__ import annotations

from sqlmodel import Field

from loop.store.tables import Table


class ConsentRow(Table, table=True):
    """One decision of an owner; rows are only ever added, and the last one holds."""

    __tablename__ = "consents"

    id: int | None = Field(default=None, primary_key=True)
    owner: str = Field(index=True)
    held: bool
    terms: str
    who: str
    at: str


class OptOutRow(Table, table=True):
    """A conversation, by its first turn, that is never exported."""

    __tablename__ = "opt_outs"

    opening: str = Field(primary_key=True)
    owner: str
    at: str


class ExportedRow(Table, table=True):
    """Which conversation (by its first turn) the case of an exported episode was made of."""

    __tablename__ = "exported"

    case: str = Field(primary_key=True)
    owner: str = Field(index=True)
    opening: str = Field(index=True)
    at: str


class ExportFileRow(Table, table=True):
    """A file that episodes were exported to, by its absolute path."""

    __tablename__ = "export_files"

    path: str = Field(primary_key=True)
    at: str


class ForgottenRow(Table, table=True):
    """A case that may not be learned from any more; whose it was is forgotten too."""

    __tablename__ = "forgotten"

    case: str = Field(primary_key=True)
    at: str


class ErasureRow(Table, table=True):
    """A noun whose body was taken away, and the one without what was to be erased that stands for it."""

    __tablename__ = "erasures"

    noun: str = Field(primary_key=True, foreign_key="nouns.digest")
    replacement: str = Field(foreign_key="nouns.digest")
    at: str
