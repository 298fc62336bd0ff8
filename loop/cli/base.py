"""``macaron-loop base``: the frozen base model."""

from __future__ import annotations

import typer

from loop.cli.options import Config, Json, print_json

app = typer.Typer(help="The frozen base model: fetch, convert, check.", no_args_is_help=True)


@app.command("prepare")
def prepare(config: Config = None, as_json: Json = False) -> None:
    """Fetch and convert the base model once; a second time it is only checked."""
    from loop.app import prepare_base
    from loop.settings import load_settings

    base = prepare_base(load_settings(config))
    if as_json:
        print_json(base)
        return
    print(f"{base.id}: {base.parameters:,} parameters, weights {base.weights_digest[:12]}, {base.licence}")


@app.command("verify")
def verify(config: Config = None, as_json: Json = False) -> None:
    """Hash the stored weights again and compare them with their digest."""
    from loop.app import open_blobs, prepare_base
    from loop.settings import load_settings

    settings = load_settings(config)
    base = prepare_base(settings)
    path = open_blobs(settings).get_tree(base.weights_digest)
    files = sorted(item.name for item in path.iterdir())
    if as_json:
        print_json({"base": base, "files": files, "ok": True})
        return
    print(f"{base.id}: {len(files)} files match digest {base.weights_digest[:12]}")
