"""Imported adapters and their quarantine: what no generation was promoted with may not serve.

A quarantined adapter is known by its blob, so that another label does not free it.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlmodel import Session, col, select

from loop.core.errors import UserError
from loop.core.imported import Imported, ImportStanding
from loop.core.pair import Pair
from loop.store.database import reading, writing
from loop.store.import_tables import ImportRow
from loop.store.nouns import insert_missing


@dataclass(frozen=True)
class SqlImports:
    """The imported adapters of a store."""

    url: str

    def add(self, imported: Imported) -> Imported:
        """Put an adapter under quarantine; an equal adapter is given back as it was imported first."""
        adapter = imported.adapter
        row = ImportRow(
            adapter=adapter.digest,
            label=adapter.label,
            owner=adapter.owner,
            blob=adapter.blob,
            standing=ImportStanding.QUARANTINED.value,
            at=imported.at,
            document=imported,
        )
        with writing(self.url) as session:
            insert_missing(session, ImportRow, [row.model_dump() | {"document": imported}])
            return session.get_one(ImportRow, adapter.digest).document

    def all(self) -> tuple[tuple[Imported, ImportStanding], ...]:
        """Every imported adapter with its standing, oldest first."""
        query = select(ImportRow).order_by(col(ImportRow.at), col(ImportRow.adapter))
        with reading(self.url) as session:
            return tuple((row.document, ImportStanding(row.standing)) for row in session.exec(query))

    def find(self, which: str) -> Imported:
        """One by the start of its digest, its label, or OWNER/LABEL; UserError naming those there are."""
        known = [imported for imported, _ in self.all()]
        names = {
            imported.adapter.digest: (imported.adapter.label, f"{imported.adapter.owner}/{imported.adapter.label}")
            for imported in known
        }
        found = [
            imported
            for imported in known
            if which in names[imported.adapter.digest]
            or (len(which) >= 6 and imported.adapter.digest.startswith(which))
        ]
        if len(found) == 1:
            return found[0]
        listed = ", ".join(f"{i.adapter.owner}/{i.adapter.label} ({i.adapter.short})" for i in found or known) or "none"
        raise UserError(
            f"{which!r} names {len(found)} imported adapters: choose one of {listed}, or import one with "
            "`adapters import`"
        )

    def refuse(self, pair: Pair) -> None:
        """UserError when the pair holds a quarantined adapter."""
        with reading(self.url) as session:
            refuse_quarantined(session, pair)


def refuse_quarantined(session: Session, pair: Pair, examined: str = "") -> None:
    """UserError when the pair holds a quarantined adapter, other than the one of the digest ``examined``."""
    blobs = [adapter.blob for adapter in pair.adapters]
    query = select(ImportRow).where(col(ImportRow.blob).in_(blobs))
    standings: dict[str, set[str]] = {}
    for row in session.exec(query):
        standing = ImportStanding.ACCEPTED.value if row.adapter == examined else row.standing
        standings.setdefault(row.blob, set()).add(standing)
    held = [a for a in pair.adapters if a.blob in standings and ImportStanding.ACCEPTED.value not in standings[a.blob]]
    if held:
        names = ", ".join(f"{adapter.owner}/{adapter.label}" for adapter in held)
        raise UserError(
            f"{names} is quarantined, so it may not serve: examine it with `adapters examine {held[0].label}`"
        )


def accept(session: Session, examined: str) -> None:
    """Release the adapter of this digest: a generation was promoted with it, in the same transaction."""
    row = session.get(ImportRow, examined)
    if row is not None:
        row.standing = ImportStanding.ACCEPTED.value
        session.add(row)
