"""Composing an imported adapter: examined in the whole system, beside its parts, and let in by the gate alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from loop.core.contract import Contract
from loop.core.conversation import Say
from loop.core.episode import Outcome, Record, Request, Task
from loop.core.errors import UserError
from loop.core.gate import Standing
from loop.core.generation import Generation
from loop.core.imported import Composition, Imported, ImportStanding, Terms
from loop.core.manifest import ReplayVerdict
from loop.core.pair import Harness, Message, Pair, Prompt, Routing
from loop.core.plan import ExaminePlan
from loop.core.stage import Stage
from loop.pipeline.compose import compose, composed, composition_plan
from loop.pipeline.generation import plant
from loop.pipeline.manifest import examination, manifest
from loop.pipeline.parts import Loop
from loop.pipeline.replay import replay
from loop.ports import Rollout
from loop.store.blobs import FsBlobs
from loop.store.imports import SqlImports
from loop.store.migrate import upgrade
from loop.store.sql import SqlStore
from tests import fakes


class Twice(fakes.TwoTurns):
    """Two questions in a row, pinned to its own label: both are to be answered 1."""

    place: str
    to: str

    @property
    def name(self) -> str:
        return self.place

    @property
    def label(self) -> str:
        return self.to

    def rollout(self, task: Task, harness: Harness, contract: Contract) -> Rollout:
        right = True
        for said in (self.place, f"{self.place} again"):
            reply = yield Say(messages=(Message(role="user", content=said),), label=self.to)
            right = right and reply.text == "1"
        return Outcome(record=Record(world={"right": right}))


class Routed(fakes.AnsweringEngine):
    """A router that sends "one" to L1 and "two" to ``two_to``; an adapter knows what its role says, and only that."""

    two_to: str = "L2"

    def answer(self, request: Request) -> str:
        said = request.messages[-1].content
        if request.choices:
            assert "again" not in said, "a conversation is routed by its first message"
            return "L1" if "one" in said else self.two_to
        return str(int(request.adapter is not None and request.adapter.role == said.split()[0]))


def system() -> Pair:
    """An owner whose L1 knows "one"; L2 is fresh, and a fresh adapter knows nothing."""
    prompt, adapter = fakes.harness().prompts[0], fakes.pair().adapters[0]
    harness = fakes.harness().revise(
        prompts=(prompt.revise(label="L1"), prompt.revise(label="L2")),
        routing=Routing(prompt="{labels}", labels=("L1", "L2"), fallback="L1"),
    )
    learned = adapter.revise(label="L1", role="one", blob="ours", parent="0" * 64)
    return Pair(base=fakes.BASE, adapters=(learned, adapter.revise(label="L2", role="none")), harness=harness)


def theirs(label: str = "L2", role: str = "two", prompt: Prompt | None = None) -> Imported:
    adapter = fakes.pair().adapters[0].revise(label=label, role=role, owner="ada", blob="theirs", parent="5" * 64)
    terms = Terms(
        owner="ada",
        licence="MIT",
        label=label,
        role=role,
        environments=("two",),
        prompt=prompt,
        description="all of two",
    )
    return Imported(
        adapter=adapter, terms=terms, source="given", source_digest="5" * 64, base_known_by="probe", who="me", at="now"
    )


@pytest.fixture
def store(tmp_path: Path) -> SqlStore:
    url = f"sqlite:///{tmp_path / 'loop.db'}"
    upgrade(url)
    return SqlStore(url, FsBlobs(url=str(tmp_path / "blobs")))


def loop_of(store: SqlStore, tmp_path: Path, two_to: str = "L2") -> Loop:
    places = (Twice(place="one", to="L1"), Twice(place="two", to="L2"))
    engine = Routed(two_to=two_to)
    return fakes.loop(store, store.blobs, tmp_path / "scratch", environments=places, engine=engine)


def examine(
    store: SqlStore, loop: Loop, imported: Imported, *, forced: bool = False
) -> tuple[Generation, Composition | None]:
    SqlImports(store.url).add(imported)
    root = plant(loop, system(), 1)
    plan = composition_plan(fakes.plan(examine=ExaminePlan(tasks={"one": 20, "two": 20}, diversity_tasks=0)), imported)
    made = compose(loop, root, plan, imported, forced=forced)
    origin = store.origin(made)
    return made, origin[0].find(Stage.EXAMINE, Composition, "composition") if origin else None


def test_a_specialist_that_adds_what_was_missing_is_let_in(store: SqlStore, tmp_path: Path) -> None:
    made, found = examine(store, loop_of(store, tmp_path), theirs())
    assert made.decision.standing is Standing.PROMOTED and not made.decision.forced
    assert [adapter.owner for adapter in made.pair.adapters] == ["local", "ada"]
    assert SqlImports(store.url).all()[0][1] is ImportStanding.ACCEPTED
    assert store.champion("test") == made
    assert found is not None
    points = {system: {name: i.point for name, i in row.items()} for system, row in found.scores.items()}
    assert points == {
        "composed": {"all": 100.0, "one": 100.0, "two": 100.0},
        "before": {"all": 50.0, "one": 100.0, "two": 0.0},
        "base": {"all": 0.0, "one": 0.0, "two": 0.0},
        "L1": {"all": 50.0, "one": 100.0, "two": 0.0},
        "L2": {"all": 50.0, "one": 0.0, "two": 100.0},
    }
    assert found.strongest == {"one": "L1", "two": "L2", "all": "L1"}
    over = {part: {name: i.point for name, i in row.items()} for part, row in found.over.items()}
    assert over["strongest"] == {"all": 50.0, "one": 0.0, "two": 0.0}
    assert over["base"] == {"all": 100.0, "one": 100.0, "two": 100.0}
    assert over["before"] == {"all": 50.0, "one": 0.0, "two": 100.0}
    assert found.routes == {"one": {"L1": 20}, "two": {"L2": 20}}
    assert found.interference["two"] == {"composed": 100.0, "base": 0.0, "L1": 0.0, "L2": 100.0}
    assert found.regret is not None and found.regret.point == 0.0


def test_the_sealed_bank_is_opened_in_the_ledger_and_only_there(store: SqlStore, tmp_path: Path) -> None:
    examine(store, loop_of(store, tmp_path), theirs())
    assert [(opening.why, opening.times) for opening in store.openings("test")] == [
        ("exam of the successor, panel 0", 1)
    ]


def test_a_specialist_that_nobody_is_routed_to_stays_in_quarantine(store: SqlStore, tmp_path: Path) -> None:
    made, found = examine(store, loop_of(store, tmp_path, two_to="L1"), theirs())
    assert made.decision.standing is Standing.REJECTED
    assert SqlImports(store.url).all()[0][1] is ImportStanding.QUARANTINED
    assert found is not None and found.routes["two"] == {"L1": 20}
    # The right specialist would have had all twenty of one of two environments.
    assert found.regret is not None and found.regret.point == 50.0
    assert found.over["strongest"]["two"].point == -100.0
    assert store.champion("test") != made


def test_a_composed_exam_is_played_again_equally(store: SqlStore, tmp_path: Path) -> None:
    loop = loop_of(store, tmp_path)
    made, _ = examine(store, loop, theirs())
    found = examination(store, made, store.origin(made))
    assert replay(loop, found, manifest(found, None), None).verdict is ReplayVerdict.EQUAL


def test_an_examination_resumes_and_is_not_done_twice(store: SqlStore, tmp_path: Path) -> None:
    loop = loop_of(store, tmp_path)
    first, _ = examine(store, loop, theirs())
    again, _ = examine(
        store, fakes.loop(store, store.blobs, tmp_path / "scratch", engine=Routed(breaks=True)), theirs()
    )
    assert again == first


def test_a_new_label_joins_the_registry_with_its_prompt_and_its_line(store: SqlStore, tmp_path: Path) -> None:
    prompt = Prompt(label="X7", role="two", system="Only two.")
    made, found = examine(store, loop_of(store, tmp_path, two_to="X7"), theirs("X7", prompt=prompt))
    assert made.pair.harness.routing.labels == ("L1", "L2", "X7")
    assert made.pair.harness.routing.descriptions["X7"] == "all of two"
    assert made.pair.harness.prompt("X7").system == "Only two."
    assert made.pair.harness.parent == system().harness.digest
    assert made.decision.standing is Standing.PROMOTED
    assert found is not None and found.routes["two"] == {"X7": 20}
    assert found.scores["X7"]["two"].point == 100.0


def test_a_new_label_without_a_prompt_is_refused() -> None:
    with pytest.raises(UserError, match=r"no label X7 \(L1, L2\).*--prompt"):
        composed(system(), theirs("X7"))


def test_taking_over_a_label_changes_its_adapter_and_its_line_alone() -> None:
    pair = composed(system(), theirs())
    assert [adapter.label for adapter in pair.adapters] == ["L1", "L2"]
    assert pair.harness.prompts == system().harness.prompts
    assert pair.harness.routing.labels == system().harness.routing.labels
