"""Nouns on disk: bytes as a blob first, then the row that says which blob holds which noun."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import ValidationError
from sqlalchemy.dialects import postgresql, sqlite
from sqlmodel import Session, SQLModel, select

from loop.core.base import Base
from loop.core.contract import Contract
from loop.core.errors import TornBlob
from loop.core.generation import Generation
from loop.core.noun import Noun
from loop.core.pair import Adapter, Harness
from loop.ports import Blobs
from loop.store.database import now, reading, writing
from loop.store.living_tables import ErasureRow
from loop.store.parquet import decode, encode
from loop.store.tables import AdapterRow, BaseRow, ContractRow, GenerationRow, HarnessRow, NounRow

NounT = TypeVar("NounT", bound=Noun)

# Nouns whose row is the noun itself need no blob to be read back.
_DOCUMENTS: dict[type[Noun], type[Any]] = {
    Generation: GenerationRow,
    Adapter: AdapterRow,
    Harness: HarnessRow,
    Base: BaseRow,
}


def insert_missing(session: Session, table: type[SQLModel], rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows whose key is not there yet; those that are stay as they are (both databases)."""
    if not rows:
        return
    dialect = postgresql if session.get_bind().dialect.name == "postgresql" else sqlite
    session.execute(dialect.insert(table).on_conflict_do_nothing(), [dict(row) for row in rows])


def add_noun(session: Session, noun: Noun, blob: str) -> None:
    """The row of a noun whose blob is durable; a contract gets its version row too."""
    insert_missing(session, NounRow, [{"digest": noun.digest, "kind": type(noun).__name__, "blob": blob, "at": now()}])
    if isinstance(noun, Contract):
        version = ContractRow(
            digest=noun.digest, version=noun.version, folder_digest=noun.folder_digest, at=now(), document=noun
        )
        session.merge(version)


def save(url: str, blobs: Blobs, noun: Noun) -> str:
    """Store a noun and return its digest; the first to store a digest wins, a torn blob is replaced.

    A noun whose body was taken away is not stored again.
    """
    with reading(url) as session:
        row = session.get(NounRow, noun.digest)
        erased = session.get(ErasureRow, noun.digest) is not None
    if row is not None and (erased or _is_whole(blobs, row.blob)):
        return noun.digest
    blob = blobs.put(encode(noun))
    with writing(url) as session:
        add_noun(session, noun, blob)
        stored = session.get(NounRow, noun.digest)
        if stored is not None and row is not None and stored.blob == row.blob:
            stored.blob = blob
    return noun.digest


def load(url: str, blobs: Blobs, kind: type[NounT], digest: str) -> NounT:
    """Read a noun and check that it is the one asked for; raises TornBlob.

    For one whose body was taken away the noun that stands for it is read: it has a digest of its own.
    """
    with reading(url) as session:
        digest = standing(session, digest)
        row = session.get(NounRow, digest)
        document = _document(session, kind, digest) if row is None else None
    if document is not None:
        return document
    if row is None:
        raise TornBlob(
            f"{kind.__name__} {digest} is not in the store: check the digest, or run the step that makes it again"
        )
    data = blobs.get(row.blob)
    try:
        noun = decode(kind, data)
    except (ValidationError, ValueError, KeyError) as error:
        raise TornBlob(
            f"blob {row.blob} was stored as {row.kind} {digest} but cannot be read as {kind.__name__}: "
            "read it with the macaron-loop version that wrote it, or run its step again with --fresh"
        ) from error
    return _checked(noun, digest, f"blob {row.blob}")


def standing(session: Session, digest: str) -> str:
    """The digest of the noun itself, or of what stands for it since its body was taken away."""
    while (row := session.get(ErasureRow, digest)) is not None:
        digest = row.replacement
    return digest


def _document(session: Session, kind: type[NounT], digest: str) -> NounT | None:
    table = _DOCUMENTS.get(kind)
    if table is None:
        return None
    row = session.exec(select(table).where(table.digest == digest)).one_or_none()
    return None if row is None else _checked(row.document, digest, f"table {table.__tablename__}")


def _checked(noun: NounT, digest: str, where: str) -> NounT:
    if noun.digest != digest:
        raise TornBlob(
            f"{type(noun).__name__} {digest} in {where} reads back as {noun.short}: "
            "restore the database and its blobs from one copy, or run its step again with --fresh"
        )
    return noun


def _is_whole(blobs: Blobs, digest: str) -> bool:
    try:
        blobs.get(digest)
    except TornBlob:
        return False
    return True
