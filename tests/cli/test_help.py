"""Help is quick because it imports nothing heavy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HEAVY = ("torch", "ray", "mlflow", "sqlmodel", "transformers", "pydantic")


def test_the_command_line_imports_no_heavy_library() -> None:
    code = f"import sys, loop.cli.main; print([m for m in {HEAVY!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_every_command_has_help_that_fits_80_columns() -> None:
    from pathlib import Path

    command = str(Path(sys.executable).parent / "macaron-loop")
    groups = (
        (
            "",
            "run",
            "experiment",
            "status",
            "lineage",
            "show",
            "why",
            "report",
            "rescore",
            "manifest",
            "replay",
            "noise",
            "chat",
            "serve",
        )
        + (
            "rollback",
            "nightly",
            "schedule",
            "judge",
            "routing",
            "figures",
            "holdout",
            "contract",
            "harness",
            "adapters",
        )
        + (
            "routing",
            "keys",
            "keys create",
            "keys list",
            "consent",
            "conversations",
            "conversations forget",
            "base",
            "db",
            "mlflow",
            "doctor",
        )
    )
    for group in groups:
        done = subprocess.run([command, *group.split(), "--help"], capture_output=True, text=True, check=True)
        assert max(len(line) for line in done.stdout.splitlines()) <= 80


def test_what_is_finished_is_shown_without_the_statistics_or_a_model_library(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom pathlib import Path\n"
        "from loop.app import open_store\nfrom loop.findings import read_findings\n"
        "from loop.settings import Settings\n"
        f"assert read_findings(open_store(Settings(home=Path({str(tmp_path)!r}))), 'main') is None\n"
        "print(sorted({'scipy', 'torch', 'ray', 'mlflow', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
