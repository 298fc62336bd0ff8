"""``macaron-loop harness``: the Harness Context Protocol documents."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from loop.cli.options import Json, print_json

app = typer.Typer(help="Harness documents: list, show, verify.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="A harness by name, or a path to its folder.")]


def _folder(name: str) -> Path:
    from loop.library import default_root

    given = Path(name)
    return given if given.is_dir() else default_root() / "harnesses" / name


@app.command("list")
def list_(as_json: Json = False) -> None:
    """The harnesses that are here, with their digests."""
    from loop.library import default_root, load_harness

    found = {p.parent.name: load_harness(p.parent) for p in sorted(default_root().glob("harnesses/*/harness.toml"))}
    if as_json:
        print_json(found)
        return
    for name, harness in found.items():
        labels = " ".join(prompt.label for prompt in harness.prompts)
        print(f"{name:<12} {harness.short}  schema {harness.schema_version}  labels {labels}")


@app.command("show")
def show(name: Name = "seed", as_json: Json = False) -> None:
    """What a harness holds; fields under no_ai never reach a model."""
    from loop.library import load_harness

    harness = load_harness(_folder(name))
    if as_json:
        print_json(harness)
        return
    print(f"{harness.name}  {harness.digest}")
    print(f"routes to {', '.join(harness.routing.labels)}; fallback {harness.routing.fallback}")
    for prompt in harness.prompts:
        shots = len(prompt.exemplars)
        print(f"\n{prompt.label} ({prompt.role}), {shots} exemplars, at most {prompt.sampling.max_tokens} tokens")
        print(f"  {prompt.system}")
    tools = ", ".join(harness.tools) or "none"
    print(f"\ntools: {tools}; hooks: {len(harness.hooks)}; no_ai: {', '.join(harness.no_ai) or 'none'}")


@app.command("verify")
def verify(name: Name = "seed", as_json: Json = False) -> None:
    """Parse a harness and check its references; exit 2 with one sentence when it is wrong."""
    from loop.library import load_harness

    harness = load_harness(_folder(name))
    print_json({"name": harness.name, "digest": harness.digest, "ok": True}) if as_json else print(
        f"{harness.name}: valid, {harness.short}"
    )
