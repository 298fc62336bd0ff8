"""The routing bank itself: large and broad enough, its halves independent, and pinned by a lock."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

from loop.core.episode import Split
from loop.core.errors import UserError
from loop.core.routing import RouteBank, RouteCase, RouteKind
from loop.curators.wording import shingles
from loop.library import contract_versions, default_root, load_harness, load_routing, routing_digest

HOLDOUT = load_routing(default_root(), Split.HOLDOUT)
TRAIN = load_routing(default_root(), Split.TRAIN)
LABELS = ("L0", "L1", "L2", "L3")
N = 5


def grams(texts: list[str], size: int) -> set[str]:
    """Word n-grams of texts that have as many words."""
    found: set[str] = set()
    for text in texts:
        if len(re.findall(r"\w+", text)) >= size:
            found |= shingles(text, size)
    return found


def words(bank: RouteBank) -> list[str]:
    return [text for group in bank.groups for text in (*group.messages, *(text for _, text in group.summaries))]


def test_the_sealed_bank_has_every_kind_of_every_class() -> None:
    cells = Counter((case.label, case.kind) for case in HOLDOUT.cases)
    assert len(HOLDOUT.cases) >= 240 and set(cells) == {(label, kind) for label in LABELS for kind in RouteKind}
    assert min(cells.values()) >= 8
    by_label = Counter(case.label for case in HOLDOUT.cases)
    assert max(by_label.values()) - min(by_label.values()) <= 6
    assert {label for case in HOLDOUT.cases for label in case.wanted} == set(LABELS)
    assert all(len(case.wanted) == 1 or case.kind is RouteKind.SEVERAL for case in HOLDOUT.cases)


def test_no_case_comes_twice() -> None:
    assert len({case.id for case in HOLDOUT.cases}) == len(HOLDOUT.cases) == len(words_of_cases(HOLDOUT.cases))


def words_of_cases(cases: tuple[RouteCase, ...]) -> set[str]:
    return {f"{case.context.previous} {case.context.text}".casefold() for case in cases}


def test_the_open_bank_gives_as_many_balanced_cases_as_are_asked_for() -> None:
    drawn = TRAIN.draw(2000, 7)
    assert len(drawn) == len(words_of_cases(drawn)) == 2000
    assert set(Counter(case.label for case in drawn).values()) == {500}
    assert {(case.label, case.kind) for case in drawn[:400]} == {
        (label, kind) for label in LABELS for kind in RouteKind
    }
    assert not any("{" + name in case.context.text for case in drawn for name in TRAIN.pools)


def test_follow_ups_know_what_went_before_and_first_messages_do_not() -> None:
    for bank in (HOLDOUT, TRAIN):
        for group in bank.groups:
            assert bool(group.previous) == bool(group.summaries) == (group.kind is RouteKind.FOLLOW_UP)
            assert not group.summaries or group.summaries[-1][0] == group.previous


def test_the_halves_share_no_phrase() -> None:
    open_messages = [case.context.message for case in TRAIN.draw(4000, 3)]
    sealed = [case.context.message for case in HOLDOUT.cases]
    assert grams(sealed, N) & grams([*open_messages, *words(TRAIN)], N) == set()
    # Of shorter runs of words they share what any English shares: "how do i", "a pie chart of".
    shorter = grams(sealed, N - 1)
    assert len(shorter & grams([*open_messages, *words(TRAIN)], N - 1)) < 0.01 * len(shorter)
    shared = words_of_cases(HOLDOUT.cases) & words_of_cases(TRAIN.draw(4000, 3))
    assert shared == set()
    assert {text.casefold() for text in sealed} & {text.casefold() for text in open_messages} == set()


def test_the_router_s_exemplars_are_in_neither_half() -> None:
    shown = [exemplar.message for exemplar in load_harness(default_root() / "harnesses" / "seed").routing.exemplars]
    assert shown and grams(shown, 4) & grams([*words(HOLDOUT), *words(TRAIN)], 4) == set()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    shutil.copytree(default_root() / "contracts", tmp_path / "contracts")
    return tmp_path


@pytest.mark.parametrize("half", list(Split))
def test_a_changed_bank_is_refused_by_name(root: Path, half: Split) -> None:
    file = root / "contracts" / "routing" / "v1" / f"{half}.toml"
    file.write_text(file.read_text() + "\n")
    with pytest.raises(UserError, match=rf"Routing bank v1 .*{half}.toml \(edited\)"):
        load_routing(root, half)


def test_a_bank_without_a_lock_is_a_draft_and_a_wrong_value_names_its_place(root: Path) -> None:
    (root / "contracts" / "routing" / "LOCK.toml").unlink()
    file = root / "contracts" / "routing" / "v1" / "holdout.toml"
    file.write_text(file.read_text().replace('kind = "plain"', 'kind = "plane"', 1))
    assert routing_digest(root) != routing_digest(default_root())
    with pytest.raises(UserError, match=r"holdout.toml.*groups\[1\].kind.*plane"):
        load_routing(root, Split.HOLDOUT)


def test_the_bank_is_no_contract_version() -> None:
    assert "routing" not in contract_versions(default_root())
