"""``macaron-loop doctor``: names what is broken and the fix."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from loop.cli.options import Config, Json, print_json
from loop.core.errors import LoopError

if TYPE_CHECKING:
    from loop.settings import Settings

MIN_FREE_GIB = 4.0
PACKAGES = ("torch", "transformers", "peft", "ray", "mlflow", "sqlmodel", "alembic", "pyarrow", "sentence_transformers")


@dataclass(frozen=True)
class Finding:
    """One check: what was looked at, whether it is well, what was found, and the fix if not."""

    name: str
    ok: bool
    found: str
    fix: str = ""


def doctor(config: Config = None, as_json: Json = False) -> None:
    """Check this machine and these settings; exit 1 when something needs a fix."""
    from loop.settings import load_settings

    settings = load_settings(config)
    findings = [_safely(name, check, settings) for name, check in CHECKS]
    if as_json:
        print_json({"ok": all(f.ok for f in findings), "checks": [vars(finding) for finding in findings]})
    else:
        _print(findings)
    if not all(finding.ok for finding in findings):
        raise typer.Exit(1)


def _safely(name: str, check: Callable[[Settings], Finding], settings: Settings) -> Finding:
    try:
        return check(settings)
    except LoopError as error:
        return Finding(name, False, str(error), "see the sentence above")
    except Exception as error:  # noqa: BLE001 - the boundary: a doctor reports what broke and goes on
        return Finding(name, False, f"{type(error).__name__}: {error}", "report this: the check itself broke")


def _print(findings: list[Finding]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    for finding in findings:
        mark = Text("ok", style="green") if finding.ok else Text("FIX", style="bold red")
        table.add_row(mark, Text(finding.name, style="bold"), Text(finding.found))
        if not finding.ok and finding.fix:
            table.add_row("", "", Text(f"fix: {finding.fix}", style="yellow"))
    Console().print(table)


def _python(_: Settings) -> Finding:
    version = ".".join(str(part) for part in sys.version_info[:3])
    return Finding("python", sys.version_info >= (3, 11), version, "use Python 3.11 or newer")


def _packages(_: Settings) -> Finding:
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    found = f"missing: {', '.join(missing)}" if missing else f"{len(PACKAGES)} heavy packages present"
    return Finding("packages", not missing, found, "run `make env`")


def _machine(_: Settings) -> Finding:
    import psutil

    cores, memory = os.cpu_count() or 1, psutil.virtual_memory().total / 2**30
    return Finding("machine", memory >= 6, f"{cores} cores, {memory:.0f} GiB of memory", "6 GiB are needed")


def _disk(settings: Settings) -> Finding:
    at = next(folder for folder in (settings.home.absolute(), *settings.home.absolute().parents) if folder.exists())
    free = shutil.disk_usage(at).free / 2**30
    return Finding("disk", free >= MIN_FREE_GIB, f"{free:.0f} GiB free at {at}", f"free {MIN_FREE_GIB:g} GiB")


def _database(settings: Settings) -> Finding:
    from loop.store.migrate import check

    if (
        settings.database.startswith("sqlite")
        and not (settings.home / "loop.db").exists()
        and not settings.database_url
    ):
        return Finding("database", True, "none yet; the first run makes it")
    check(settings.database)
    return Finding("database", True, settings.database.split("@")[-1], "macaron-loop db upgrade")


def _base(settings: Settings) -> Finding:
    from loop.app import open_blobs
    from loop.engines.prepare import known_base

    base = known_base(settings.base, open_blobs(settings), settings.base_sha256, settings.home.absolute() / "bases")
    if base is None:
        return Finding("base model", True, "not fetched yet; the first run does it, or `macaron-loop base prepare`")
    open_blobs(settings).get_tree(base.weights_digest)
    return Finding("base model", True, f"{base.id}, digest {base.weights_digest[:12]} matches")


def _contract(settings: Settings) -> Finding:
    from loop.app import open_contract

    contract = open_contract(settings)
    return Finding("contract", True, f"{contract.version} matches LOCK.toml ({contract.folder_digest[:12]})")


def _harness(settings: Settings) -> Finding:
    from loop.app import open_harness

    return Finding("harness", True, f"{open_harness(settings).name} is valid")


def _sandbox(_: Settings) -> Finding:
    from loop.environments.sandbox import isolation

    found = isolation()
    return Finding("sandbox", found.ok, found.kind, found.fix)


def _plugins(settings: Settings) -> Finding:
    from loop.plugins import Group, names

    wanted = {
        Group.ENGINES: {settings.engine.use},
        Group.ENVIRONMENTS: {spec.use for spec in settings.environments},
        Group.EXECUTORS: {settings.executor},
        Group.JUDGES: {settings.judge.use},
        Group.TRAINERS: {settings.trainer.use},
        Group.EXPLORERS: {settings.explorer.use},
    }
    missing = [f"{group.one} {name}" for group, asked in wanted.items() for name in asked - set(names(group))]
    found = f"not installed: {', '.join(missing)}" if missing else "every plug-in of the settings is installed"
    return Finding("plug-ins", not missing, found, "install the package that has it, or correct the settings")


CHECKS: tuple[tuple[str, Callable[[Settings], Finding]], ...] = (
    ("python", _python),
    ("packages", _packages),
    ("machine", _machine),
    ("disk", _disk),
    ("plug-ins", _plugins),
    ("contract", _contract),
    ("harness", _harness),
    ("database", _database),
    ("base model", _base),
    ("sandbox", _sandbox),
)
