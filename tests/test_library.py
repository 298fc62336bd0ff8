"""Contracts and harnesses from their files: what is read, what is refused, and how that is said."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from loop.core.errors import UserError
from loop.library import (
    contract_versions,
    default_root,
    draft,
    harness_names,
    load_contract,
    load_harness,
    publish,
    published,
)

NOBODY = 65_534


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A copy of the contracts and harnesses, unpublished."""
    for name in ("contracts", "harnesses"):
        shutil.copytree(default_root() / name, tmp_path / name)
    (tmp_path / "contracts" / "LOCK.toml").unlink(missing_ok=True)
    return tmp_path


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def refusal(call: object, *arguments: object) -> str:
    assert callable(call)
    with pytest.raises(UserError) as caught:
        call(*arguments)
    told = str(caught.value)
    assert "\n" not in told and "Traceback" not in told
    return told


def test_the_shipped_contract_and_harness_load() -> None:
    contract = load_contract(default_root())
    assert len(contract.axioms) == 6
    assert len([s for s in contract.scenarios if s.environment == "scenarios"]) == 7
    harness = load_harness(default_root() / "harnesses" / "seed")
    assert [prompt.label for prompt in harness.prompts] == ["L0", "L1", "L2", "L3"]
    assert harness.routing.fallback == "L0" and harness.secrets == {}
    assert harness == load_harness(default_root() / "harnesses" / "seed" / "harness.toml")
    assert "seed" in harness_names(default_root()) and "v1" in contract_versions(default_root())


def test_only_two_scenarios_and_the_axioms_names_are_marked_as_macarons() -> None:
    contract = load_contract(default_root())
    theirs = {s.id for s in contract.scenarios if s.provenance == "macaron-v1"}
    assert theirs == {"emotional_support", "tool_task"}
    assert {a.name_provenance for a in contract.axioms} == {"macaron-v1"}
    assert {a.definition_provenance for a in contract.axioms} == {"this-project"}


def test_changing_one_byte_makes_another_version(root: Path) -> None:
    before = load_contract(root).folder_digest
    assert load_contract(root).folder_digest == before
    path = root / "contracts/v1/scenarios/advice.toml"
    path.write_bytes(path.read_bytes() + b"\n")
    assert load_contract(root).folder_digest != before


def test_hidden_files_of_editors_are_no_part_of_a_contract(root: Path) -> None:
    before = load_contract(root).folder_digest
    (root / "contracts/v1/scenarios/.advice.toml.swp").write_text("x")
    assert load_contract(root).folder_digest == before


def test_a_published_contract_that_was_edited_is_refused_with_the_files_named(root: Path) -> None:
    publish(root, "v1", lambda contract: ())
    load_contract(root)
    edit(root / "contracts/v1/scenarios/advice.toml", "weight = 1", "weight = 2")
    (root / "contracts/v1/scenarios/extra.md").write_text("x")
    (root / "contracts/v1/scenarios/exploration.toml").unlink()
    told = refusal(load_contract, root)
    assert "scenarios/advice.toml (edited)" in told
    assert "scenarios/extra.md (new)" in told
    assert "scenarios/exploration.toml (missing)" in told
    assert "new version" in told and "tool_task" not in told


def test_a_lock_that_was_edited_itself_is_refused(root: Path) -> None:
    lock = publish(root, "v1", lambda contract: ())
    edit(root / "contracts/LOCK.toml", lock.folder, "0" * 64)
    assert "LOCK.toml itself" in refusal(load_contract, root)


def test_publishing_needs_a_clean_exam_and_twice_is_once(root: Path) -> None:
    told = refusal(publish, root, "v1", lambda contract: ("a.b errs", "c", "d", "e"))
    assert "4 checks err: a.b errs; c; d and 1 more" in told
    assert published(root) == {}
    first = publish(root, "v1", lambda contract: ())
    written = (root / "contracts/LOCK.toml").read_bytes()
    assert publish(root, "v1", lambda contract: ("never asked",)) == first
    assert (root / "contracts/LOCK.toml").read_bytes() == written
    assert first.folder == load_contract(root).folder_digest
    assert published(root) == {"v1": first}


def test_a_second_version_extends_the_lock_and_leaves_the_first(root: Path) -> None:
    first = publish(root, "v1", lambda contract: ())
    shutil.copytree(root / "contracts/v1", root / "contracts/v2")
    assert "make them the same" in refusal(load_contract, root, "v2")
    edit(root / "contracts/v2/contract.toml", 'version = "v1"', 'version = "v2"')
    second = publish(root, "v2", lambda contract: ())
    assert published(root) == {"v1": first, "v2": second} and first.folder != second.folder


def test_malformed_toml_is_told_with_file_and_line(root: Path) -> None:
    path = root / "contracts/v1/scenarios/advice.toml"
    edit(path, 'id = "advice"', 'id = "advice')
    told = refusal(load_contract, root)
    assert "advice.toml is not valid TOML" in told and "line" in told and "correct that line" in told


def test_an_unknown_field_is_told_with_file_line_and_place(root: Path) -> None:
    path = root / "contracts/v1/scenarios/advice.toml"
    text = path.read_text(encoding="utf-8")
    line = text.splitlines().index('id = "advice"') + 1
    path.write_text(text.replace('id = "advice"', 'id = "advice"\nmargni = 3', 1), encoding="utf-8")
    assert f"advice.toml, line {line + 1}: unknown field 'margni'; correct it" in refusal(load_contract, root)


def test_a_wrong_value_is_told_with_its_place_and_what_was_found(root: Path) -> None:
    edit(root / "contracts/v1/scenarios/advice.toml", "weight = 1", "weight = -1")
    told = refusal(load_contract, root)
    assert "criteria[" in told and "].weight" in told and "greater than 0" in told and "found -1" in told


