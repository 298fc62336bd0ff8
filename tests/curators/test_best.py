"""What the default curator keeps, drops and mixes in."""

from __future__ import annotations

import pickle
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loop.core.episode import Split
from loop.core.plan import CuratePlan
from loop.core.training_set import Fingerprints, Row
from loop.curators.best import Best
from loop.curators.decontaminate import fingerprint, overlap, repeats
from tests.curators.rows import BagOfWords, row

EMPTY = Fingerprints()
EMBEDDER = BagOfWords()
# Words that share nothing, so that only what a test plants is a duplicate.
WORDS = (
    *("amber", "birch", "cedar", "delta", "ember", "flint", "grove", "hazel", "iris"),
    *("jade", "kelp", "lotus", "maple", "north", "ocean", "pearl", "quartz"),
)


def curate(candidates: list[Row], plan: CuratePlan, replay: tuple[Row, ...] = (), seed: int = 1):  # type: ignore[no-untyped-def]
    return Best().curate("L1", candidates, replay, plan, EMPTY, EMBEDDER, seed)


def test_the_best_replies_of_a_task_are_kept_up_to_the_cap_and_ties_keep_their_order() -> None:
    rows = [
        row("t", text, score=score, sample=i)
        for i, (text, score) in enumerate(
            [("amber birch", 60.0), ("cedar delta", 90.0), ("ember flint", 90.0), ("grove hazel", 95.0)]
        )
    ]
    kept = curate(rows, CuratePlan(per_task=2)).rows
    assert [r.text for r in kept] == ["cedar delta", "grove hazel"]


