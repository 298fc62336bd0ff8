"""``judge calibrate`` as people run it: 80 columns, a stored noun, and a run that minds it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loop.app import open_judge, open_store
from loop.core.errors import UserError
from loop.core.plan import Spec
from loop.judges.calibration import Calibration, calibrate, specimens
from loop.judges.llm import LlmJudge
from loop.settings import Settings, load_settings
from tests.cli.test_bad_input import one_sentence, run
from tests.judges.endpoint import Said, grade, serve
from tests.judges.judged import judge_at, judged_contract

ROOT = Path(__file__).parents[2]
SECRET = "sk-not-to-be-seen"


def by_length(number: int, body: dict[str, Any]) -> Said:
    """A grader that likes long records."""
    return grade(min(1.0, len(body["messages"][1]["content"]) / 2000))


def configure(home: Path, *urls: str, calibration: str = "") -> Path:
    """Settings with one endpoint a url, and a key by reference."""
    (home / "key").write_text(SECRET)
    endpoints = ", ".join(
        f'{{ url = "{url}", model = "provider/judge-model-{n}", family = "qwen", api_key = "file:key" }}'
        for n, url in enumerate(urls)
    )
    lines = [
        "[judge]",
        'use = "llm"',
        "[judge.options]",
        f"endpoints = [{endpoints}]",
        "samples = 1",
        "backoff = 0.001",
    ]
    (home / "judge.toml").write_text("\n".join([*lines, f'calibration = "{calibration}"', ""]))
    return home / "judge.toml"


def test_a_calibration_is_printed_stored_and_compared_with_the_pinned_one(tmp_path: Path) -> None:
    with serve(by_length) as served:
        file = configure(tmp_path, served.url, served.url)
        first = run(tmp_path, "judge", "calibrate", "--config", str(file), "--each", "1", COLUMNS="80")
        assert first.returncode == 0, first.stderr
        assert max(len(line) for line in first.stdout.splitlines() if not line.startswith("calibration =")) <= 80
        pinned = first.stdout.rsplit('"', 2)[1]
        file = configure(tmp_path, served.url, served.url, calibration=pinned)
        second = run(tmp_path, "judge", "calibrate", "--config", str(file), "--each", "1", "--json")
    document = json.loads(second.stdout)
    store = open_store(load_settings(file).model_copy(update={"home": tmp_path}))
    found = store.load(Calibration, pinned)
    assert found.digest == document["calibration"]["digest"] and len(found.figures) == 2
    # Both judges like the same things, and nothing moved between two calibrations.
    assert found.agreement == pytest.approx(1.0)
    assert document["drift"] and all(row["before"] == row["after"] for row in document["drift"])
    assert served.headers[0]["Authorization"] == f"Bearer {SECRET}"
    kept = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name != "key"]
    assert not any(SECRET.encode() in data for data in (*kept, first.stdout.encode(), second.stdout.encode()))


def test_what_a_calibration_would_cost_can_be_asked_first(tmp_path: Path) -> None:
    with serve(by_length) as served:
        file = configure(tmp_path, served.url, served.url)
        arguments = ("judge", "calibrate", "-c", str(file), "--each", "1", "--json")
        planned = json.loads(run(tmp_path, *arguments, "--dry-run").stdout)
        assert served.bodies == []
        done = json.loads(run(tmp_path, *arguments).stdout)
    assert planned["requests"] == done["calibration"]["calls"] == len(served.bodies)


def test_what_cannot_be_calibrated_is_said_in_one_sentence(tmp_path: Path) -> None:
    one_sentence(run(tmp_path, "judge", "calibrate"), 2, "rules", 'use = "llm"')
    with serve(by_length) as served:
        gone = served.url
    file = configure(tmp_path, gone)
    one_sentence(run(tmp_path, "judge", "calibrate", "-c", str(file)), 2, "provider/judge-model-0", "connection failed")
    (tmp_path / "key").unlink()
    one_sentence(run(tmp_path, "judge", "calibrate", "-c", str(file)), 2, "file:key")
    file.write_text(file.read_text().replace("file:key", SECRET))
    done = run(tmp_path, "judge", "calibrate", "-c", str(file))
    one_sentence(done, 2, "env:NAME or file:PATH")
    assert SECRET not in done.stderr


def test_a_run_opens_a_judge_that_grades_as_it_did_and_refuses_one_that_drifted(tmp_path: Path) -> None:
    settings, contract, answer = Settings(home=tmp_path), judged_contract(samples=1), [1.0]
    store = open_store(settings)
    with serve(lambda number, body: grade(answer[0])) as served:
        judge = judge_at(served.url)
        found = calibrate(contract, judge, specimens(contract, judge))
        store.save(found)
        options = judge.revise(calibration=found.digest).model_dump(mode="json", exclude={"rules"})
        chosen = settings.model_copy(update={"judge": Spec(use="llm", options=options)})
        assert open_judge(chosen, store, contract).model_dump()["calibration"] == found.digest
        answer[0] = 0.4
        with pytest.raises(UserError, match="drifted"):
            open_judge(chosen, store, contract)


@pytest.mark.parametrize("command", [("judge",), ("judge", "calibrate")])
def test_its_help_fits_80_columns(tmp_path: Path, command: tuple[str, ...]) -> None:
    done = run(tmp_path, *command, "--help", COLUMNS="80")
    assert done.returncode == 0 and max(map(len, done.stdout.splitlines())) <= 80


def test_the_example_file_names_two_judges_and_no_key() -> None:
    judge = LlmJudge.model_validate(load_settings(ROOT / "examples" / "judged.toml").judge.options)
    assert judge.models == ("Qwen/Qwen3-8B", "gpt-4.1-mini")
    assert judge.endpoints[1].api_key == "env:OPENAI_API_KEY"
