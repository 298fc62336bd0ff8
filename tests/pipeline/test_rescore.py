"""Stored episodes under another contract: offline equals online, nothing is doubled, nothing turns into zero."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from loop.core.contract import Contract, Criterion, Half, Scenario
from loop.core.episode import Episode, EpisodeShard, Split
from loop.core.errors import StageFailed, UserError
from loop.core.experiment import Arm
from loop.core.gate import Standing
from loop.core.generation import Generation
from loop.core.plan import Spec
from loop.core.score import Scorecard, ScoreShard, Verdict
from loop.core.stage import Stage
from loop.environments.scenarios import Scenarios
from loop.environments.tools import Tools
from loop.explorers.exemplars import Exemplars
from loop.judges.rules import Rules
from loop.library import default_root, load_contract, load_harness
from loop.pipeline.arms import arm_plan
from loop.pipeline.generation import plant, run_generation
from loop.pipeline.parts import Loop
from loop.pipeline.rescore import Bench, rescore
from loop.ports import Judge
from loop.store.blobs import FsBlobs
from loop.store.migrate import upgrade
from loop.store.sql import SqlStore
from tests import fakes
from tests.pipeline.test_experiment import plan_of_arms
from tests.pipeline.test_generation import Breaking
from tests.pipeline.test_interference import Asked, Specialists, specialists


def _contract(version: str, *more: Criterion) -> Contract:
    """The fakes' contract with a scenario for their environment: a reply is right, on both halves."""
    check = {"kind": "end_state", "path": "right", "equals": True}
    both = tuple(
        Criterion.model_validate(
            {"id": f"right_{half}", "axiom": "forward_movement", "half": half, "text": "Right.", "check": check}
        )
        for half in Half
    )
    scenario = Scenario(
        id="twice",
        name="Twice",
        environment="twice",
        provenance="this-project",
        pole_a="a",
        pole_b="b",
        axioms=("forward_movement",),
        criteria=(*both, *more),
    )
    return fakes.contract().revise(version=version, folder_digest=version * 32, scenarios=(scenario,))


def _demand(half: Half, **check: object) -> Criterion:
    return Criterion.model_validate(
        {"id": "more", "axiom": "forward_movement", "half": half, "text": "And more.", "check": check}
    )


ONE = _contract("v1")
# Under the second version the first reply must not be a zero either.
TWO = _contract("v2", _demand(Half.SEALED, kind="avoids", forms=["0"], turn=1))


@pytest.fixture
def store(tmp_path: Path) -> SqlStore:
    url = f"sqlite:///{tmp_path / 'loop.db'}"
    upgrade(url)
    return SqlStore(url, FsBlobs(url=str(tmp_path / "blobs")))


@pytest.fixture
def made(store: SqlStore, tmp_path: Path) -> Loop:
    return fakes.loop(store, store.blobs, tmp_path / "scratch", judge=Rules(), contract=ONE)


@pytest.fixture
def child(made: Loop) -> Generation:
    return run_generation(made, plant(made, fakes.pair(), 1), fakes.plan(contract=ONE.digest))


def _bench(store: SqlStore, contract: Contract, **parts: object) -> Bench:
    given: dict[str, object] = {"judge": Rules(), "executor": fakes.LocalExecutor()}
    return Bench(archive=store, contract=contract, spec=Spec(use="rules"), progress=fakes.Silence(), **(given | parts))  # type: ignore[arg-type]


def _episodes(store: SqlStore, generation: Generation, part: str) -> list[Episode]:
    attempt, _ = store.made_by(generation)
    steps = [(stage, key) for stage, key in store.played(attempt) if key.startswith(part)]
    shards = [attempt.find(stage, EpisodeShard, key) for stage, key in steps]
    return [episode for shard in shards if shard for episode in shard.episodes]


def _same_as_the_run(store: SqlStore, contract: Contract, child: Generation) -> None:
    """Every score shard and the whole exam of a rescore are those that the run recorded."""
    found = rescore(_bench(store, contract), child)
    attempt, _ = store.made_by(child)
    steps = store.rescoring(child, contract.digest, found.judge)
    keys = [(stage, key) for stage, key in store.played(attempt) if key.split("/")[0] in ("collect", "exam")]
    assert {key.split("/")[0] for _, key in keys} == {"collect", "exam"}
    for stage, key in keys:
        halves = tuple(Half) if stage is Stage.EXAMINE else (Half.VISIBLE,)
        for half in halves:
            name = f"score/{half}/{key}"
            online = attempt.find(Stage.EXAMINE if stage is Stage.EXAMINE else Stage.SCORE, ScoreShard, name)
            assert online is not None and steps.find(ScoreShard, name) == online
    assert child.exam is not None and found.exam == child.exam
    assert found.experience == child.experience and found.outside == {} and found.reworded == 0
    assert found.equal is True


