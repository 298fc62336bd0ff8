"""``macaron-loop engine``: engines that need an environment of their own."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from loop.cli.options import Config, Json, print_json
from loop.engines.install import Build

app = typer.Typer(help="Engines with an environment of their own.", no_args_is_help=True)


class Installed(StrEnum):
    """The engines that are installed apart."""

    VLLM = "vllm"


@app.command("install")
def install(
    name: Annotated[Installed, typer.Argument(help="The engine.")],
    build: Annotated[Build, typer.Option(help="auto takes gpu where NVIDIA's driver is found.")] = Build.AUTO,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Install vLLM under the home folder (some gigabytes; minutes); a second time renews it."""
    from loop.app import install_engine
    from loop.settings import load_settings

    folder, installed = install_engine(load_settings(config), name.value, build)
    if as_json:
        print_json({"installed": installed, "environment": str(folder)})
        return
    print(f"{installed} in {folder}; use it by [engine] use = {name.value!r}, options.environment = {str(folder)!r}")
