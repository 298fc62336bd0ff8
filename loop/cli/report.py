"""``report``: the lineage as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from loop.cli.options import Config, Json, print_json


def report(
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The file; default: report.html in home.")] = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Write one self-contained HTML page: scores, gains, decisions and what they rest on."""
    from loop.app import open_store, write_report
    from loop.core.errors import UserError
    from loop.settings import load_settings

    settings = load_settings(config)
    store = open_store(settings)
    try:
        target = write_report(settings, store, out)
    except OSError as error:
        raise UserError(
            f"cannot write the report to {out or settings.home} ({error.strerror}): name another file with --out"
        ) from error
    size = target.stat().st_size
    print_json({"path": str(target), "bytes": size}) if as_json else print(f"{target} ({size / 1024:.0f} KB)")
