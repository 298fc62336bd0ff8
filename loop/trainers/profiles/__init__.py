"""Training recipes as TOML documents: those shipped here by name, or any file by path."""

from __future__ import annotations

import tomllib
from importlib.resources import files
from pathlib import Path

from pydantic import ValidationError

from loop.core.errors import UserError
from loop.core.training_set import TrainingProfile

SUFFIX = ".toml"


def profile_names() -> tuple[str, ...]:
    """The names of the recipes shipped with the package, sorted."""
    entries = (entry.name for entry in files(__name__).iterdir())
    return tuple(sorted(name.removesuffix(SUFFIX) for name in entries if name.endswith(SUFFIX)))


def load_profile(name_or_path: str) -> TrainingProfile:
    """A recipe by its shipped name, or by the path of a TOML file.

    Raises UserError when there is no such recipe, when the file is not TOML, or when a
    field is missing, unknown or out of range.
    """
    text = _read(name_or_path)
    try:
        return TrainingProfile.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"training profile {name_or_path} is not valid TOML ({error}): correct that line.") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "the document"
        raise UserError(f"training profile {name_or_path}: {place}: {first['msg']}; correct it in the file.") from error


def _read(name_or_path: str) -> str:
    if name_or_path in profile_names():
        return files(__name__).joinpath(name_or_path + SUFFIX).read_text(encoding="utf-8")
    path = Path(name_or_path)
    if not path.is_file():
        known = ", ".join(profile_names())
        raise UserError(f"no training profile {name_or_path!r}: give one of {known}, or the path of a TOML file.")
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"training profile {name_or_path} cannot be read ({error}): check the file.") from error
