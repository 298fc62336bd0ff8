"""MLflow against a real SQLite tracking store: what is shown, and that publishing is idempotent."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from mlflow import MlflowClient
from mlflow.entities import Run

from loop.core.budget import Budget
from loop.core.generation import Generation
from loop.tracking.mlflow import MlflowTracker, serve_command
from loop.tracking.quiet import QuietTracker

from .lineage import lineage, trained

SCORES = {"stage_seconds": {"collect": 100.0, "train": 60.0}, "budgets": {"collect": Budget(generated_tokens=7)}}


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> tuple[MlflowTracker, MlflowClient, list[str]]:
    """The small lineage published in order, to a store of its own."""
    folder = tmp_path_factory.mktemp("tracking")
    tracker = MlflowTracker(uri=f"sqlite:///{folder}/mlflow.db")
    root, child, grandchild = lineage()
    ids = [
        tracker.publish(root, None, (), {}),
        tracker.publish(child, root, (trained(),), SCORES),
        tracker.publish(grandchild, child, (trained(),), SCORES),
    ]
    return tracker, MlflowClient(tracking_uri=tracker.uri, registry_uri=tracker.uri), ids


def test_metrics_are_the_exam_by_axiom_group_environment_and_pass_rate(
    published: tuple[MlflowTracker, MlflowClient, list[str]],
) -> None:
    _, client, ids = published
    metrics = client.get_run(ids[1]).data.metrics
    expected = {
        "score": 44.0, "score_unscored_zero": 43.0, "coverage": 0.975, "cases": 40.0, "gain": 4.0, "gain.low": 1.5,
        "gain.high": 6.5, "axiom/honest_counsel": 61.5, "group/tool_task": 48.0, "environment/tools": 44.0,
        "pass_rate/tools": 0.44, "pass_rate/tools/1": 0.7, "environment_gain/tools": 4.0,
        "axiom_gain/honest_counsel.low": 1.5, "budget/generated_tokens": 12_000.0, "budget/wall_seconds": 321.5,
        "budget_of/collect/generated_tokens": 7.0, "stage_seconds/train": 60.0, "promoted": 1.0,
        "gate/gain/passed": 1.0,
    }  # fmt: skip
    assert {name: metrics.get(name) for name in expected} == expected


def test_a_root_without_an_exam_shows_no_score_and_not_a_zero(
    published: tuple[MlflowTracker, MlflowClient, list[str]],
) -> None:
    _, client, ids = published
    run = client.get_run(ids[0])
    assert not [name for name in run.data.metrics if name.startswith(("score", "gain", "axiom"))]
    assert run.data.tags["macaron.standing"] == "root"
    assert "macaron.parent" not in run.data.tags


def test_tags_carry_the_lineage_and_the_reasons(published: tuple[MlflowTracker, MlflowClient, list[str]]) -> None:
    _, client, ids = published
    _, child, grandchild = lineage()
    tags = client.get_run(ids[2]).data.tags
    assert tags["macaron.digest"] == grandchild.digest
    assert tags["macaron.parent"] == child.digest
    assert (tags["macaron.number"], tags["macaron.family"]) == ("2", "smol")
    assert tags["macaron.standing"] == "rejected"
    assert tags["macaron.reasons"] == "the gain's interval [-1.5, 3.5] holds zero"
    assert client.get_run(ids[2]).data.params["L0.rank"] == "16"


def test_a_specialist_is_a_nested_run_with_its_loss_curve(
    published: tuple[MlflowTracker, MlflowClient, list[str]],
) -> None:
    _, client, ids = published
    (nested,) = _nested(client, ids[1])
    history = client.get_metric_history(nested.info.run_id, "loss")
    assert [(point.step, point.value) for point in history] == [(1, 2.0), (2, 1.5), (3, 1.25)]
    assert nested.data.metrics["tokens_per_second"] == 150.0
    assert nested.data.metrics["peak_bytes"] == 2.0**30
    assert nested.data.metrics["rows"] == 2.0
    assert nested.data.params["learning_rate"] == "0.0002"
    assert nested.info.status == "FINISHED"


def test_publishing_again_returns_the_same_run_and_adds_nothing(
    published: tuple[MlflowTracker, MlflowClient, list[str]],
) -> None:
    tracker, client, ids = published
    root, child, _ = lineage()
    experiment = client.get_run(ids[1]).info.experiment_id
    before = len(client.search_runs([experiment]))
    began = time.perf_counter()
    assert tracker.publish(child, root, (trained(),), SCORES) == ids[1]
    assert time.perf_counter() - began < 3
    assert len(client.search_runs([experiment])) == before == 5
    assert len(client.search_model_versions("name = 'macaron-loop.smol'")) == 3


def test_the_champion_is_the_promoted_one_and_publishing_an_older_one_later_moves_nothing(
    published: tuple[MlflowTracker, MlflowClient, list[str]],
) -> None:
    tracker, client, ids = published
    root, _, _ = lineage()
    tracker.publish(root, None, (), {})
    champion = client.get_model_version_by_alias("macaron-loop.smol", "champion")
    assert champion.run_id == ids[1]
    assert champion.tags["macaron.number"] == "1"
    assert client.get_model_version_by_alias("macaron-loop.smol", "generation-0").run_id == ids[0]


def test_the_version_points_at_the_generation_itself(
    published: tuple[MlflowTracker, MlflowClient, list[str]], tmp_path: Path
) -> None:
    _, client, ids = published
    _, child, _ = lineage()
    file = client.download_artifacts(ids[1], "generation/generation.json", str(tmp_path))
    assert Generation.model_validate_json(Path(file).read_text()).digest == child.digest


def test_changed_content_replaces_the_run_and_an_unfinished_one_is_written_again(tmp_path: Path) -> None:
    tracker = MlflowTracker(uri=f"sqlite:///{tmp_path}/mlflow.db")
    root, child, _ = lineage()
    tracker.publish(root, None, (), {})
    first = tracker.publish(child, root, (trained(),), SCORES)
    second = tracker.publish(child, root, (trained(),), {})
    client = MlflowClient(tracking_uri=tracker.uri, registry_uri=tracker.uri)
    experiment = client.get_run(first).info.experiment_id
    assert {run.info.run_id for run in client.search_runs([experiment]) if _is(run, child)} == {second}
    assert client.get_model_version_by_alias("macaron-loop.smol", "champion").run_id == second
    client.delete_tag(second, "macaron.content")
    third = tracker.publish(child, root, (trained(),), {})
    assert third != second
    assert len(client.search_runs([experiment])) == 3


def test_two_processes_publishing_first_at_once_end_with_one_experiment_and_one_model(tmp_path: Path) -> None:
    code = (
        "import sys; from tests.tracking.lineage import lineage\n"
        "from loop.tracking.mlflow import MlflowTracker\n"
        "t = MlflowTracker(uri=sys.argv[1]); r, c, g = lineage()\n"
        "t.publish(r, None, (), {}) if sys.argv[2] == '0' else t.publish(c, r, (), {})"
    )
    root, uri = Path(__file__).parents[2], f"sqlite:///{tmp_path}/mlflow.db"
    both = [
        subprocess.Popen([sys.executable, "-c", code, uri, which], stderr=subprocess.PIPE, text=True, cwd=root)
        for which in "01"
    ]
    errors = [process.communicate(timeout=120)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], errors
    client = MlflowClient(tracking_uri=uri, registry_uri=uri)
    (experiment,) = [e for e in client.search_experiments() if e.name == "macaron-loop"]
    assert len(client.search_runs([experiment.experiment_id])) == 2
    assert client.get_model_version_by_alias("macaron-loop.smol", "champion").tags["macaron.number"] == "1"


def test_no_telemetry_is_sent_and_the_quiet_tracker_has_no_run() -> None:
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
    assert QuietTracker().publish(lineage()[0], None, (), {}) == ""


def test_the_dashboard_command_names_the_store_the_host_and_the_port() -> None:
    command = serve_command("sqlite:///x.db", 5000)
    assert command[:4] == [sys.executable, "-m", "mlflow", "ui"]
    assert command[command.index("--backend-store-uri") + 1] == "sqlite:///x.db"
    assert command[command.index("--host") + 1] == "127.0.0.1"
    assert command[command.index("--port") + 1] == "5000"


def _nested(client: MlflowClient, run_id: str) -> list[Run]:
    experiment = client.get_run(run_id).info.experiment_id
    return list(client.search_runs([experiment], f"tags.`mlflow.parentRunId` = '{run_id}'"))


def _is(run: Run, generation: Generation) -> bool:
    return bool(run.data.tags.get("macaron.digest") == generation.digest)


def test_the_report_with_its_plots_is_kept_with_the_generation_s_run(
    published: tuple[MlflowTracker, MlflowClient, list[str]], tmp_path: Path
) -> None:
    tracker, client, ids = published
    root, child, _ = lineage()
    page = tmp_path / "report.html"
    for text in ("<p>first</p>", "<p>second</p>"):
        page.write_text(text)
        tracker.attach(child, page)
    assert [artifact.path for artifact in client.list_artifacts(ids[1], "report")] == ["report/report.html"]
    assert Path(client.download_artifacts(ids[1], "report/report.html", str(tmp_path))).read_text() == "<p>second</p>"
    assert not client.list_artifacts(ids[2], "report")
    assert tracker.publish(child, root, (trained(),), SCORES) == ids[1]  # publishing again keeps the run
