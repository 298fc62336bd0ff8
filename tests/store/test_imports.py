"""Imported adapters: quarantined until a generation that was examined with them is promoted."""

from __future__ import annotations

import pytest

from loop.core.errors import UserError
from loop.core.gate import Standing
from loop.core.generation import Generation
from loop.core.imported import Imported, ImportStanding, Terms
from loop.store.imports import SqlImports
from loop.store.registry import CANDIDATE
from loop.store.sql import SqlStore
from tests.store import lineage


def imported(blob: str = "theirs", owner: str = "ada", at: str = "2026-01-01") -> Imported:
    return Imported(
        adapter=lineage.adapter(blob, owner=owner, parent="5" * 64),
        terms=Terms(owner=owner, licence="MIT", label="L0", role="talks"),
        source="given",
        source_digest="5" * 64,
        base_known_by="probe",
        who="me",
        at=at,
    )


def composed(parent: Generation, found: Imported, standing: Standing = Standing.PROMOTED) -> Generation:
    pair = lineage.pair(found.adapter)
    return lineage.child(parent, standing=standing).revise(pair=pair)


@pytest.fixture
def imports(store: SqlStore) -> SqlImports:
    store.register(lineage.root(), None)
    return SqlImports(store.url)


def test_the_first_import_of_an_adapter_stays(imports: SqlImports) -> None:
    first = imports.add(imported())
    assert imports.add(imported(at="2026-02-02")).at == first.at
    assert imports.all() == ((first, ImportStanding.QUARANTINED),)


def test_one_is_found_by_label_owner_or_digest(imports: SqlImports) -> None:
    ada, bob = imports.add(imported()), imports.add(imported("others", "bob", at="2026-01-02"))
    assert imports.find("ada/L0") == ada
    assert imports.find(bob.adapter.short) == bob
    with pytest.raises(UserError, match="names 2 imported adapters: choose one of ada/L0 .*bob/L0"):
        imports.find("L0")
    with pytest.raises(UserError, match="names 0"):
        imports.find("L9")


def test_a_quarantined_adapter_is_in_no_promoted_generation(store: SqlStore, imports: SqlImports) -> None:
    found, root = imports.add(imported()), lineage.root()
    with pytest.raises(UserError, match="ada/L0 is quarantined"):
        store.register(composed(root, found), None)
    attempt = store.begin(lineage.FAMILY, root, lineage.plan())
    with pytest.raises(UserError, match="ada/L0 is quarantined"):
        store.register(composed(root, found), attempt)
    assert [g.number for g in store.generations(lineage.FAMILY)] == [0]
    assert imports.all()[0][1] is ImportStanding.QUARANTINED


def test_another_label_does_not_free_it(imports: SqlImports) -> None:
    found = imports.add(imported())
    disguised = lineage.pair(found.adapter.revise(label="L0", owner="local", role="other"))
    with pytest.raises(UserError, match="quarantined"):
        imports.refuse(disguised)


def test_a_rejected_exam_leaves_it_where_nothing_reaches_it(store: SqlStore, imports: SqlImports) -> None:
    found, root = imports.add(imported()), lineage.root()
    plan = lineage.plan().revise(imported=found.adapter.digest)
    rejected = composed(root, found, Standing.REJECTED).revise(plan=plan.digest)
    store.register(rejected, store.begin(lineage.FAMILY, root, plan))
    assert imports.all()[0][1] is ImportStanding.QUARANTINED
    assert store.champion(lineage.FAMILY) == root
    with pytest.raises(UserError, match="quarantined"):
        store.begin(lineage.FAMILY, rejected, lineage.plan())
    with pytest.raises(UserError, match="quarantined"):
        store.point(lineage.FAMILY, "local", CANDIDATE, rejected, "let me try")


def test_the_promotion_of_the_generation_it_was_examined_in_releases_it(store: SqlStore, imports: SqlImports) -> None:
    found, root = imports.add(imported()), lineage.root()
    plan = lineage.plan().revise(imported=found.adapter.digest)
    promoted = composed(root, found).revise(plan=plan.digest)
    store.register(promoted, store.begin(lineage.FAMILY, root, plan))
    assert imports.all() == ((found, ImportStanding.ACCEPTED),)
    imports.refuse(promoted.pair)
    assert store.begin(lineage.FAMILY, promoted, lineage.plan()).trial == 0


def test_one_exam_releases_one_adapter(store: SqlStore, imports: SqlImports) -> None:
    found, stranger, root = imports.add(imported()), imports.add(imported("others", "bob")), lineage.root()
    plan = lineage.plan().revise(imported=found.adapter.digest)
    both = lineage.pair(found.adapter, stranger.adapter.revise(label="L1"))
    with pytest.raises(UserError, match="bob/L1 is quarantined"):
        store.register(composed(root, found).revise(pair=both), store.begin(lineage.FAMILY, root, plan))
    assert {standing for _, standing in imports.all()} == {ImportStanding.QUARANTINED}
