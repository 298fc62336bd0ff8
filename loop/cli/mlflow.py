"""``macaron-loop mlflow``: open the dashboard on this lineage's runs."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from loop.cli.options import Config


def mlflow(
    config: Config = None,
    port: Annotated[int, typer.Option("--port", "-p", help="Port to listen on.")] = 5000,
    host: Annotated[str, typer.Option("--host", help="Address to bind; local only by default.")] = "127.0.0.1",
) -> None:
    """Serve MLflow's own pages for the runs of these settings; ends with Ctrl-C."""
    from loop.core.errors import UserError
    from loop.settings import load_settings
    from loop.tracking.mlflow import serve_command

    settings = load_settings(config)
    if settings.tracking == "off":
        raise UserError("tracking is off: set tracking_uri, then run `macaron-loop lineage sync-mlflow`")
    settings.home.mkdir(parents=True, exist_ok=True)
    command = serve_command(settings.tracking, port, host)
    print(f"MLflow on http://{host}:{port}  (Ctrl-C ends it)", flush=True)
    os.execvp(command[0], command)