def test_the_cap_counts_each_turn_of_a_task_by_itself() -> None:
    rows = [row("t", WORDS[i], turn=i // 2, sample=i) for i in range(4)]
    assert [r.turn for r in curate(rows, CuratePlan(per_task=1)).rows] == [0, 1]


def test_texts_that_differ_only_in_case_and_blanks_are_one() -> None:
    chosen = curate([row("t", "Amber  birch"), row("t", "amber birch ", sample=1)], CuratePlan(per_task=5))
    assert len(chosen.rows) == 1
    assert chosen.dropped == {"duplicate": 1}


def test_the_cap_on_rows_keeps_every_case_and_level() -> None:
    easy = [row(f"e{i}", f"reply {i}", request=f"request {i}") for i in range(50)]
    hard = [row("h1", "one", request="tungsten", level=5), row("h2", "two", request="uranium", level=5)]
    chosen = curate(easy + hard, CuratePlan(max_rows=6, replay_ratio=0.0))
    assert len(chosen.rows) == 6
    assert [r.task for r in chosen.rows if r.level == 5] == ["h1", "h2"]
    assert chosen.dropped["over_max_rows"] == 50 + 2 - 6


def test_replay_fills_the_stated_share_with_no_task_twice_and_none_of_a_fresh_task() -> None:
    fresh = [row(f"f{i}", f"reply {i}", generation=1) for i in range(14)]
    old = tuple(
        [row(f"o{i // 2}", f"old{i}", request=f"old{i}", sample=i) for i in range(20)] + [row("f0", "other words")]
    )
    chosen = curate(fresh, CuratePlan(max_rows=100, replay_ratio=0.3), old)
    ages = Counter(r.generation for r in chosen.rows)
    assert ages == {1: 14, 0: 6}  # 6 / 20 = 0.3
    tasks = [r.task for r in chosen.rows]
    assert len(set(tasks)) == len(tasks)


def test_replay_is_drawn_by_the_seed() -> None:
    fresh = [row(f"f{i}", f"reply {i}") for i in range(10)]
    old = tuple(row(f"o{i}", f"old{i}") for i in range(40))
    plan = CuratePlan(replay_ratio=0.3)
    assert curate(fresh, plan, old, seed=1) == curate(fresh, plan, old, seed=1)
    assert curate(fresh, plan, old, seed=1) != curate(fresh, plan, old, seed=2)


def test_nothing_fresh_means_nothing_to_train_on() -> None:
    assert curate([], CuratePlan(), (row("o", "old"),)).rows == ()


def test_a_holdout_row_is_an_error_wherever_it_comes_from() -> None:
    leaked = row("t", split=Split.HOLDOUT)
    with pytest.raises(ValueError, match="1 holdout rows among the candidates of L1"):
        curate([leaked], CuratePlan())
    with pytest.raises(ValueError, match="holdout"):
        curate([], CuratePlan(), (leaked,))


def test_a_planted_copy_of_a_holdout_text_is_dropped_and_counted_fresh_or_replayed() -> None:
    secret = "Set the reminder talk later for the day when order 7470 arrives, please"
    prints = fingerprint([secret, "Kindly cancel the exam."], EMBEDDER)
    planted = [
        row("in_request", "amber", request=f"Hello! {secret}?"),
        row("in_reply", f"you said: {secret.upper()}", request="birch"),
        row("short", "cedar", request="kindly cancel the exam"),
        row("clean", "delta", request="something else entirely, about wood"),
    ]
    chosen = Best().curate("L1", planted, planted[:1], CuratePlan(), prints, EMBEDDER, 1)
    assert [r.task for r in chosen.rows] == ["clean"]
    assert chosen.dropped == {"holdout": 3, "replay_holdout": 1}


def test_rows_keep_their_provenance_unchanged() -> None:
    rows = [row(f"t{i}", WORDS[i], generation=i % 3) for i in range(5)]
    assert all(r in rows for r in curate(rows, CuratePlan(replay_ratio=0.0)).rows)


def test_the_plug_in_pickles_and_equal_options_have_one_digest() -> None:
    assert pickle.loads(pickle.dumps(Best())).digest == Best().digest


ROWS = st.lists(
    st.builds(
        row,
        task=st.sampled_from([f"t{i}" for i in range(8)]),
        text=st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join),
        request=st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join),
        score=st.sampled_from([50.0, 75.0, 100.0]),
        case=st.sampled_from(["a", "b"]),
        level=st.integers(1, 3),
        turn=st.integers(0, 1),
        sample=st.integers(0, 99),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(
    fresh=ROWS,
    old=ROWS,
    per_task=st.integers(1, 3),
    max_rows=st.integers(1, 20),
    ratio=st.sampled_from([0.0, 0.3, 0.5]),
    secrets=st.lists(st.lists(st.sampled_from(WORDS), min_size=8, max_size=9).map(" ".join), max_size=3),
)
def test_whatever_the_rows_the_set_is_clean_capped_and_repeatable(
    fresh: list[Row], old: list[Row], per_task: int, max_rows: int, ratio: float, secrets: list[str]
) -> None:
    plan = CuratePlan(per_task=per_task, max_rows=max_rows, replay_ratio=ratio)
    prints = fingerprint(secrets, EMBEDDER)
    if any(repeats(r, prints) for r in (*fresh, *old)):
        with pytest.raises(ValueError, match="repeat a sealed case"):
            Best().curate("L1", fresh, old, plan, prints, EMBEDDER, 7)
        return
    chosen = Best().curate("L1", fresh, old, plan, prints, EMBEDDER, 7)
    assert chosen == Best().curate("L1", list(fresh), list(old), plan, prints, EMBEDDER, 7)
    assert len(chosen.rows) <= max_rows
    assert not any(overlap(chosen.rows, prints, EMBEDDER, plan.holdout_similarity))
    texts = [(r.task, r.turn, " ".join(r.text.casefold().split())) for r in chosen.rows]
    assert len(set(texts)) == len(texts)
    assert max(Counter((r.task, r.turn) for r in chosen.rows).values(), default=0) <= max(per_task, 1)
    assert all(r in fresh or r in old for r in chosen.rows)


def test_a_row_that_repeats_a_sealed_case_word_for_word_stops_the_build() -> None:
    sealed = "look up the stock of the bag and tell me how many are left"
    prints = fingerprint([sealed], EMBEDDER)
    clean = row("t1", request="book a table for two at the corner place tonight")
    planted = row("t2", request=sealed.title())
    with pytest.raises(ValueError, match="1 rows of L1 repeat a sealed case"):
        Best().curate("L1", [clean, planted], [], CuratePlan(), prints, EMBEDDER, 1)
    with pytest.raises(ValueError, match="repeat a sealed case"):
        Best().curate("L1", [clean], [planted], CuratePlan(), prints, EMBEDDER, 1)
