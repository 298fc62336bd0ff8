"""``macaron-loop figures``: what others published, shown beside ours with its protocol."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loop.cli.options import Config, Json, print_json

if TYPE_CHECKING:
    from loop.core.figures import Figures

app = typer.Typer(help="Published figures of other systems, with provenance.", no_args_is_help=True)


@app.command("import")
def import_(
    path: Annotated[Path, typer.Argument(help="A TOML file: name, source, and [[figures]].")],
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Keep a source's figures; importing a source again replaces what is shown of it."""
    from datetime import UTC, datetime

    from loop.app import open_store
    from loop.settings import load_settings

    found = read(path).revise(imported=datetime.now(UTC).isoformat())
    digest = open_store(load_settings(config)).save(found)
    print_json({"name": found.name, "figures": len(found.figures), "digest": digest}) if as_json else print(
        f"{found.name}: {len(found.figures)} figures of {found.source}"
    )


@app.command("list")
def list_(config: Config = None, as_json: Json = False) -> None:
    """The imported figures by protocol; values of different protocols do not compare."""
    from loop.app import open_store
    from loop.settings import load_settings

    sources = open_store(load_settings(config)).figures()
    if as_json:
        print_json(sources)
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title="imported figures: different protocols do not compare", title_justify="left", width=80)
    for name in ("protocol", "system", "metric", "value"):
        table.add_column(name, overflow="fold")
    rows = sorted((row for source in sources for row in source.figures), key=lambda row: row.protocol)
    for row in rows:
        table.add_row(row.protocol, row.system, row.metric, f"{row.value:g} {row.unit}".strip())
    Console().print(table)


def read(path: Path) -> Figures:
    """Parse a file; UserError naming the file and the place that is wrong."""
    import tomllib

    from pydantic import ValidationError

    from loop.core.errors import UserError
    from loop.core.figures import Figures

    try:
        return Figures.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror}): give a TOML file of figures") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not valid TOML: {error}; correct that line and import it again") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UserError(
            f"{path}, {where}: {first['msg']}; a figure needs system, metric, value and protocol"
        ) from error
