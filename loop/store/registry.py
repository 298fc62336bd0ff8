"""Registering a generation: every row it needs, its attempt and its policy records, in one transaction."""

from __future__ import annotations

from typing import Any

from sqlalchemy.exc import IntegrityError
from sqlmodel import Session, select

from loop.core.errors import StoreConflict, UserError
from loop.core.gate import Standing
from loop.core.generation import Generation
from loop.store import imports, lease
from loop.store.database import now, reading, writing
from loop.store.nouns import insert_missing
from loop.store.tables import (
    AdapterRow,
    AttemptRow,
    AttemptState,
    BaseRow,
    ContractRow,
    GenerationAdapterRow,
    GenerationRow,
    HarnessRow,
    PolicyMoveRow,
    PolicyRow,
)

CHAMPION = "champion"
CANDIDATE = "candidate"
DEFAULT_OWNER = "local"


def register(url: str, generation: Generation, attempt: str | None) -> None:
    """Insert a generation with its parts, finish the attempt, move the champion; see SqlStore."""
    try:
        with writing(url) as session:
            lease.fence(session, url, generation.family)
            if attempt is not None:
                _finish(session, attempt, generation)
            if _find(session, generation.digest) is None:
                _refuse(session, generation)
                _examine(session, generation, attempt)
                _insert_parts(session, generation)
                _insert(session, generation, attempt)
    except IntegrityError:
        # Another process registered in between: the same generation is no conflict.
        with reading(url) as session:
            if _find(session, generation.digest) is not None:
                return
            _refuse(session, generation)
        raise


def point(url: str, family: str, owner: str, name: str, generation: str, why: str) -> None:
    """Move a policy record by hand (a rollback, a candidate under test); the move is kept.

    Raises UserError when the generation is not one of the family's.
    """
    with writing(url) as session:
        lease.fence(session, url, family)
        row = _find(session, generation)
        if row is None or row.family != family:
            raise UserError(f"{generation[:12]} is no generation of lineage {family}: choose one that `lineage` lists")
        imports.refuse_quarantined(session, row.document.pair)
        _move(session, family, owner, name, generation, why)


def owners(generation: Generation) -> tuple[str, ...]:
    """Whose policy records a generation moves: the owners of its adapters."""
    found = {adapter.owner for adapter in generation.pair.adapters}
    return tuple(sorted(found)) or (DEFAULT_OWNER,)


def _find(session: Session, digest: str) -> GenerationRow | None:
    return session.exec(select(GenerationRow).where(GenerationRow.digest == digest)).one_or_none()


def _refuse(session: Session, generation: Generation) -> None:
    if generation.parent is not None and _find(session, generation.parent) is None:
        raise UserError(
            f"generation {generation.number} ({generation.short}) has the parent {generation.parent[:12]}, "
            "which is not registered: register the parent first"
        )
    if generation.decision.standing is Standing.REJECTED:
        return
    standing = session.exec(
        select(GenerationRow)
        .where(GenerationRow.family == generation.family, GenerationRow.number == generation.number)
        .where(GenerationRow.standing != Standing.REJECTED.value)
    ).one_or_none()
    if standing is not None:
        raise StoreConflict(
            f"lineage {generation.family} already has the promoted generation {generation.number} "
            f"({standing.digest[:12]}), so {generation.short} cannot be promoted too: "
            "grow from another generation, or in another family"
        )


def _examine(session: Session, generation: Generation, attempt: str | None) -> None:
    """Promoting the generation that an imported adapter was examined in releases it; no other may hold it."""
    if generation.decision.standing is Standing.REJECTED:
        return
    made = session.get(AttemptRow, attempt) if attempt is not None else None
    examined = made.document.imported if made is not None else ""
    imports.refuse_quarantined(session, generation.pair, examined)
    imports.accept(session, examined)


def _insert_parts(session: Session, generation: Generation) -> None:
    pair, at = generation.pair, now()
    base = pair.base
    insert_missing(
        session,
        BaseRow,
        [{"digest": base.digest, "weights_digest": base.weights_digest, "id": base.id, "at": at, "document": base}],
    )
    adapters: list[dict[str, Any]] = [
        {
            "digest": adapter.digest,
            "label": adapter.label,
            "owner": adapter.owner,
            "base": adapter.base_digest,
            "blob": adapter.blob,
            "parent": adapter.parent,
            "at": at,
            "document": adapter,
        }
        for adapter in pair.adapters
    ]
    insert_missing(session, AdapterRow, adapters)
    harness = pair.harness
    insert_missing(
        session, HarnessRow, [{"digest": harness.digest, "name": harness.name, "at": at, "document": harness}]
    )
    if generation.exam is not None:
        # The document follows when the contract itself is saved; the exam names it only by digest.
        contract = {"digest": generation.exam.contract, "version": None, "folder_digest": None, "at": at}
        insert_missing(session, ContractRow, [contract | {"document": None}])


def _insert(session: Session, generation: Generation, attempt: str | None) -> None:
    exam, pair = generation.exam, generation.pair
    session.add(
        GenerationRow(
            digest=generation.digest,
            family=generation.family,
            number=generation.number,
            standing=generation.decision.standing.value,
            arm=generation.arm,
            parent=generation.parent,
            base=pair.base.digest,
            harness=pair.harness.digest,
            contract=exam.contract if exam else None,
            attempt=attempt,
            score=exam.score if exam else None,
            gain=exam.gain.point if exam and exam.gain else None,
            at=now(),
            document=generation,
        )
    )
    session.flush()
    links = [{"generation": generation.digest, "label": a.label, "adapter": a.digest} for a in pair.adapters]
    insert_missing(session, GenerationAdapterRow, links)
    if generation.decision.standing is not Standing.REJECTED:
        why = f"generation {generation.number} {generation.decision.standing.value}"
        for owner in owners(generation):
            _move(session, generation.family, owner, CHAMPION, generation.digest, why)


def _move(session: Session, family: str, owner: str, name: str, generation: str, why: str) -> None:
    row = session.get(PolicyRow, (family, owner, name), with_for_update=True)
    previous = row.generation if row is not None else None
    if previous == generation:
        return
    if row is None:
        row = PolicyRow(family=family, owner=owner, name=name, generation=generation, at=now())
    row.generation, row.at = generation, now()
    session.add(row)
    session.add(
        PolicyMoveRow(
            family=family, owner=owner, name=name, generation=generation, previous=previous, why=why, at=now()
        )
    )


def _finish(session: Session, attempt: str, generation: Generation) -> None:
    row = session.get(AttemptRow, attempt)
    if row is None:
        raise UserError(f"attempt {attempt[:12]} is unknown to this store: begin it here first")
    if row.state == AttemptState.REPLACED or row.generation not in (None, generation.digest):
        raise StoreConflict(
            f"attempt {attempt[:12]} was replaced or registered another generation: run again to resume the open one"
        )
    if row.state == AttemptState.OPEN:
        row.state, row.generation, row.finished = AttemptState.FINISHED.value, generation.digest, now()
        session.add(row)
