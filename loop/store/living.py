"""Consent in the store, and which conversations may be learned from under it.

Consent is off until it is granted. It covers the conversations that begin while it is held, since a
reply may repeat what was said before; once it is withdrawn, or the conversation deleted or opted
out, every case made of it is forgotten: a tombstone says so to whatever would learn from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import delete, func
from sqlmodel import Session, col, select

from loop.core.conversation import joined
from loop.core.living import Consent, Source, Talk
from loop.store.conversation_tables import ExchangeRow, SummedRow
from loop.store.database import account, now, reading, writing
from loop.store.lease import alone
from loop.store.living_tables import ConsentRow, ExportedRow, ExportFileRow, ForgottenRow, OptOutRow
from loop.store.nouns import insert_missing


@dataclass(frozen=True)
class SqlLiving:
    """The consent of every owner, and what was exported under it."""

    url: str

    def decide(self, owner: str, held: bool, terms: str, who: str) -> Consent:
        """Record a decision; one that withdraws forgets every case made of the owner's conversations.

        ``who`` enters it; empty, the account of this process.
        """
        with writing(self.url) as session:
            alone(session, consent_of(owner))
            session.add(ConsentRow(owner=owner, held=held, terms=terms, who=who or account(), at=now()))
            session.flush()
            if not held:
                forget_cases(session, ExportedRow.owner == owner)
            return _history(session, owner)[-1]

    def history(self, owner: str) -> tuple[Consent, ...]:
        """Every decision of an owner, oldest first; the last one holds, and none is no consent."""
        with reading(self.url) as session:
            return _history(session, owner)

    def owners(self) -> tuple[str, ...]:
        """Who consents now, by name."""
        with reading(self.url) as session:
            known = session.exec(select(ConsentRow.owner).distinct().order_by(ConsentRow.owner)).all()
            return tuple(owner for owner in known if _since(session, owner) is not None)

    def talks(self, owner: str) -> tuple[Talk, ...]:
        """The conversations of an owner, oldest first."""
        turns = (
            select(ExchangeRow.opening, func.min(ExchangeRow.at), func.max(ExchangeRow.at), func.count())
            .where(ExchangeRow.owner == owner)
            .group_by(col(ExchangeRow.opening))
            .order_by(func.min(ExchangeRow.at), col(ExchangeRow.opening))
        )
        cases = select(ExportedRow.opening, func.count()).where(ExportedRow.owner == owner)
        with reading(self.url) as session:
            since, opted_out = _since(session, owner), _opted_out(session, owner)
            exported = dict(session.exec(cases.group_by(col(ExportedRow.opening))).all())
            return tuple(
                Talk(
                    opening=opening,
                    begun=begun,
                    last=last,
                    turns=count,
                    covered=since is not None and begun >= since,
                    opted_out=opening in opted_out,
                    exported=exported.get(opening, 0),
                )
                for opening, begun, last, count in session.exec(turns)
            )

    def sources(self, owner: str) -> tuple[Source, ...]:
        """Every branch, whole, of the conversations that the present consent covers; none without consent."""
        allowed = [talk.opening for talk in self.talks(owner) if talk.covered and not talk.opted_out]
        return tuple(source for opening in allowed for source in self._branches(owner, opening))

    def opt_out(self, owner: str, turn: str) -> str:
        """Never export the conversation of this turn, and forget the cases made of it; its first turn. LookupError."""
        with writing(self.url) as session:
            alone(session, consent_of(owner))
            row = session.get(ExchangeRow, turn)
            if row is None or row.owner != owner:
                raise LookupError(f"there is no turn {turn!r}")
            insert_missing(session, OptOutRow, [{"opening": row.opening, "owner": owner, "at": now()}])
            forget_cases(session, ExportedRow.opening == row.opening)
            return row.opening

    def exported(self, owner: str, path: str, cases: Sequence[tuple[str, Source]]) -> frozenset[str]:
        """Record the cases that a file is about to hold; only those come back whose consent still stands."""
        with writing(self.url) as session:
            alone(session, consent_of(owner))
            insert_missing(session, ExportFileRow, [{"path": path, "at": now()}])
            kept = [(case, source) for case, source in cases if _stands(session, source)]
            rows = [{"case": c, "owner": owner, "opening": s.opening, "at": now()} for c, s in kept]
            insert_missing(session, ExportedRow, rows)
            return frozenset(case for case, _ in kept)

    def files(self) -> tuple[str, ...]:
        """The paths of every file that was exported to."""
        with reading(self.url) as session:
            return tuple(session.exec(select(ExportFileRow.path).order_by(ExportFileRow.path)).all())

    def forgotten(self) -> frozenset[str]:
        """The cases that may not be learned from any more."""
        with reading(self.url) as session:
            return frozenset(session.exec(select(ForgottenRow.case)).all())

    def _branches(self, owner: str, opening: str) -> Iterable[Source]:
        with reading(self.url) as session:
            rows = session.exec(select(ExchangeRow).where(ExchangeRow.opening == opening)).all()
            names = [row.id for row in rows]
            late = session.exec(select(SummedRow).where(col(SummedRow.exchange).in_(names))).all()
        by_id, summed = {row.id: row for row in rows}, {row.exchange: row.document for row in late}
        followed = {row.parent for row in rows}
        for last in sorted((row for row in rows if row.id not in followed), key=lambda row: (row.at, row.id)):
            path = [last]
            while path[-1].parent is not None:
                path.append(by_id[path[-1].parent])
            timeline = joined([(row.document, summed.get(row.id)) for row in reversed(path)])
            yield Source(owner=owner, opening=opening, turn=last.id, timeline=timeline)


def forget_cases(session: Session, whose: bool) -> None:
    """Put a tombstone on each exported case for which a condition on ``ExportedRow`` holds."""
    cases = session.exec(select(ExportedRow.case).where(whose)).all()
    insert_missing(session, ForgottenRow, [{"case": case, "at": now()} for case in cases])
    session.exec(delete(ExportedRow).where(col(ExportedRow.case).in_(cases)))


def consent_of(owner: str) -> str:
    """What decisions and exports of one owner take turns under, so that neither overlooks the other."""
    return f"consent of {owner}"


def _history(session: Session, owner: str) -> tuple[Consent, ...]:
    rows = session.exec(select(ConsentRow).where(ConsentRow.owner == owner).order_by(col(ConsentRow.id))).all()
    decisions: list[Consent] = []
    since: str | None = None
    for row in rows:
        since = (since or row.at) if row.held else None
        decisions.append(
            Consent(owner=owner, held=row.held, terms=row.terms, who=row.who, at=row.at, since=since),
        )
    return tuple(decisions)


def _since(session: Session, owner: str) -> str | None:
    """When the owner began to consent, or None without consent."""
    decisions = _history(session, owner)
    return decisions[-1].since if decisions else None


def _opted_out(session: Session, owner: str) -> frozenset[str]:
    return frozenset(session.exec(select(OptOutRow.opening).where(OptOutRow.owner == owner)).all())


def _stands(session: Session, source: Source) -> bool:
    first, since = session.get(ExchangeRow, source.opening), _since(session, source.owner)
    covered = first is not None and since is not None and first.at >= since
    return covered and source.opening not in _opted_out(session, source.owner)
