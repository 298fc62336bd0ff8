"""Interference: every environment with every specialist's adapter in the place of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from loop.core.contract import Contract
from loop.core.conversation import Say
from loop.core.episode import Outcome, Record, Request, Task
from loop.core.pair import Harness, Message, Pair, Routing
from loop.core.plan import ExaminePlan
from loop.pipeline.cards import only
from loop.pipeline.generation import plant, run_generation
from loop.ports import Rollout
from loop.store.blobs import FsBlobs
from loop.store.migrate import upgrade
from loop.store.sql import SqlStore
from tests import fakes


class Asked(fakes.TwoTurns):
    """One question to the specialist of its own label."""

    place: str
    to: str

    @property
    def name(self) -> str:
        return self.place

    @property
    def label(self) -> str:
        return self.to

    def rollout(self, task: Task, harness: Harness, contract: Contract) -> Rollout:
        reply = yield Say(messages=(Message(role="user", content=self.place),), label=self.to)
        return Outcome(record=Record(world={"right": reply.text == "1"}))


class Specialists(fakes.AnsweringEngine):
    """An adapter is right where it belongs: "one" at home in L1, "two" in L2, whatever label it answers under."""

    def answer(self, request: Request) -> str:
        right = request.adapter is not None and request.adapter.role == request.messages[-1].content
        return str(int(right))


def specialists() -> Pair:
    prompt, adapter = fakes.harness().prompts[0], fakes.pair().adapters[0]
    labels = {"L1": "one", "L2": "two"}
    harness = fakes.harness().revise(
        prompts=tuple(prompt.revise(label=label) for label in labels),
        routing=Routing(prompt="", labels=tuple(labels), fallback="L1"),
    )
    adapters = tuple(adapter.revise(label=label, role=role) for label, role in labels.items())
    return Pair(base=fakes.BASE, adapters=adapters, harness=harness)


def test_each_environment_is_scored_with_each_specialists_adapter(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'loop.db'}"
    upgrade(url)
    blobs = FsBlobs(url=str(tmp_path / "blobs"))
    places = (Asked(place="one", to="L1"), Asked(place="two", to="L2"))
    made = fakes.loop(SqlStore(url, blobs), blobs, tmp_path / "scratch", environments=places, engine=Specialists())
    plan = fakes.plan(weights=False, examine=ExaminePlan(tasks={"one": 8, "two": 8}, diversity_tasks=0, interference=4))
    child = run_generation(made, plant(made, specialists(), 1), plan)
    assert child.exam is not None
    assert child.exam.interference == {"one": {"L1": 100.0, "L2": 0.0}, "two": {"L1": 0.0, "L2": 100.0}}


def test_one_adapter_answers_under_every_label_and_its_weights_stay() -> None:
    alone = only(specialists(), "L2")
    assert [adapter.label for adapter in alone.adapters] == ["L1", "L2"]
    assert {adapter.role for adapter in alone.adapters} == {"two"}
    with pytest.raises(KeyError):
        only(specialists(), "L9")