def test_scores_offline_equal_the_scores_of_the_run(store: SqlStore, child: Generation) -> None:
    _same_as_the_run(store, ONE, child)


def test_scores_offline_equal_online_where_episodes_broke_and_nothing_was_trained(store: SqlStore, made: Loop) -> None:
    loop = Loop(**(vars(made) | {"environments": (fakes.TwoTurns(broken_share=0.15),)}))
    plan = fakes.plan(contract=ONE.digest)
    idle = plan.revise(profile=plan.profile.revise(min_rows=10_000))
    same = run_generation(loop, plant(loop, fakes.pair(), 1), idle)
    assert same.decision.standing is Standing.REJECTED and same.exam is not None and same.exam.coverage < 1
    _same_as_the_run(store, ONE, same)


@pytest.mark.parametrize("arm", [Arm.BEST_OF_K, Arm.NULL, Arm.SHAM])
def test_arms_whose_answers_are_chosen_or_drawn_apart_are_scored_again_as_they_were(
    store: SqlStore, made: Loop, arm: Arm
) -> None:
    plan = arm_plan(arm, fakes.plan(contract=ONE.digest), 1, 1, None)
    many = plan.examine.revise(best_of_tokens=4_000) if arm is Arm.BEST_OF_K else plan.examine
    grown = run_generation(made, plant(made, fakes.pair(), 1), plan.revise(examine=many))
    found = rescore(_bench(store, ONE), grown)
    assert grown.exam is not None and found.exam == grown.exam
    assert found.equal is True and found.experience == grown.experience
    assert [("best of many" in line) for line in found.left_out] == [True] * (arm is Arm.BEST_OF_K)


def test_attribution_and_earlier_tasks_are_scored_again_without_a_model(store: SqlStore, made: Loop) -> None:
    plan = plan_of_arms().revise(contract=ONE.digest)
    plan = plan.revise(examine=plan.examine.revise(earlier=3, diversity_tasks=2, canaries=0, looks=1))
    loop = Loop(**(vars(made) | {"explorer": Exemplars(rounds=1)}))
    first = run_generation(loop, plant(loop, fakes.pair(), 1), plan, forced=True)
    second = run_generation(loop, first, plan, forced=True)
    for grown in (first, second):
        exam = grown.exam
        assert exam is not None and exam.transplant["adapters"].point and exam.diversity and exam.anchor
        assert rescore(_bench(store, ONE), grown).exam == exam
    assert first.exam is not None and len(first.exam.transplant) == 4
    assert second.exam is not None and second.exam.panel == 1 and set(second.exam.earlier) == {"0"}


def test_specialists_in_each_others_places_are_scored_again(store: SqlStore, made: Loop) -> None:
    scenarios = tuple(ONE.scenarios[0].revise(id=place, environment=place) for place in ("one", "two"))
    contract = ONE.revise(scenarios=scenarios)
    places = (Asked(place="one", to="L1"), Asked(place="two", to="L2"))
    loop = Loop(**(vars(made) | {"environments": places, "engine": Specialists(), "contract": contract}))
    examine = fakes.plan().examine.revise(tasks={"one": 8, "two": 8}, interference=4)
    plan = fakes.plan(weights=False, contract=contract.digest, examine=examine)
    grown = run_generation(loop, plant(loop, specialists(), 1), plan)
    found = rescore(_bench(store, contract), grown)
    assert found.exam == grown.exam
    assert found.exam.interference == {"one": {"L1": 100.0, "L2": 0.0}, "two": {"L1": 0.0, "L2": 100.0}}


