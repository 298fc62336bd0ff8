"""Rolling back, and the ledger of the holdout, at the command line on a real store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loop.app import open_contract, open_store
from loop.core.gate import Standing
from loop.settings import Settings
from loop.store.sql import SqlStore
from tests.cli.test_bad_input import one_sentence, run
from tests.store import lineage


@pytest.fixture
def store(tmp_path: Path) -> SqlStore:
    """Generations 0 and 1, and a rejected 2, in the default database of a home."""
    store = open_store(Settings(home=tmp_path))
    root = lineage.root()
    child = lineage.child(root)
    store.register(root, None)
    attempt = store.begin(lineage.FAMILY, root, lineage.plan())
    store.open_holdout(attempt, root.digest, "exam of the successor")
    store.open_holdout(attempt, root.digest, "exam of the successor")
    store.register(child, attempt)
    store.register(lineage.child(child, "worse", standing=Standing.REJECTED), None)
    return store


def test_a_rollback_moves_the_champion_and_keeps_everything(tmp_path: Path, store: SqlStore) -> None:
    assert [policy.number for policy in store.status(lineage.FAMILY).policies] == [1]
    done = run(tmp_path, "rollback", "0", "--reason", "it forgot the calendar")
    assert done.returncode == 0 and "local/champion -> generation 0" in done.stdout
    assert [policy.number for policy in store.status(lineage.FAMILY).policies] == [0]
    assert len(store.generations(lineage.FAMILY)) == 3
    moves = store.policy_history(lineage.FAMILY)
    assert [(move.number, move.why) for move in moves][-1] == (0, "it forgot the calendar")
    assert run(tmp_path, "rollback", "1").returncode == 0
    assert [policy.number for policy in store.status(lineage.FAMILY).policies] == [1]
    assert len(store.policy_history(lineage.FAMILY)) == len(moves) + 1


def test_a_rollback_behind_another_owners_adapter_moves_that_owners_record_too(tmp_path: Path, store: SqlStore) -> None:
    child = store.generation(lineage.FAMILY, 1)
    pair = lineage.pair(lineage.adapter("theirs", owner="ada"))
    store.register(lineage.child(child).revise(pair=pair), None)
    assert {policy.owner: policy.number for policy in store.status(lineage.FAMILY).policies} == {"ada": 2, "local": 1}
    assert run(tmp_path, "rollback", "1").returncode == 0
    assert store.champion(lineage.FAMILY) == child


def test_what_cannot_be_the_champion_is_refused(tmp_path: Path, store: SqlStore) -> None:
    rejected = store.generations(lineage.FAMILY)[-1]
    one_sentence(run(tmp_path, "rollback", rejected.digest[:12]), 2, "rejected", rejected.short)
    one_sentence(run(tmp_path, "rollback", "7"), 2, "7")
    with store.lease(lineage.FAMILY, "a nightly run"):
        one_sentence(run(tmp_path, "rollback", "0"), 3, "a nightly run")
    assert [policy.number for policy in store.status(lineage.FAMILY).policies] == [1]


def test_the_ledger_lists_each_opening(tmp_path: Path, store: SqlStore) -> None:
    done = run(tmp_path, "holdout", "ledger", COLUMNS="80")
    assert done.returncode == 0 and "exam of the successor" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "panel 0: 2 of 20 looks are used" in done.stdout
    rows = json.loads(run(tmp_path, "holdout", "ledger", "--json").stdout)
    assert [(row["why"], row["times"]) for row in rows] == [("exam of the successor", 2)]


def test_an_unopened_holdout_says_so(tmp_path: Path) -> None:
    done = run(tmp_path, "holdout", "ledger")
    assert done.returncode == 0 and "never opened" in done.stdout


def test_a_plan_that_cannot_see_the_effect_asked_for_is_refused_before_anything_is_spent(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    store = open_store(settings)
    root = lineage.root()
    child = lineage.child(root)
    assert child.exam is not None and child.exam.gain is not None
    gain = child.exam.gain.revise(low=-2.0, high=10.0, n=122)
    child = child.revise(exam=child.exam.revise(contract=open_contract(settings).digest, gain=gain))
    store.register(root, None)
    store.register(child, None)
    shown = json.loads(run(tmp_path, "run", "--generation", "1", "--dry-run", "--json").stdout)["detectable"]
    # by hand: half of 12 points over 1.96 is an error of 3.06; look 2 may use 0.05 x 6 / (2 pi)^2 = 0.0076 of alpha,
    # whose quantile is 2.43; with 0.84 for the power that is 3.27 errors
    assert shown["effect"] == pytest.approx(3.27 * 3.06, abs=0.05) and shown["exams"] == 1
    refused = run(tmp_path, "run", "--generation", "1", MACARON_SIZES__GATE__EFFECT="5")
    one_sentence(refused, 2, "sees gains from 10.0 points", "asks for 5", "--underpowered")
    assert store.attempts(lineage.FAMILY) == ()
