"""Hot promotion under load: a new champion is attested, warmed and served, and no turn fails for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from loop.core.conversation import HopRecord
from loop.core.errors import AttestationFailed
from loop.core.generation import Generation
from loop.core.pair import Adapter, Pair
from loop.ports import Attestation
from loop.serve.champion import Champion
from loop.serve.hub import Hub
from loop.serve.turns import Delivered, Turns
from loop.store.blobs import FsBlobs
from loop.store.conversations import SqlConversations
from loop.store.database import dispose
from loop.store.migrate import upgrade
from loop.store.sql import SqlStore
from tests.mol.turns import harness
from tests.serve.simulated import Simulated, user
from tests.store import lineage


class Attesting(Simulated):
    """Knows what was attested; a blob named ``torn`` is none."""

    def __init__(self) -> None:
        super().__init__()
        self.attested: list[str] = []
        self.busy = False

    def attest(self, base: object, blobs: object, adapter: Adapter) -> Attestation:
        assert not self.busy
        if adapter.blob == "torn":
            raise AttestationFailed("the adapter's logits are the base's")
        self.attested.append(adapter.digest)
        return Attestation(
            adapter=adapter.digest,
            blob=adapter.blob,
            modules=1,
            probe_difference=0.0,
            base_difference=1.0,
            ok=True,
            text="",
        )

    def generate(self, *args: object) -> object:  # type: ignore[override]
        self.busy = True
        try:
            return super().generate(*args)  # type: ignore[arg-type]
        finally:
            self.busy = False


def pair(blob: str) -> Pair:
    adapters = tuple(lineage.adapter(f"{blob}-{n}" if blob != "torn" else blob, f"L{n}") for n in range(3))
    return Pair(base=lineage.BASE, adapters=adapters, harness=harness())


def grown(store: SqlStore, parent: Generation, blob: str) -> Generation:
    found = lineage.child(parent, blob).revise(pair=pair(blob))
    store.register(found, None)
    return found


@pytest.fixture
def engine() -> Attesting:
    return Attesting()


@pytest.fixture
def champion(engine: Attesting, tmp_path: Path) -> Iterator[Champion]:
    url = f"sqlite:///{tmp_path / 'loop.db'}"
    upgrade(url)
    store = SqlStore(url, FsBlobs(url=f"file://{tmp_path / 'blobs'}"))
    root = lineage.root().revise(pair=pair("fresh"))
    store.register(root, None)
    hub = Hub(engine, lineage.BASE, store.blobs)  # type: ignore[arg-type]
    yield Champion(Turns(root.pair, hub, SqlConversations(url)), root, lambda: store.champion(lineage.FAMILY))
    hub.close(10)
    dispose(url)


def revisions(pair: Pair) -> set[str]:
    return {adapter.digest for adapter in pair.adapters}


def test_a_promotion_and_a_rollback_under_load_fail_no_turn(champion: Champion, engine: Attesting) -> None:
    store = SqlStore(champion.turns.kept.url, FsBlobs(url="memory://x"))  # type: ignore[attr-defined]
    old = champion.serving

    ledger: list[tuple[HopRecord, ...]] = []

    async def talk(number: int) -> None:
        after = None
        for turn in range(6):
            done = await champion.turns.deliver(f"o{number}", [user(f"L{turn % 3}: secret-{number}")], after=after)
            ledger.append(done.exchange.hops)
            after = done.id

    async def answered_by(generation: Generation) -> None:
        while not any(hop.adapter in revisions(generation.pair) for hops in ledger for hop in hops):
            await asyncio.sleep(0.001)

    async def everyone() -> Generation:
        talks = asyncio.gather(*(talk(number) for number in range(24)))
        await answered_by(old)
        new = grown(store, old, "trained")
        assert await champion.look()
        assert champion.serving == new and not await champion.look()
        await answered_by(new)
        store.point(lineage.FAMILY, "local", "champion", old, "the new one is worse")
        assert await champion.look() and champion.serving == old
        await talks
        return new

    new = asyncio.run(everyone())
    assert len(ledger) == 24 * 6
    for hops in ledger:
        answered = {hop.adapter for hop in hops}
        assert answered <= revisions(old.pair) or answered <= revisions(new.pair)  # never a turn of both
    seen = {hop.adapter for hops in ledger for hop in hops}
    assert seen & revisions(old.pair) and seen & revisions(new.pair)
    assert set(engine.attested[:3]) == revisions(new.pair)


def test_a_champion_that_cannot_be_attested_is_refused_once_and_the_old_one_goes_on(champion: Champion) -> None:
    store = SqlStore(champion.turns.kept.url, FsBlobs(url="memory://x"))  # type: ignore[attr-defined]
    old = champion.serving
    torn = grown(store, old, "torn")

    async def talk() -> Delivered:
        assert not await champion.look()
        assert not await champion.look()
        return await champion.turns.deliver("ana", [user("L1: hello")])

    done = asyncio.run(talk())
    assert champion.serving == old
    assert champion.refused == f"generation {torn.number} is not served: the adapter's logits are the base's"
    assert {hop.adapter for hop in done.exchange.hops} <= revisions(old.pair)