def test_the_rules_give_real_conversations_and_tool_tasks_their_scores_of_the_run(store: SqlStore, made: Loop) -> None:
    contract = load_contract(default_root())
    environments = (Tools(), Scenarios())
    loop = Loop(**(vars(made) | {"contract": contract, "environments": environments}))
    plan = fakes.plan(contract=contract.digest)
    plan = plan.revise(
        collect=plan.collect.revise(tasks={"tools": 4, "scenarios": 7}, samples=1),
        examine=plan.examine.revise(tasks={"tools": 5, "scenarios": 7}, diversity_tasks=0),
    )
    harness = load_harness(default_root() / "harnesses" / "seed")
    pair = fakes.pair()
    (first,) = pair.adapters
    adapters = tuple(first.revise(label=prompt.label) for prompt in harness.prompts)
    grown = run_generation(loop, plant(loop, pair.revise(harness=harness, adapters=adapters), 1), plan)
    _same_as_the_run(store, contract, grown)


def test_another_version_scores_the_same_episodes_by_its_own_criteria(store: SqlStore, child: Generation) -> None:
    found = rescore(_bench(store, TWO), child)
    # By hand: two criteria of one axiom, right (both replies are 1) and no zero first: 100, 50 or 0 points.
    points = {("1", "1"): 100.0, ("1", "0"): 50.0, ("0", "1"): 0.0, ("0", "0"): 0.0}
    mine = [e for e in _episodes(store, child, "exam/") if e.pair == child.pair.digest]
    expected = {episode.digest: points[episode.replies] for episode in mine}  # type: ignore[index]
    assert len(set(expected.values())) == 3
    card = store.load(Scorecard, found.exam.scorecard)
    assert {score.episode: score.score for score in card.scores} == expected
    assert found.exam.score == pytest.approx(sum(expected.values()) / len(expected))
    assert card.contract == TWO.digest and found.equal is None
    assert store.generation("test", 1) == child


class Noting(Rules):
    """Rules that note which splits they were asked to judge under which half."""

    def judge_many(
        self, contract: Contract, episodes: Sequence[Episode], half: Half
    ) -> tuple[tuple[Verdict, ...], ...]:
        fakes.CALLS.update(f"{half}/{episode.task.split}" for episode in episodes)
        return super().judge_many(contract, episodes, half)


def test_train_episodes_are_never_judged_by_the_sealed_half(store: SqlStore, child: Generation) -> None:
    fakes.CALLS.clear()
    found = rescore(_bench(store, TWO, judge=Noting()), child)
    asked = Counter({key: count for key, count in fakes.CALLS.items() if "/" in key})
    # 12 train tasks in 4 samples and 4 in 4 by both pairs for diversity; 40 exam tasks by parent and child.
    assert asked == {"visible/train": 80, "sealed/holdout": 80, "visible/holdout": 80}
    assert (found.collected, found.collected_unscored) == (48, 0)


class Silent(Rules):
    """A judge that nobody may ask."""

    def judge_many(
        self, contract: Contract, episodes: Sequence[Episode], half: Half
    ) -> tuple[tuple[Verdict, ...], ...]:
        raise AssertionError("asked")


def test_a_finished_rescore_is_shown_and_neither_scored_nor_opened_again(store: SqlStore, child: Generation) -> None:
    first = rescore(_bench(store, TWO), child)
    before = store.table_counts()
    assert rescore(_bench(store, TWO, judge=Silent()), child) == first
    assert store.table_counts() == before
    openings = [opening for opening in store.openings("test") if "rescore of generation 1" in opening.why]
    assert [(TWO.short in opening.why, opening.times) for opening in openings] == [(True, 1)]


@pytest.mark.parametrize("after", range(0, 7, 2))
def test_an_interrupted_rescore_goes_on_to_the_same_result(store: SqlStore, child: Generation, after: int) -> None:
    fakes.CALLS.clear()
    with pytest.raises(KeyboardInterrupt):
        rescore(_bench(store, TWO, executor=Breaking(after=after)), child)
    assert store.table_counts()["rescores"] == after
    assert store.standpoints("test", TWO.digest, Spec(use="rules").digest) == {}
    fakes.CALLS.clear()
    resumed = rescore(_bench(store, TWO, executor=Breaking(after=99)), child)
    # 3 shards of collect and 2 of diversity under one half, 2 of the exam under two: 9 steps in all.
    assert fakes.CALLS["jobs"] == 9 - after
    shifted = _bench(store, TWO).spec.revise(options={"again": True})
    again = rescore(Bench(**(vars(_bench(store, TWO)) | {"spec": shifted})), child)
    assert again.revise(judge=resumed.judge) == resumed


