"""``macaron-loop schedule``: print what starts ``nightly`` every day, for systemd, cron or Kubernetes."""

from __future__ import annotations

import shutil
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from loop.cli.nightly import Misfire
from loop.cli.options import Json, print_json


class Format(StrEnum):
    """Who starts it."""

    SYSTEMD = "systemd"
    CRON = "cron"
    KUBERNETES = "kubernetes"


def schedule(
    at: Annotated[str, typer.Option(help="The daily start, e.g. 02:00.")],
    form: Annotated[Format, typer.Option("--format", help="Who starts it.")],
    options: Annotated[
        list[str] | None, typer.Argument(metavar="NIGHTLY_OPTIONS", help="Passed on to nightly, after --.")
    ] = None,
    timezone: Annotated[str | None, typer.Option(help="Zone of the start; Kubernetes: UTC unless given.")] = None,
    misfire: Annotated[Misfire, typer.Option(help="After a missed start: run late, or skip it.")] = Misfire.RUN,
    config: Annotated[str | None, typer.Option("--config", "-c", help="Settings file of the nightly runs.")] = None,
    folder: Annotated[Path | None, typer.Option(help="Where it runs; default: here (Kubernetes: /macaron).")] = None,
    user: Annotated[str | None, typer.Option(help="The account it runs as (Kubernetes: its number).")] = None,
    executable: Annotated[str | None, typer.Option(help="The macaron-loop to start; default: this one.")] = None,
    name: Annotated[str, typer.Option(help="What the units or the CronJob are called.")] = "macaron-nightly",
    image: Annotated[str | None, typer.Option(help="Kubernetes: the container image.")] = None,
    claim: Annotated[str | None, typer.Option(help="Kubernetes: the volume claim mounted at --folder.")] = None,
    ray_address: Annotated[str | None, typer.Option(help="Kubernetes: run on this Ray cluster (KubeRay).")] = None,
    into: Annotated[Path | None, typer.Option(help="Write the files into this folder instead.")] = None,
    as_json: Json = False,
) -> None:
    """Print a systemd service and timer, a crontab line, or a Kubernetes CronJob for `nightly`."""
    from loop.cli.forms import Job, cron, kubernetes, systemd
    from loop.pipeline.window import parse_clock, parse_zone

    in_cluster = form is Format.KUBERNETES
    zone = timezone or ("Etc/UTC" if in_cluster else None)
    parse_zone(zone)
    start = parse_clock(at)
    arguments = ["nightly", "--at", f"{start:%H:%M}", "--misfire", misfire.value]
    arguments += ["--timezone", zone] if zone else []
    arguments += ["--config", config if in_cluster else _settings_file(config)] if config else []
    arguments += (options or []) + (["--exit-zero"] if in_cluster else [])
    _refuse_unknown(arguments)
    program = executable or ("macaron-loop" if in_cluster else _this_program())
    job = Job(
        name=name,
        at=start,
        zone=zone,
        folder=str((folder or Path("/macaron" if in_cluster else ".")).absolute()),
        command=(program, *arguments),
        user=user,
        catch_up=misfire is Misfire.RUN,
    )
    if in_cluster:
        files, hint = kubernetes(job, image, claim, ray_address)
    else:
        files, hint = systemd(job) if form is Format.SYSTEMD else cron(job)
    if into is not None:
        into.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            (into / file).write_text(text, encoding="utf-8")
    if as_json:
        print_json({"files": files, "install": hint})
    elif into is None:
        print("\n".join(f"# {file}\n{text}" for file, text in files.items()), end="")
    if not as_json:
        print(hint, file=sys.stderr)


def _settings_file(config: str) -> str:
    from loop.settings import load_settings

    load_settings(Path(config))
    return str(Path(config).absolute())


def _this_program() -> str:
    from loop.core.errors import UserError

    found = shutil.which(sys.argv[0]) or shutil.which("macaron-loop")
    if found is None:
        raise UserError("macaron-loop is not on the PATH: give its absolute path with --executable")
    return str(Path(found).absolute())


def _refuse_unknown(arguments: list[str]) -> None:
    """What `nightly` would refuse at two in the morning is refused now (a usage error, exit 2)."""
    from loop.cli.main import app

    command = typer.main.get_command(app)
    with command.make_context("macaron-loop", list(arguments)) as context:
        known = command.resolve_command(context, list(arguments))  # type: ignore[attr-defined]
        known[1].make_context("nightly", known[2], parent=context)
