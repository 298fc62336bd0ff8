"""What a cold import pulls in, and the layers of .importlinter."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "transformers", "peft", "ray", "mlflow", "sqlmodel", "sqlalchemy", "sentence_transformers", "scipy")


def _modules_after(statement: str) -> set[str]:
    code = f"{statement}\nimport json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("module", ["loop.cli.main", "loop.core.generation", "loop.ports", "loop.plugins"])
def test_importing_it_pulls_in_nothing_heavy(module: str) -> None:
    assert _modules_after(f"import {module}").isdisjoint(HEAVY)


def test_the_core_imports_pydantic_and_the_standard_library_only() -> None:
    names = [path.stem for path in sorted((ROOT / "loop" / "core").glob("*.py")) if path.stem != "__init__"]
    loaded = _modules_after("\n".join(f"import loop.core.{name}" for name in names)) - _modules_after("pass")
    top = {name.split(".")[0] for name in loaded} - set(sys.stdlib_module_names)
    needed = ("_", "loop", "pydantic", "annotated_types", "typing_extensions", "typing_inspection")
    assert {name for name in top if not name.startswith(needed)} == set()


def test_the_layers_hold() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-logo", "--no-cache"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout


def test_every_entry_point_names_a_module_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for group, points in project["entry-points"].items():
        for name, target in points.items():
            module = target.split(":")[0].replace(".", "/")
            assert (ROOT / f"{module}.py").exists(), f"{group} {name}"