def test_cases_that_the_version_does_not_have_are_unscored_and_counted(store: SqlStore, child: Generation) -> None:
    empty = TWO.revise(scenarios=(TWO.scenarios[0].revise(environment="thrice"),))
    found = rescore(_bench(store, empty), child)
    assert found.outside == {"no scenario twice": 80}
    assert (found.exam.score, found.exam.coverage, found.exam.cases) == (None, 0.0, 40)
    assert (found.exam.gain, found.exam.score_unscored_zero) == (None, 0.0)
    assert (found.collected, found.collected_unscored) == (48, 48)


def test_a_criterion_that_names_a_slot_no_episode_drew_leaves_its_cases_unscored(
    store: SqlStore, child: Generation
) -> None:
    asks = _demand(Half.VISIBLE, kind="avoids", forms=["{weather}"])
    found = rescore(_bench(store, _contract("v3", asks)), child)
    assert child.exam is not None and found.exam.score == child.exam.score  # the sealed half names no such slot
    assert found.collected_unscored == 48 and found.exam.goodhart is None


def test_a_conversation_whose_persona_left_is_unscored_and_one_with_new_words_is_counted(
    store: SqlStore, made: Loop
) -> None:
    contract = load_contract(default_root())
    loop = Loop(**(vars(made) | {"contract": contract, "environments": (Scenarios(),)}))
    plan = fakes.plan(contract=contract.digest)
    plan = plan.revise(
        collect=plan.collect.revise(tasks={"scenarios": 7}, samples=1),
        examine=plan.examine.revise(tasks={"scenarios": 14}, diversity_tasks=0),
    )
    harness = load_harness(default_root() / "harnesses" / "seed")
    grown = run_generation(loop, plant(loop, fakes.pair().revise(harness=harness), 1), plan)
    cases = Counter(e.task.case for e in _episodes(store, grown, "exam/"))
    gone = sorted(cases)[0].split("/")[1]
    bank = contract.bank(Split.HOLDOUT)
    others = tuple(persona for persona in bank.personas if persona.id != gone)
    renamed = tuple(persona.revise(name=f"{persona.name} II") for persona in others)
    changed = contract.revise(version="v2", banks=(contract.bank(Split.TRAIN), bank.revise(personas=renamed)))
    found = rescore(_bench(store, changed), grown)
    lost = sum(count for case, count in cases.items() if case.endswith(f"/{gone}"))
    assert found.outside == {f"no holdout persona {gone}": lost}
    assert found.reworded == sum(cases.values()) - lost  # every other persona has another name now
    assert grown.exam is not None and found.exam.coverage < grown.exam.coverage


def test_a_lineage_grows_on_under_a_new_version_and_its_ancestors_are_scored_again(
    store: SqlStore, made: Loop, child: Generation
) -> None:
    newer = Loop(**(vars(made) | {"contract": TWO}))
    second = run_generation(newer, child, fakes.plan(contract=TWO.digest), forced=True)
    assert second.exam is not None and second.exam.contract == TWO.digest
    rules = Spec(use="rules").digest
    assert set(store.standpoints("test", TWO.digest, rules)) == {second.digest}
    before = rescore(_bench(store, TWO), child)
    found = store.standpoints("test", TWO.digest, rules)
    assert {digest: point.rescored for digest, point in found.items()} == {child.digest: True, second.digest: False}
    # The child was examined again beside its successor, under the new version: the same cases and luck, the same score.
    assert second.exam.parent_scorecard == before.exam.scorecard


def test_scores_by_another_judge_are_not_held_against_the_run(store: SqlStore, child: Generation) -> None:
    other = Bench(**(vars(_bench(store, ONE)) | {"spec": Spec(use="rules", options={"strict": True})}))
    assert rescore(other, child).equal is None


def test_a_root_has_no_exam_of_its_own(store: SqlStore, child: Generation) -> None:
    with pytest.raises(UserError, match="first successor"):
        rescore(_bench(store, TWO), store.generation("test", 0))


class Faulty(Rules):
    """A judge whose device is gone."""

    def judge_many(
        self, contract: Contract, episodes: Sequence[Episode], half: Half
    ) -> tuple[tuple[Verdict, ...], ...]:
        raise RuntimeError("no judge here")


def test_a_judge_that_breaks_is_a_failed_stage_that_can_go_on(store: SqlStore, child: Generation) -> None:
    judge: Judge = Faulty()  # type: ignore[assignment]
    with pytest.raises(StageFailed, match=r"no judge here.*same command"):
        rescore(_bench(store, TWO, judge=judge), child)
    assert rescore(_bench(store, TWO), child).exam.score is not None
