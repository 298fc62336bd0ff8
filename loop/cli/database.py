"""``macaron-loop db``: the schema of the store."""

from __future__ import annotations

import typer

from loop.cli.options import Config, Json, print_json

app = typer.Typer(help="The store's schema: upgrade it, check it.", no_args_is_help=True)


@app.command("upgrade")
def upgrade(config: Config = None, as_json: Json = False) -> None:
    """Bring the database to this program's schema, under a lock."""
    from loop.settings import load_settings
    from loop.store.migrate import current, upgrade

    settings = load_settings(config)
    settings.home.mkdir(parents=True, exist_ok=True)
    upgrade(settings.database)
    revision = current(settings.database)
    print_json({"revision": revision}) if as_json else print(f"schema is at revision {revision}")


@app.command("check")
def check(config: Config = None, as_json: Json = False) -> None:
    """Compare the database with what this program expects; exit 2 on any difference."""
    from loop.settings import load_settings
    from loop.store.migrate import check, current

    settings = load_settings(config)
    check(settings.database)
    revision = current(settings.database)
    print_json({"revision": revision, "ok": True}) if as_json else print(f"schema matches, revision {revision}")
