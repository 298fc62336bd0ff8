"""The loop learns from people's conversations, and stops to when they are deleted."""

from __future__ import annotations

from pathlib import Path

from loop.cli.files import write_noun
from loop.core.contract import Contract, Half
from loop.core.episode import Episode, EpisodeShard
from loop.core.living import LIVING
from loop.core.score import Verdict
from loop.core.stage import Stage
from loop.core.training_set import TrainingSet
from loop.environments.living import Living
from loop.pipeline.generation import plant, run_generation
from loop.serve.export import export
from loop.store.blobs import FsBlobs
from loop.store.conversations import SqlConversations
from loop.store.erase import erase
from loop.store.living import SqlLiving
from loop.store.migrate import upgrade
from loop.store.sql import SqlStore
from tests import fakes
from tests.serve.test_export import said


class Pleased(fakes.RecordJudge):
    """Holds every reply to a person for good."""

    def judge(self, contract: Contract, episode: Episode, half: Half) -> tuple[Verdict, ...]:
        if episode.task.environment != LIVING:
            return super().judge(contract, episode, half)
        return (Verdict(criterion="good", axiom="forward_movement", half=half, value=1.0),)


def test_a_deleted_conversation_is_not_learned_from_again(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'loop.db'}"
    upgrade(url)
    blobs, living = FsBlobs(url=str(tmp_path / "blobs")), SqlLiving(url)
    store = SqlStore(url, blobs)
    for owner in ("ana", "bob"):
        living.decide(owner, True, "1", "test")
        said(url, owner, (f"I am {owner}", "Hello."), ("What now?", "That."))
    found = export(living, living.owners(), "export.json")
    write_noun(found, tmp_path / "export.json", "export")
    ana, bob = (episode.task.case for episode in found.episodes)
    environments = (fakes.TwoTurns(), Living(path=str(tmp_path / "export.json")))
    made = fakes.loop(store, blobs, tmp_path / "scratch", environments=environments, judge=Pleased())
    plan = fakes.plan()
    plan = plan.revise(collect=plan.collect.revise(tasks={"twice": 4, LIVING: 4}))
    child = run_generation(made, plant(made, fakes.pair(), 1), plan)

    def learned(generation: str) -> set[str]:
        return {row.case for row in store.replay("test", [generation], "L0") if row.environment == LIVING}

    assert learned(child.digest) == {ana, bob}
    SqlConversations(url).forget("ana", living.talks("ana")[0].opening)
    # the export was not rewritten: the tombstone alone keeps what is played again from being learned
    grandchild = run_generation(made, child, plan)
    attempt, _ = store.made_by(grandchild)
    taught = attempt.find(Stage.CURATE, TrainingSet, "L0")
    assert taught is not None and {row.case for row in taught.rows if row.environment == LIVING} == {bob}
    done = erase(url, blobs)
    assert done.rows > 0 and set(done.adapters) == {adapter.digest for adapter in child.pair.adapters}
    for generation in (child, grandchild):
        attempt, _ = store.made_by(generation)
        shards = [attempt.find(stage, EpisodeShard, key) for stage, key in store.played(attempt)]
        met = [e for shard in shards if shard is not None for e in shard.episodes if e.task.environment == LIVING]
        assert {e.task.case for e in met} == {ana, bob}
        assert all((e.turns == ()) is (e.task.case == ana) for e in met)
    # what is finished stays finished
    assert run_generation(made, child, plan) == grandchild
