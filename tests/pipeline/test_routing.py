"""The router in the loop: what it learns from, how it is examined, and what a worse one costs the child."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from loop.core.base import Base
from loop.core.contract import Contract
from loop.core.episode import Completion, EpisodeShard, Request, Split, Task
from loop.core.gate import Standing
from loop.core.generation import Generation
from loop.core.pair import Harness, Pair, Prompt, RouteExemplar, Routing
from loop.core.plan import CollectPlan, CuratePlan, ExaminePlan, Plan
from loop.core.routing import RouteBank, RouteGroup, RouteKind
from loop.core.stage import Stage
from loop.core.training_set import TrainingSet
from loop.pipeline.generation import plant, run_generation
from loop.pipeline.parts import Loop
from loop.pipeline.routing import dealt_out
from loop.ports import Blobs, EngineReport, Follow, Hear
from loop.store.blobs import FsBlobs
from loop.store.migrate import upgrade
from loop.store.sql import SqlAttempt, SqlStore
from tests import fakes

LABELS = ("L0", "L1")


class Router(fakes.ScriptedEngine):
    """Routes to L0 until its adapter was trained, then by a word of the message; ``spoiled`` the other way round.

    With ``babbles`` a trained router answers no label at all.
    """

    spoiled: bool = False
    babbles: bool = False

    def generate(
        self,
        base: Base,
        blobs: Blobs,
        requests: Sequence[tuple[int, Request]],
        follow: Follow,
        hear: Hear | None = None,
    ) -> EngineReport:
        waiting = list(requests)
        while waiting:
            key, request = waiting.pop(0)
            if not request.choices:
                super().generate(base, blobs, [(key, request)], follow)
                continue
            waiting.extend(follow(key, self.route(request)))
        return EngineReport()

    def route(self, request: Request) -> Completion:
        trained = request.adapter is not None and request.adapter.parent is not None
        knows = "tool" if trained != self.spoiled else "nothing"
        named = "L1" if knows in request.messages[-1].content else "L0"
        chosen = named if named in request.choices else request.choices[0]
        if trained and self.babbles:
            chosen = "banana"
        even = tuple(0.7 if choice == chosen else 0.1 for choice in request.choices)
        return Completion(
            text=chosen, prompt_ids=(3, 4), token_ids=(len(chosen), 2), logprobs=(-0.1, 0.0), finish="choice",
            probabilities=even,
        )  # fmt: skip


def bank(split: Split) -> RouteBank:
    words = "abcdefghij" if split is Split.TRAIN else "klmnopqrst"
    return RouteBank(
        split=split,
        groups=tuple(
            RouteGroup(kind=kind, wanted=(label,), messages=(f"{what} {kind} {word}",))
            for label, what in zip(LABELS, ("talk", "tool"), strict=True)
            for kind in (RouteKind.PLAIN, RouteKind.BOUNDARY)
            for word in words
        ),
    )


def harness() -> Harness:
    prompts = tuple(fakes.harness().prompts[0].revise(label=label) for label in LABELS)
    routing = Routing(prompt="{labels}", labels=LABELS, fallback="L0")
    return Harness(schema_version=1, name="t", prompts=prompts, routing=routing)


def pair() -> Pair:
    adapter = fakes.pair().adapters[0]
    return Pair(base=fakes.BASE, adapters=tuple(adapter.revise(label=label) for label in LABELS), harness=harness())


def plan(routes: int = 12, examined: int = 16, **changes: object) -> Plan:
    made = fakes.plan(
        collect=CollectPlan(tasks={"twice": 4}, samples=2, shard_tasks=4, routes=routes),
        examine=ExaminePlan(tasks={"twice": 8}, diversity_tasks=0, routes=examined),
    )
    return made.revise(**changes)


@pytest.fixture
def made(tmp_path: Path) -> Loop:
    url = f"sqlite:///{tmp_path / 'loop.db'}"
    upgrade(url)
    blobs = FsBlobs(url=str(tmp_path / "blobs"))
    return fakes.loop(SqlStore(url, blobs), blobs, tmp_path / "scratch", engine=Router(), routing=bank)


def grow(made: Loop, planned: Plan, **parts: object) -> Generation:
    changed: Loop = replace(made, **parts)  # type: ignore[arg-type]
    return run_generation(changed, plant(changed, pair(), 1), planned)


def recorded(made: Loop, child: Generation) -> SqlAttempt:
    assert isinstance(made.store, SqlStore)
    origin = made.store.origin(child)
    assert origin is not None and isinstance(origin[0], SqlAttempt)
    return origin[0]


def test_a_router_learns_from_the_open_bank_and_is_examined_on_the_sealed_one(made: Loop) -> None:
    child = grow(made, plan())
    exam = child.exam
    assert exam is not None and exam.routing is not None
    parent, after = exam.routing.parent, exam.routing.child
    assert (parent.cases, parent.accuracy.point, after.accuracy.point) == (16, 50.0, 100.0)
    assert parent.labels["L0"].point == 100 and parent.labels["L1"].point == 0
    assert parent.confusion == {"L0": {"L0": 8}, "L1": {"L0": 8}}
    assert exam.routing.gain is not None and exam.routing.gain.point == 50
    assert after.in_distribution is not None and after.in_distribution.n == 4
    rule = next(rule for rule in child.decision.rules if rule.name == "routing")
    assert rule.passed and rule.figures["parent"] == 50 and "50.0 to 100.0" in rule.text


def test_right_decisions_are_rows_and_where_the_router_is_never_right_the_bank_answers(made: Loop) -> None:
    attempt = recorded(made, grow(made, plan()))
    shard = attempt.find(Stage.COLLECT, EpisodeShard, "routes/000")
    rows = attempt.find(Stage.CURATE, TrainingSet, "L0")
    assert shard is not None and rows is not None
    # Twelve cases of two samples; the six of L1 get one more episode each, with the bank's answer.
    assert len(shard.episodes) == 12 * 2 + 6
    taught = [episode for episode in shard.episodes if episode.record.world["taught"]]
    assert {episode.turns[-1].content for episode in taught} == {"L1"} and {e.sample for e in taught} == {2}
    routed = [row for row in rows.rows if row.environment == "routing"]
    assert [(row.text, row.supervised) for row in routed] == [("L0", False), ("L1", True)] * 6
    assert {row.split for row in routed} == {Split.TRAIN} and {row.generation for row in routed} == {0}
    assert {row.episode for row in routed} <= {episode.digest for episode in shard.episodes}


def test_routes_are_at_most_half_of_a_training_set(made: Loop) -> None:
    attempt = recorded(made, grow(made, plan(curate=CuratePlan(max_rows=10))))
    rows = attempt.find(Stage.CURATE, TrainingSet, "L0")
    assert rows is not None
    texts = [row.text for row in rows.rows if row.environment == "routing"]
    assert sorted(texts) == ["L0", "L0", "L0", "L1", "L1"]


def test_the_sealed_bank_is_opened_by_the_exam_alone_and_each_opening_is_in_the_ledger(made: Loop) -> None:
    opened: list[Split] = []

    def watched(split: Split) -> RouteBank:
        opened.append(split)
        return bank(split)

    assert isinstance(made.store, SqlStore)
    grow(made, plan(examined=0, routes=0), routing=watched)
    assert opened == [] and not any("routing" in opening.why for opening in made.store.openings("test"))
    grow(made, plan(), routing=watched)
    whys = [opening.why for opening in made.store.openings("test") if "routing" in opening.why]
    assert whys == ["fingerprints of the routing bank", "routing bank, exam of the successor"]
    assert opened.count(Split.HOLDOUT) == 2


def test_a_finished_exam_asks_the_router_nothing_again(made: Loop) -> None:
    first = grow(made, plan())
    assert grow(made, plan(), engine=Router(breaks=True)).digest == first.digest


@pytest.mark.parametrize("engine", [Router(spoiled=True), Router(babbles=True)], ids=["worse", "no labels"])
def test_a_child_whose_router_is_worse_is_not_promoted(made: Loop, engine: Router) -> None:
    child = grow(made, plan(), engine=engine)
    rule = next(rule for rule in child.decision.rules if rule.name == "routing")
    assert not rule.passed and child.decision.standing is Standing.REJECTED
    assert ("keeps to its labels less often" in rule.text) == engine.babbles


def test_a_plan_without_routes_measures_none_and_says_so(made: Loop) -> None:
    child = grow(made, plan(routes=0, examined=0))
    assert child.exam is not None and child.exam.routing is None
    rule = next(rule for rule in child.decision.rules if rule.name == "routing")
    assert rule.passed and rule.text == "routing was not measured"


def test_a_router_that_did_not_change_is_asked_once_for_both(made: Loop) -> None:
    child = grow(made, plan(routes=0, weights=False))
    shard = recorded(made, child).find(Stage.EXAMINE, EpisodeShard, "routing/holdout/000")
    assert shard is not None and len(shard.episodes) == 16
    assert child.exam is not None and child.exam.routing is not None
    assert child.exam.routing.parent == child.exam.routing.child


def test_the_sham_learns_labels_that_were_dealt_out() -> None:
    cases = bank(Split.TRAIN).draw(40, 1)
    dealt = dealt_out(cases, 7)
    assert [case.context for case in dealt] == [case.context for case in cases]
    assert sorted(case.wanted for case in dealt) == sorted(case.wanted for case in cases)
    assert sum(a.wanted != b.wanted for a, b in zip(cases, dealt, strict=True)) > 5


class Handiwork(fakes.TwoTurns):
    """L0's environment again; its tasks read as if they needed a tool."""

    def text(self, task: Task, contract: Contract) -> str:
        return f"a tool, {task.seed}"


