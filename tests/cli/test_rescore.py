"""Scoring again at the command line, and a lineage that never puts two contracts in one series."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from loop.app import open_store
from loop.core.gate import Interval
from loop.core.generation import Generation
from loop.core.plan import Spec
from loop.core.rescore import Rescore
from loop.core.score import Scorecard
from loop.environments.tools import Tools
from loop.judges.rules import Rules
from loop.library import default_root, load_contract, load_harness
from loop.pipeline.generation import plant, run_generation
from loop.report.page import page
from loop.settings import Settings
from loop.store.sql import SqlStore
from tests import fakes
from tests.cli.test_bad_input import one_sentence, run
from tests.gains.test_comparable import NEW, OLD
from tests.store import lineage


@pytest.fixture
def store(tmp_path: Path) -> SqlStore:
    return open_store(Settings(home=tmp_path))


@pytest.fixture
def grown(tmp_path: Path, store: SqlStore) -> Generation:
    """Generation 1 of lineage ``test``: real tool tasks under contract v1, scored by the rules."""
    contract = load_contract(default_root())
    parts = {"contract": contract, "environments": (Tools(),), "judge": Rules()}
    loop = fakes.loop(store, store.blobs, tmp_path / "scratch", **parts)
    plan = fakes.plan(contract=contract.digest)
    plan = plan.revise(
        collect=plan.collect.revise(tasks={"tools": 4}, samples=1),
        examine=plan.examine.revise(tasks={"tools": 5}, diversity_tasks=0),
    )
    harness = load_harness(default_root() / "harnesses" / "seed")
    pair = fakes.pair()
    adapters = tuple(pair.adapters[0].revise(label=prompt.label) for prompt in harness.prompts)
    return run_generation(loop, plant(loop, pair.revise(harness=harness, adapters=adapters), 1), plan)


def _fits(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    return done.stdout


def test_scoring_a_run_again_under_its_own_contract_proves_it_equal_and_is_done_once(
    tmp_path: Path, grown: Generation
) -> None:
    first = _fits(run(tmp_path, "rescore", "--contract", "v1", MACARON_FAMILY="test", COLUMNS="80"))
    assert "equal to the run's own scorecards" in first and "NOT" not in first and grown.digest[:7] in first
    second = json.loads(run(tmp_path, "rescore", "--contract", "v1", "--json", MACARON_FAMILY="test").stdout)
    assert [(row["number"], row["reused"], row["rescore"]["equal"]) for row in second] == [(1, True, True)]
    ledger = _fits(run(tmp_path, "holdout", "ledger", MACARON_FAMILY="test", COLUMNS="80"))
    assert ledger.count("rescore of") == 1


def test_what_cannot_be_scored_again_is_one_sentence(tmp_path: Path, grown: Generation) -> None:
    one_sentence(run(tmp_path, "rescore", "--contract", "v9"), 2, "v9", "v1")
    one_sentence(run(tmp_path, "rescore", "--contract", "v1"), 2, "no examined generation", "run --generation 0")
    one_sentence(run(tmp_path, "rescore", "--contract", "v1", "--all", "-g", "1"), 2, "--all")
    one_sentence(run(tmp_path, "rescore", "--contract", "v1", "-g", "7", MACARON_FAMILY="test"), 2, "7")


def test_a_rescore_waits_for_no_writer_and_names_it(tmp_path: Path, store: SqlStore, grown: Generation) -> None:
    with store.lease("test", "macaron-loop run --generation 1, by a test"):
        one_sentence(run(tmp_path, "rescore", "--contract", "v1", MACARON_FAMILY="test"), 3, "by a test")


def _card(store: SqlStore, contract: str, points: float) -> str:
    """A stored scorecard of one tool task."""
    shard = lineage.scores(lineage.shard(0, 1))
    return store.save(
        Scorecard(contract=contract, pair="p", half=shard.half, scores=(shard.scores[0].revise(score=points),))
    )


def _bounds(point: float) -> Interval:
    return Interval(point=point, low=10.0, high=90.0, n=1, clusters=1)


def _line(store: SqlStore, *contracts: str) -> list[Generation]:
    """Generations 1, 2, ... that gained 10 points each from 50, under the contracts named."""
    found = [lineage.root()]
    store.register(found[0], None)
    for number, contract in enumerate(contracts, start=1):
        parent = found[-1]
        attempt = store.begin(lineage.FAMILY, parent, lineage.plan())
        score = _bounds(50.0 + 10 * number)
        exam = lineage.exam().revise(
            contract=contract,
            scorecard=_card(store, contract, 50.0 + 10 * number),
            parent_scorecard=_card(store, contract, 40.0 + 10 * number),
            score_interval=score,
        )
        found.append(lineage.child(parent, f"blob{number}").revise(exam=exam))
        store.register(found[-1], attempt)
    return found


def test_the_gain_since_generation_0_is_shown_where_one_contract_judged_all(tmp_path: Path, store: SqlStore) -> None:
    _line(store, OLD, OLD)
    told = _fits(run(tmp_path, "lineage", COLUMNS="80"))
    # By hand: from 50 points to 70 on the one case.
    assert "gain of generation 2 since generation 0: +20.0 [+20.0, +20.0]" in told
    assert told.count(OLD[:8]) == 2


def test_the_gain_since_generation_0_is_refused_across_contracts(tmp_path: Path, store: SqlStore) -> None:
    version_two = store.save(lineage.contract().revise(version="v2"))
    _line(store, OLD, version_two)
    told = " ".join(_fits(run(tmp_path, "lineage", COLUMNS="80")).split())
    assert "since generation 0: not shown" in told and "+20.0" not in told
    assert "rescore --contract v2" in told


def test_a_generation_without_a_score_under_the_version_shows_none(tmp_path: Path, store: SqlStore) -> None:
    _, one, _ = _line(store, OLD, NEW)
    told = " ".join(_fits(run(tmp_path, "lineage", "--contract", "v1", COLUMNS="80")).split())
    assert "60.0" not in told and "70.0" not in told
    assert f"no score under v1: 1 ({one.digest[:7]})" in told and "rescore --contract v1" in told
    one_sentence(run(tmp_path, "show", "1", "--contract", "v1"), 2, "no score under contract v1", "rescore")
    assert json.loads(run(tmp_path, "lineage", "--contract", "v1", "--json").stdout) == [None, None, None]
    assert OLD[:8] in _fits(run(tmp_path, "show", "1", COLUMNS="80"))


def test_a_rescored_exam_is_shown_with_the_generations_digest_and_its_own_decision(
    tmp_path: Path, store: SqlStore
) -> None:
    _, one, _ = _line(store, OLD, OLD)
    contract = load_contract(default_root())
    store.save(contract)
    judge = Spec(use="rules").digest
    exam = lineage.exam().revise(contract=contract.digest, score_interval=_bounds(12.5))
    found = Rescore(generation=one.digest, judge=judge, exam=exam)
    store.rescoring(one, contract.digest, judge).record(found, "rescore")
    told = _fits(run(tmp_path, "show", "1", "--contract", "v1", COLUMNS="80"))
    assert one.short in told and "12.5 [" in told and f"decided under contract {OLD[:8]}" in told
    table = " ".join(_fits(run(tmp_path, "lineage", "--contract", "v1", COLUMNS="80")).split())
    assert f"rescored from stored episodes: 1 ({one.digest[:7]})" in table and "60.0" not in table
    assert "not shown, 1 of its line without a score under this contract" in table
    assert "examined beside its first successor" in run(tmp_path, "show", "0", "--contract", "v1").stdout


def test_the_report_draws_each_contract_on_a_chart_of_its_own(store: SqlStore) -> None:
    _line(store, OLD, NEW, NEW)
    html = page(store, lineage.FAMILY)
    assert html.count("<figcaption>Score on the sealed holdout") == 2
    for contract in (OLD, NEW):
        assert f"Gain over the parent, by generation under contract {contract[:8]}" in html
    # Only the two generations under one contract are joined by a line, in each of the two charts.
    lines = [part.split('"')[0] for part in html.split('<polyline class="line" points="')[1:]]
    assert [len(line.split()) for line in lines] == [2, 2]
