"""The lineage in MLflow: a run per generation, nested runs per specialist, a registered model per family.

Nothing is read back from here: the store numbers the generations and keeps the scores, so
that this view can be thrown away and written again (``lineage sync-mlflow``). A run is
found by the digest of its generation; publishing the same content again does nothing, and
publishing other content replaces the run.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

# Read when MLflow is imported: this project sends nothing to anybody.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_DISABLE_AGENT_HINT", "true")

from mlflow import MlflowClient
from mlflow.entities import Metric, Param
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException

from loop.core.gate import Standing
from loop.core.generation import Generation
from loop.core.noun import Noun
from loop.ports import Trained
from loop.tracking import figures

CHAMPION = "champion"
SQLITE = "sqlite:///"
METRICS_PER_BATCH = 1000
TEXTS_PER_BATCH = 100
LONGEST_PARAMETER = 6000  # characters; MLflow's limits
LONGEST_TAG = 8000


class MlflowTracker(Noun):
    """Publishes to the tracking server or database at ``uri``.

    ``artifacts`` is where a new experiment keeps its files: a folder or a URL; with None
    that is beside a SQLite file, and elsewhere what the server decides. Raises
    MlflowException when the server refuses.
    """

    uri: str
    experiment: str = "macaron-loop"
    artifacts: str | None = None

    def publish(
        self,
        generation: Generation,
        parent: Generation | None,
        trained: Sequence[Trained],
        scores: Mapping[str, Any],
    ) -> str:
        """Write one generation's run with nested specialist runs; returns the run's id. Idempotent."""
        with _alone(self.uri):
            return self._publish(_client(self.uri), generation, parent, trained, scores)

    def attach(self, generation: Generation, path: Path) -> None:
        """Log a file as an artifact of the generation's run; nothing where it was not published."""
        with _alone(self.uri):
            client = _client(self.uri)
            experiment = _experiment(client, self.experiment, self.artifacts or _beside(self.uri))
            for run in _runs(client, experiment, "macaron.digest", generation.digest, kind="generation"):
                client.log_artifact(run.info.run_id, str(path), "report")

    def _publish(
        self,
        client: MlflowClient,
        generation: Generation,
        parent: Generation | None,
        trained: Sequence[Trained],
        scores: Mapping[str, Any],
    ) -> str:
        wanted = _Run(
            name=f"{generation.family} {generation.number} ({generation.decision.standing})",
            figures=figures.generation_figures(generation, scores),
            step=generation.number,
            parameters=figures.generation_parameters(generation),
            tags=figures.generation_tags(generation, parent),
        )
        specialists = [_specialist(one, generation) for one in trained]
        content = figures.content_digest(wanted, specialists)
        experiment = _experiment(client, self.experiment, self.artifacts or _beside(self.uri))
        model = ".".join(dict.fromkeys((self.experiment, generation.family))).replace("/", "_").replace(":", "_")
        found = _runs(client, experiment, "macaron.digest", generation.digest, kind="generation")
        for run in found:
            if run.data.tags.get("macaron.content") == content and run.info.status == "FINISHED":
                _register(client, model, generation, run.info.run_id)
                return str(run.info.run_id)
        for run in found:
            _remove(client, experiment, run.info.run_id)
        run_id = _write(client, experiment, wanted)
        for specialist in specialists:
            nested = {"mlflow.parentRunId": run_id}
            client.set_terminated(_write(client, experiment, specialist.revise(tags=specialist.tags | nested)))
        client.log_dict(run_id, generation.model_dump(mode="json"), "generation/generation.json")
        _register(client, model, generation, run_id)
        # Last: a run without this tag was not finished, and is written again.
        client.set_tag(run_id, "macaron.content", content)
        client.set_terminated(run_id)
        return run_id


def serve_command(uri: str, port: int, host: str = "127.0.0.1") -> list[str]:
    """The command line of the dashboard over a tracking URI; it runs until it is interrupted."""
    command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", uri]
    return [*command, "--host", host, "--port", str(port), "--workers", "1"]


class _Run(Noun):
    """A run as it is to be; ``curves`` holds a value per step from 1."""

    name: str
    figures: dict[str, float]
    step: int
    parameters: dict[str, str]
    tags: dict[str, str]
    curves: dict[str, tuple[float, ...]] = {}


def _specialist(trained: Trained, generation: Generation) -> _Run:
    return _Run(
        name=f"{generation.family} {generation.number} {trained.adapter.label} {trained.adapter.role}",
        figures=figures.specialist_figures(trained),
        step=trained.steps_done,
        parameters=figures.specialist_parameters(trained),
        tags=figures.specialist_tags(trained, generation),
        curves=figures.specialist_curves(trained),
    )