class Elsewhere(fakes.TwoTurns):
    """An environment of another specialist, so that two adapters can be crossed; it has no tasks."""

    @property
    def name(self) -> str:
        return "elsewhere"

    @property
    def label(self) -> str:
        return "L1"


def test_only_wrong_routes_cost_contract_points_where_specialists_were_crossed(made: Loop) -> None:
    planned = plan(examine=ExaminePlan(tasks={"twice": 24}, diversity_tasks=0, routes=16, interference=24))
    right = grow(made, planned, environments=(fakes.TwoTurns(), Elsewhere())).exam
    wrong = grow(made, planned, family="other", environments=(Handiwork(), Elsewhere())).exam
    assert right is not None and right.routing is not None and right.routing.regret is not None
    assert wrong is not None and wrong.routing is not None and wrong.routing.regret is not None
    assert (right.routing.regret.n, right.routing.regret.point) == (24, 0.0)
    # Every task went to L1, whose adapter was not trained: what is lost is L0's score less L1's.
    row = wrong.interference["twice"]
    assert wrong.routing.regret.point == pytest.approx(row["L0"] - row["L1"]) and row["L0"] > row["L1"]


def test_an_exemplar_of_a_label_is_data_of_the_harness() -> None:
    shown = harness().routing.revise(exemplars=(RouteExemplar(message="m", label="L1"),))
    prompt = Prompt(label="L9", role="new", system="s")
    assert harness().revise(routing=shown, prompts=(*harness().prompts, prompt)).routing.exemplars[0].label == "L1"