def test_an_unknown_axiom_and_an_unknown_kind_of_check_are_refused(root: Path) -> None:
    path = root / "contracts/v1/scenarios/advice.toml"
    whole = path.read_text(encoding="utf-8")
    path.write_text(whole.replace('"honest_counsel"', '"honest_council"'), encoding="utf-8")
    assert "lists unknown axioms ['honest_council']" in refusal(load_contract, root)
    path.write_text(whole.replace('kind = "mentions"', 'kind = "mentionz"', 1), encoding="utf-8")
    assert "mentionz" in refusal(load_contract, root)
    first = whole.index('axiom = "')
    end = whole.index("\n", first)
    path.write_text(whole[:first] + 'axiom = "kindness"' + whole[end:], encoding="utf-8")
    assert "axioms it does not list: ['kindness']" in refusal(load_contract, root)


def test_missing_versions_files_and_bytes_that_are_no_text_are_refused(root: Path) -> None:
    assert "there is: v1" in refusal(load_contract, root, "v9")
    assert "does not exist" in refusal(load_harness, root / "harnesses/seed/none.toml")
    (root / "contracts/v1/scenarios/advice.toml").write_bytes(b"\xff\xfe")
    assert "is not UTF-8 text" in refusal(load_contract, root)
    shutil.rmtree(root / "contracts/v1/banks")
    (root / "contracts/v1/scenarios/advice.toml").unlink()
    assert "no banks/*.toml" in refusal(load_contract, root)


def test_a_harness_with_a_secrets_value_or_a_stranger_field_is_refused(root: Path) -> None:
    path = root / "harnesses/seed/harness.toml"
    whole = path.read_text(encoding="utf-8")
    path.write_text(whole.replace("[secrets]", '[secrets]\nkey = "hunter2"'), encoding="utf-8")
    assert "references (env:NAME or file:PATH)" in refusal(load_harness, path)
    path.write_text(whole.replace('fallback = "L0"', 'fallback = "L9"'), encoding="utf-8")
    assert "labels without a prompt: L9" in refusal(load_harness, path)
    path.write_text(whole.replace("threshold = 0.0", "treshold = 0.0"), encoding="utf-8")
    told = refusal(load_harness, path)
    assert "harness.toml, line" in told and "unknown field 'routing.treshold'" in told


def test_a_wrong_prompt_file_is_told_by_its_own_name(root: Path) -> None:
    edit(root / "harnesses/seed/prompts/L3.toml", "max_tokens = 64", "max_tokens = 0")
    told = refusal(load_harness, root / "harnesses/seed")
    assert "L3.toml, line" in told and "sampling.max_tokens" in told and "found 0" in told


def test_a_harness_reads_no_file_outside_its_folder(root: Path) -> None:
    edit(root / "harnesses/seed/harness.toml", '"prompts/L3.toml"', '"../../contracts/v1/contract.toml"')
    assert "outside its folder" in refusal(load_harness, root / "harnesses/seed")


def test_exemplars_may_be_tables_with_messages(root: Path) -> None:
    prompt = root / "harnesses/seed/prompts/L3.toml"
    prompt.write_text(
        'label = "L3"\nrole = "genui"\nsystem = "s"\n\n[[exemplars]]\nmessages = ['
        '{ role = "user", content = "a" }, { role = "assistant", content = "b" }]\n',
        encoding="utf-8",
    )
    shots = load_harness(root / "harnesses/seed").prompt("L3").exemplars
    assert [[message.content for message in shot] for shot in shots] == [["a", "b"]]


def test_a_draft_is_the_same_contract_under_another_name_and_not_published(root: Path) -> None:
    publish(root, "v1", lambda contract: [])
    made = draft(root, "v2", "v1")
    assert made.version == "v2" and made.scenarios == load_contract(root, "v1").scenarios
    assert made.digest != load_contract(root, "v1").digest
    assert set(published(root)) == {"v1"} and contract_versions(root) == ("v1", "v2")
    assert sorted(path.name for path in (root / "contracts").iterdir()) == ["LOCK.toml", "routing", "v1", "v2"]
    edit(root / "contracts" / "v2" / "contract.toml", 'title = "', 'title = "Second: ')
    assert load_contract(root, "v2").title.startswith("Second: ")


@pytest.mark.parametrize("name", ["2", "V2", "v0", "v2.1", "v2/../v1", "../v2", "v2 ", "", "LOCK", "v2-"])
def test_an_ill_named_draft_is_refused(root: Path, name: str) -> None:
    assert "v2-strict" in refusal(draft, root, name, "v1")
    assert contract_versions(root) == ("v1",)


def test_a_draft_over_a_version_that_is_there_or_was_published_is_refused(root: Path) -> None:
    draft(root, "v2", "v1")
    assert "taken" in refusal(draft, root, "v2", "v1")
    publish(root, "v2", lambda contract: [])
    shutil.rmtree(root / "contracts" / "v2")
    assert "taken" in refusal(draft, root, "v2", "v1")
    assert "v7" in refusal(draft, root, "v3", "v7")


@contextmanager
def without_rights() -> Iterator[None]:
    """Give up the superuser's right to write everywhere, where this process has it."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(before)


def test_a_draft_where_data_is_read_only_says_where_to_go() -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        shutil.copytree(default_root() / "contracts", root / "contracts")
        root.chmod(0o755)
        (root / "contracts").chmod(0o555)
        with without_rights():
            told = refusal(draft, root, "v2", "v1")
        (root / "contracts").chmod(0o755)
        assert "source checkout" in told and "Permission denied" in told and contract_versions(root) == ("v1",)
