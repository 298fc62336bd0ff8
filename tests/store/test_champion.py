"""The champion: what the policy records of a lineage point at."""

from __future__ import annotations

import pytest

from loop.core.errors import UserError
from loop.core.gate import Standing
from loop.store.registry import CANDIDATE, CHAMPION
from loop.store.sql import SqlStore
from tests.store import lineage


def test_the_champion_is_the_newest_promoted_generation_until_it_is_rolled_back(store: SqlStore) -> None:
    assert store.champion(lineage.FAMILY) is None
    root = lineage.root()
    child = lineage.child(root)
    store.register(root, None)
    assert store.champion(lineage.FAMILY) == root
    store.register(child, None)
    store.register(lineage.child(child, "worse", standing=Standing.REJECTED), None)
    assert store.champion(lineage.FAMILY) == child
    store.point(lineage.FAMILY, "local", CANDIDATE, child, "under test")
    store.point(lineage.FAMILY, "local", CHAMPION, root, "rolled back")
    assert store.champion(lineage.FAMILY) == root


def test_owners_who_disagree_on_the_champion_are_named(store: SqlStore) -> None:
    root = lineage.root()
    child = lineage.child(root)
    store.register(root, None)
    store.register(child, None)
    store.point(lineage.FAMILY, "another", CHAMPION, root, "by hand")
    with pytest.raises(UserError, match="another: generation 0, local: generation 1"):
        store.champion(lineage.FAMILY)
