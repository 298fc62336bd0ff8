"""Control arms around a real store: equal budgets, equal work done once, and what each may change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from loop.core.experiment import Arm, Experiment, arm_of
from loop.core.pair import Pair
from loop.core.plan import CollectPlan, ExaminePlan, ExplorePlan, Plan, Spec
from loop.explorers.exemplars import Exemplars
from loop.explorers.keep import Keep
from loop.findings import read_findings
from loop.pipeline.experience import dealt_out
from loop.pipeline.experiment import run_experiment
from loop.pipeline.parts import Loop
from loop.ports import Explorer
from loop.store.blobs import FsBlobs
from loop.store.migrate import upgrade
from loop.store.sql import SqlStore
from tests import fakes
from tests.pipeline.test_generation import Breaking

EVERY = Experiment(name="try", arms=tuple(Arm), generations=2, seeds=(1,))


@pytest.fixture
def made(tmp_path: Path) -> Loop:
    url = f"sqlite:///{tmp_path / 'loop.db'}"
    upgrade(url)
    blobs = FsBlobs(url=str(tmp_path / "blobs"))
    return fakes.loop(SqlStore(url, blobs), blobs, tmp_path / "scratch")


def plan_of_arms() -> Plan:
    return fakes.plan(
        explorer=Spec(use="exemplars", options={"rounds": 1}),
        collect=CollectPlan(tasks={"twice": 40}, samples=4, shard_tasks=8),
        explore=ExplorePlan(tasks={"twice": 4}),
        examine=ExaminePlan(tasks={"twice": 40}, shard_tasks=20, diversity_tasks=0),
    )


def grow(loop: Loop, experiment: Experiment, plan: Plan | None = None) -> None:
    kinds: Mapping[str, Callable[..., Explorer]] = {"keep": Keep, "exemplars": Exemplars}

    def staged(family: str, mine: Plan) -> Loop:
        explorer = kinds[mine.explorer.use](**mine.explorer.options)
        return Loop(**(vars(loop) | {"family": family, "explorer": explorer}))

    def held(family: str) -> AbstractContextManager[None]:
        return loop.store.lease(family, "test")

    def first(seed: int) -> Pair:
        return fakes.pair()

    run_experiment(experiment, plan or plan_of_arms(), staged, first, held)


def _store(loop: Loop) -> SqlStore:
    assert isinstance(loop.store, SqlStore)
    return loop.store


def test_every_arm_is_a_lineage_of_its_own_on_the_budget_of_the_iterated_one(made: Loop) -> None:
    grow(made, EVERY)
    found = read_findings(_store(made), "try")
    assert found is not None and [result.arm for result in found.arms] == list(Arm)
    for result in found.arms:
        numbers = [point.number for point in result.points]
        assert numbers == ([1] if result.arm is Arm.ONE_SHOT else [1, 2])
        if result.arm is not Arm.NULL:
            assert result.ratio == pytest.approx(1.0, abs=0.02), result.arm
    assert found.compounding is not None and found.compounding.clusters > 1
    assert set(found.contrasts) == set(Arm) - {Arm.ITERATED, Arm.NULL}


def test_budgets_match_where_most_is_spent_on_trials(made: Loop) -> None:
    """The incumbent is tried once a generation: in the one-shot arm once in all, so it tries more candidates."""
    plan = plan_of_arms().revise(
        explorer=Spec(use="exemplars", options={"rounds": 3}),
        collect=CollectPlan(tasks={"twice": 16}, samples=4, shard_tasks=8),
        explore=ExplorePlan(tasks={"twice": 8}),
    )
    grow(made, EVERY, plan)
    found = read_findings(_store(made), "try")
    assert found is not None and found.unmatched == {}
    tried = {result.arm: result.budget.trials for result in found.arms}
    assert tried[Arm.ONE_SHOT] == tried[Arm.ITERATED] == 2 * (1 + 3)


def test_what_an_arm_may_not_change_stays_as_generation_0_has_it(made: Loop) -> None:
    grow(made, EVERY)
    last = {arm: made.store.generations(EVERY.family(arm, 1))[-1] for arm in Arm}
    root = fakes.pair()
    for arm in (Arm.HARNESS_ONLY, Arm.BEST_OF_K, Arm.NULL):
        assert last[arm].pair.adapters == root.adapters, arm
    for arm in (Arm.WEIGHTS_ONLY, Arm.BEST_OF_K, Arm.NULL, Arm.SHAM):
        assert last[arm].pair.harness == root.harness, arm
    assert last[Arm.NULL].learning.generated_tokens == last[Arm.NULL].learning.trained_tokens == 0
    assert last[Arm.ONE_SHOT].pair.adapters[0].blob == "depth-1"
    assert last[Arm.WEIGHTS_ONLY].pair.adapters[0].blob == "depth-2"
    assert last[Arm.BEST_OF_K].exam is not None and last[Arm.BEST_OF_K].exam.gain is not None
    assert last[Arm.BEST_OF_K].exam.gain.low > 0  # many answers and a scorer beat one answer


def test_the_work_that_arms_share_is_done_once(made: Loop) -> None:
    grow(made, Experiment(name="try", arms=(Arm.ITERATED,), generations=1, seeds=(1,)), plan_of_arms())
    fakes.CALLS.clear()
    plain = plan_of_arms().revise(explorer=Spec(use="keep"))
    grow(made, Experiment(name="again", arms=(Arm.ITERATED,), generations=1, seeds=(1,)), plain)
    # the same tasks were met, scored and learned from; only the exam differs where the harness changed
    assert fakes.CALLS["train"] == 0
    first, second = (made.store.generations(f"{name}.iterated.s1")[1] for name in ("try", "again"))
    assert first.stages["collect"].generated_tokens == second.stages["collect"].generated_tokens > 0


@pytest.mark.parametrize("after", [3, 40, 90])
def test_an_interrupted_experiment_resumes_to_the_same_generations(made: Loop, tmp_path: Path, after: int) -> None:
    url = f"sqlite:///{tmp_path / 'other.db'}"
    upgrade(url)
    other = Loop(**(vars(made) | {"store": SqlStore(url, FsBlobs(url=str(tmp_path / "others")))}))
    grow(other, EVERY)
    fakes.CALLS.clear()
    with pytest.raises(KeyboardInterrupt):
        grow(Loop(**(vars(made) | {"executor": Breaking(after=after)})), EVERY)
    grow(made, EVERY)
    for arm in Arm:
        family = EVERY.family(arm, 1)
        assert [g.digest for g in made.store.generations(family)] == [g.digest for g in other.store.generations(family)]


def test_the_null_arm_is_measured_with_luck_of_its_own_and_each_generation_with_other_luck(made: Loop) -> None:
    grow(made, Experiment(name="try", arms=(Arm.NULL,), generations=3, seeds=(1,)))
    exams = [g.exam for g in made.store.generations("try.null.s1")[1:]]
    gains = [exam.gain.point for exam in exams if exam and exam.gain]
    assert len(gains) == 3 and len(set(gains)) > 1 and any(gains)
    assert not any(exam.transplant for exam in exams if exam)


def test_the_sham_deals_out_the_same_rewards_to_other_episodes(made: Loop) -> None:
    from loop.core.episode import Split, Task
    from loop.core.score import CaseScore

    rows = [
        CaseScore(
            episode=str(index),
            task=Task(environment="twice", case="f", split=Split.TRAIN, seed=index, level=1 + index % 2),
            sample=0,
            score=float(index),
            passed=index > 20,
        )
        for index in range(40)
    ]
    dealt = dealt_out(rows, 3)
    assert [row.episode for row in dealt] == [row.episode for row in rows]
    for level in (1, 2):
        mine = [row.score for row in dealt if row.task.level == level]
        assert sorted(mine) == [row.score for row in rows if row.task.level == level] != mine
    assert all((row.score or 0) > 20 if row.passed else (row.score or 0) <= 20 for row in dealt)


def test_a_lineage_is_told_apart_from_those_of_other_experiments() -> None:
    assert arm_of("exp", "exp.one_shot.s12") == (Arm.ONE_SHOT, 12)
    assert arm_of("exp", "exp2.one_shot.s12") is None and arm_of("exp", "exp") is None
    assert arm_of("a.b", "aXb.null.s1") is None
