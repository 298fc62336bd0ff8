"""The ``macaron-loop`` command: the groups, and the boundary where errors become exit codes."""

from __future__ import annotations

import sys
import warnings

import typer

from loop import __version__
from loop.cli import (
    adapters,
    base,
    chat,
    consent,
    contract,
    conversations,
    database,
    doctor,
    engine,
    episode,
    experiment,
    figures,
    harness,
    holdout,
    imports,
    judge,
    keys,
    lineage,
    manifest,
    mlflow,
    nightly,
    policy,
    report,
    rescore,
    routing,
    run,
    schedule,
    serve,
)
from loop.core.errors import LoopError

app = typer.Typer(
    name="macaron-loop",
    help="Grow generations of LoRA specialists and their harness, and see whether gains compound.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("run")(run.run)
app.add_typer(experiment.app, name="experiment")
app.command("nightly", epilog=nightly.EPILOG)(nightly.nightly)
app.command("schedule")(schedule.schedule)
app.command("status")(lineage.status)
app.add_typer(lineage.app, name="lineage")
app.command("show")(lineage.show)
app.command("why")(lineage.why)
app.command("episode")(episode.episode)
app.command("report")(report.report)
app.command("rescore")(rescore.rescore)
app.command("manifest")(manifest.manifest)
app.command("replay")(manifest.replay)
app.command("noise")(manifest.noise)
app.command("chat")(chat.chat)
app.command("serve")(serve.serve)
app.add_typer(keys.app, name="keys")
app.add_typer(consent.app, name="consent")
app.add_typer(conversations.app, name="conversations")
app.add_typer(engine.app, name="engine")
app.command("rollback")(policy.rollback)
app.add_typer(figures.app, name="figures")
app.add_typer(holdout.app, name="holdout")
app.add_typer(contract.app, name="contract")
app.add_typer(judge.app, name="judge")
app.add_typer(harness.app, name="harness")
app.add_typer(routing.app, name="routing")
adapters.app.command("import")(imports.import_)
adapters.app.command("export")(imports.export)
adapters.app.command("examine")(imports.examine)
app.add_typer(adapters.app, name="adapters")
app.add_typer(base.app, name="base")
app.add_typer(database.app, name="db")
app.command("mlflow")(mlflow.mlflow)
app.command("doctor")(doctor.doctor)


def _version(wanted: bool) -> None:
    if wanted:
        print(f"macaron-loop {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """Take generation N, let it learn from its own scored experience, and examine N+1."""


def main() -> None:
    """Run the command; one sentence and the error's exit code when it fails on purpose."""
    warnings.simplefilter("ignore", FutureWarning)  # libraries' notes to each other, not to the user
    try:
        app()
    except LoopError as error:
        _say(str(error))
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        _say("interrupted; what was recorded is kept, the same command resumes")
        sys.exit(130)


def _say(text: str) -> None:
    print(f"macaron-loop: {text}", file=sys.stderr)


if __name__ == "__main__":
    main()
