"""What is written of the place an exam was played in, and what is withheld."""

from __future__ import annotations

import hashlib
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from pydantic import JsonValue

from loop.core.manifest import Hardware, Surroundings
from loop.core.noun import digest_of
from loop.pipeline.surroundings import SurveyJob, code_digest, differences, public, survey
from tests import fakes


def _place(**changes: object) -> Surroundings:
    hardware = Hardware(cpu="one", features=("avx2",), cores=2)
    made = Surroundings(
        version="1", code="c" * 64, python="CPython 3.11.7", system="Linux x86_64", packages={"torch": "2.13.0"},
        hardware=hardware, engine={"dtype": "auto"},
    )  # fmt: skip
    return made.revise(**changes)


def test_a_survey_names_the_versions_that_are_installed_here() -> None:
    found = survey(SurveyJob(fakes.ScriptedEngine(), fakes.RecordJudge(), (fakes.TwoTurns(),)))
    assert found.python.endswith(".".join(str(part) for part in sys.version_info[:3]))
    assert found.packages["torch"] == version("torch")
    assert found.engine == {"breaks": False}
    assert found.hardware.cpu and found.hardware.cores >= 1


def test_each_changed_dependency_is_named_with_both_values() -> None:
    there = _place()
    here = _place(
        packages={"torch": "2.12.0", "peft": "0.21.2"}, hardware=there.hardware.revise(cpu="other", gpus=("H200",))
    )
    assert differences(there, here) == (
        "GPUs: none -> H200",
        "package peft: absent -> 0.21.2",
        "package torch: 2.13.0 -> 2.12.0",
        "processor: one, 2 cores -> other, 2 cores",
    )
    assert differences(there, there) == ()


def test_the_code_digest_moves_with_a_file_and_its_name_and_not_with_what_python_compiled(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    before = code_digest(tmp_path)
    assert before == digest_of([("a.py", hashlib.sha256(b"x = 1\n").hexdigest())])
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "a.pyc").write_bytes(b"compiled")
    assert code_digest(tmp_path) == before
    (tmp_path / "a.py").write_text("x = 2\n")
    assert code_digest(tmp_path) != before
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / "a.py").rename(tmp_path / "b.py")
    assert code_digest(tmp_path) != before


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("model", "org/name", "org/name"),
        ("max_tokens", 64, 64),
        ("url", "https://ann:pw@judge.example/v1?key=abc", "https://judge.example/v1"),
        ("url", "http://[broken", "withheld"),
        ("python", "/srv/ann/venv/bin/python", "withheld"),
        ("python", "C:\\Users\\ann\\python.exe", "withheld"),
        ("python", "~ann/bin/python", "withheld"),
        ("folder", ["data", "/srv/ann"], ["data", "withheld"]),
        ("api_key", "sk-123", "withheld"),
        ("api_key", "env:JUDGE_KEY", "env:JUDGE_KEY"),
        ("api_key", "file:/srv/key", "withheld"),
        ("headers", {"x": "sk-123"}, "withheld"),
        ("nested", {"password": "pw", "size": 3}, {"password": "withheld", "size": 3}),
    ],
)
def test_paths_secrets_and_users_are_withheld(name: str, value: JsonValue, shown: JsonValue) -> None:
    assert public({name: value}) == {name: shown}
