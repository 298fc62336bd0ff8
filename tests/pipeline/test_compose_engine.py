"""An adapter that PEFT alone wrote, imported, attested and examined by the real engine, environment and judge."""

from __future__ import annotations

from pathlib import Path

import pytest

from loop import library
from loop.core.episode import EpisodeShard
from loop.core.errors import UserError
from loop.core.imported import Composition, ImportStanding, Terms
from loop.core.pair import Pair
from loop.core.plan import ExaminePlan
from loop.core.stage import Stage
from loop.engines.transformers import TransformersEngine
from loop.environments.tools import Tools
from loop.judges.rules import Rules
from loop.pipeline.compose import compose, composition_plan
from loop.pipeline.generation import plant
from loop.store.blobs import FsBlobs
from loop.store.imports import SqlImports
from loop.store.migrate import upgrade
from loop.store.sql import SqlStore
from loop.trainers.received import receive
from tests import fakes
from tests.engines.tiny import save_adapter, tiny_base


def test_an_adapter_by_peft_alone_goes_all_the_way(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'loop.db'}"
    upgrade(url)
    blobs = FsBlobs(url=str(tmp_path / "blobs"))
    store = SqlStore(url, blobs)
    base = tiny_base(tmp_path, blobs, max_position_embeddings=4096)
    given = tmp_path / "given"
    save_adapter(base, blobs, given, spread=0.3)
    (given / "probe.json").unlink()
    terms = Terms(
        owner="ada",
        licence="MIT",
        label="L1",
        role="tools",
        environments=("tools",),
        base_digest=base.weights_digest,
    )
    imported = receive(given, base, blobs, terms, signed=None, who="me", at="now")
    SqlImports(url).add(imported)

    contract, root = library.default_root(), library.default_root() / "harnesses" / "seed"
    loop = fakes.loop(
        store,
        blobs,
        tmp_path / "scratch",
        contract=library.load_contract(contract, "v1"),
        environments=(Tools(),),
        engine=TransformersEngine(threads=1),
        judge=Rules(),
    )
    parent = plant(loop, Pair(base=base, adapters=(), harness=library.load_harness(root)), 1)
    exam = ExaminePlan(tasks={"tools": 3}, diversity_tasks=0)
    made = compose(loop, parent, composition_plan(fakes.plan(examine=exam), imported), imported)

    assert [rule.passed for rule in made.decision.rules if rule.name == "attested"] == [True]
    attempt, _ = store.made_by(made)
    found = attempt.find(Stage.EXAMINE, Composition, "composition")
    assert found is not None and set(found.scores) == {"composed", "before", "base", "L1"}
    assert sum(found.routes["tools"].values()) == 3
    alone = attempt.find(Stage.EXAMINE, EpisodeShard, "alone/000")
    assert alone is not None
    answered = {turn.adapter for e in alone.episodes for turn in e.turns if turn.role == "assistant"}
    assert answered == {None, imported.adapter.digest}
    # Random weights solve nothing, so it is not promoted, and nothing may serve it.
    assert SqlImports(url).all()[0][1] is ImportStanding.QUARANTINED
    with pytest.raises(UserError, match="quarantined"):
        SqlImports(url).refuse(made.pair)
