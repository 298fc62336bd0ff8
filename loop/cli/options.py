"""Options that several commands share, and the one way JSON is printed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

Config = Annotated[
    Path | None, typer.Option("--config", "-c", help="Settings file (TOML); default: macaron.toml if present.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")]
Under = Annotated[
    str | None, typer.Option("--contract", help="Show scores under this version: own exams and rescored ones.")
]
Which = Annotated[str, typer.Argument(metavar="GENERATION", help="A number (the promoted one) or a digest's start.")]


def print_json(value: Any) -> None:
    """Print a noun, or plain data with nouns in it, as JSON with two spaces."""
    print(json.dumps(plain(value), indent=2, ensure_ascii=False, sort_keys=True))


def plain(value: Any) -> Any:
    """Plain data; a noun also shows its digest."""
    from pydantic import BaseModel

    from loop.core.noun import Noun

    if isinstance(value, Noun):
        return {"digest": value.digest} | value.model_dump(mode="json")
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value