@contextlib.contextmanager
def _alone(uri: str) -> Iterator[None]:
    """One publisher at a time for a SQLite file: two first uses would both migrate it; a server sees to itself."""
    if not uri.startswith(SQLITE):
        yield
        return
    path = Path(uri.removeprefix(SQLITE))
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.with_name(path.name + ".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _beside(uri: str) -> str | None:
    """The folder of artifacts that goes with a SQLite file; None for anything else."""
    if not uri.startswith(SQLITE):
        return None
    return Path(uri.removeprefix(SQLITE)).absolute().with_name("mlflow-artifacts").as_uri()


def _client(uri: str) -> MlflowClient:
    """A client of that URI only; MLflow's account of its own tables is not for our users."""
    for name in ("mlflow.store.db.utils", "alembic.runtime.migration", "alembic.runtime.plugins"):
        logging.getLogger(name).setLevel(logging.WARNING)
    return MlflowClient(tracking_uri=uri, registry_uri=uri)


def _experiment(client: MlflowClient, name: str, artifacts: str | None) -> str:
    """The experiment's id, made when absent; two first uses at once end with one."""
    found = client.get_experiment_by_name(name)
    if found is None:
        try:
            return str(client.create_experiment(name, artifact_location=artifacts))
        except MlflowException:
            found = client.get_experiment_by_name(name)
            if found is None:
                raise
    if found.lifecycle_stage == "deleted":
        client.restore_experiment(found.experiment_id)
    return str(found.experiment_id)


def _runs(client: MlflowClient, experiment: str, tag: str, value: str, kind: str) -> list[Any]:
    query = f"tags.`{tag}` = '{value}' and tags.`macaron.kind` = '{kind}'"
    return list(client.search_runs([experiment], query))


def _remove(client: MlflowClient, experiment: str, run_id: str) -> None:
    """Delete a run and its nested runs (nested first: a run that is left is found again)."""
    for nested in client.search_runs([experiment], f"tags.`mlflow.parentRunId` = '{run_id}'"):
        client.delete_run(nested.info.run_id)
    client.delete_run(run_id)


def _write(client: MlflowClient, experiment: str, wanted: _Run) -> str:
    """Create a run and log all of it, in as few calls as MLflow's limits allow."""
    now = int(time.time() * 1000)
    tags = {name: text[:LONGEST_TAG] for name, text in wanted.tags.items()}
    run_id = str(client.create_run(experiment, start_time=now, tags=tags, run_name=wanted.name).info.run_id)
    parameters = [Param(name, text[:LONGEST_PARAMETER]) for name, text in sorted(wanted.parameters.items())]
    for start in range(0, len(parameters), TEXTS_PER_BATCH):
        client.log_batch(run_id, params=parameters[start : start + TEXTS_PER_BATCH])
    metrics = list(_metrics(wanted, now))
    for start in range(0, len(metrics), METRICS_PER_BATCH):
        client.log_batch(run_id, metrics=metrics[start : start + METRICS_PER_BATCH])
    return run_id


def _metrics(wanted: _Run, now: int) -> Iterator[Metric]:
    for name, value in sorted(wanted.figures.items()):
        yield Metric(name, value, now, wanted.step)
    for name, curve in sorted(wanted.curves.items()):
        for step, value in enumerate(curve, start=1):
            yield Metric(name, value, now, step)


def _register(client: MlflowClient, name: str, generation: Generation, run_id: str) -> None:
    """A version of the family's registered model that points at the run; promoted ones get aliases.

    MLflow's version number means nothing here: the generation's number is a tag and an alias.
    """
    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    version = _version(client, name, generation, run_id)
    if generation.decision.standing is Standing.REJECTED:
        return
    client.set_registered_model_alias(name, f"generation-{generation.number}", version.version)
    aliases = client.get_registered_model(name).aliases
    champion = client.get_model_version(name, aliases[CHAMPION]) if CHAMPION in aliases else None
    if champion is None or int(champion.tags["macaron.number"]) <= generation.number:
        client.set_registered_model_alias(name, CHAMPION, version.version)


def _version(client: MlflowClient, name: str, generation: Generation, run_id: str) -> ModelVersion:
    """The version of this generation and run; versions of its earlier runs are removed."""
    query = f"name = '{name}' and tags.`macaron.digest` = '{generation.digest}'"
    found = list(client.search_model_versions(query))
    kept = next((version for version in found if version.run_id == run_id), None)
    for version in found:
        if version is not kept:
            client.delete_model_version(name, version.version)
    if kept is not None:
        return kept
    tags = {
        "macaron.digest": generation.digest,
        "macaron.number": str(generation.number),
        "macaron.standing": generation.decision.standing.value,
    }
    source = f"{client.get_run(run_id).info.artifact_uri}/generation"
    return client.create_model_version(
        name, source, run_id, tags=tags, description=figures.generation_note(generation, None), await_creation_for=0
    )
