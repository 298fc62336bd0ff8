"""Nouns in files of their own: written with their digest, and checked against it when they are read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from loop.cli.options import plain
from loop.core.errors import UserError

if TYPE_CHECKING:
    from loop.core.noun import Noun

NounT = TypeVar("NounT", bound="Noun")


def write_noun(noun: Noun, file: Path, what: str, *, compact: bool = False) -> None:
    """Write a noun as one JSON document; UserError where the file cannot be written. ``what`` names it to people."""
    layout = {"separators": (",", ":")} if compact else {"indent": 2}
    _write(json.dumps(plain(noun), ensure_ascii=False, sort_keys=True, **layout) + "\n", file, what)


def write_files(texts: Mapping[str, str], folder: Path, what: str) -> None:
    """Write texts by file name to a folder, made where it is missing; UserError where that cannot be done."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write the {what} to {folder} ({error.strerror}): name another folder") from error
    for name, text in texts.items():
        _write(text, folder / name, what)


def _write(text: str, file: Path, what: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write the {what} to {file} ({error.strerror}): name another file") from error


def read_noun(kind: type[NounT], file: Path, what: str, command: str) -> NounT:
    """A noun from its file; UserError when it is none, or was changed after ``command`` wrote it."""
    from pydantic import ValidationError

    try:
        fields = json.loads(file.read_text(encoding="utf-8"))
        stated = fields.pop("digest")
        found = kind.model_validate(fields)
    except OSError as error:
        raise UserError(f"cannot read {file} ({error.strerror}): write it with `{command}`") from error
    except (ValueError, ValidationError, AttributeError, KeyError, TypeError) as error:
        raise UserError(f"{file} is no {what} of this version: write it with `{command}`") from error
    if found.digest != stated:
        raise UserError(f"{file} was changed after it was written (its digest is {found.short}): write it again")
    return found
