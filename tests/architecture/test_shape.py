"""The ceilings of the style guide, read from the source itself."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = sorted(
    path for folder in ("loop", "migrations", "benchmarks", "examples") for path in (ROOT / folder).rglob("*.py")
)
TESTS = sorted((ROOT / "tests").rglob("*.py"))
DATA = [
    path
    for folder in ("contracts", "harnesses", "examples", "loop", ".ci")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in (".toml", ".ini", ".md", ".mako", "") and path.is_file()
]
FILE_LINES, FUNCTION_LINES, NESTING = 400, 60, 3
NESTING_NODES = (ast.For, ast.While, ast.If, ast.With, ast.Try, ast.Match, ast.AsyncFor, ast.AsyncWith)
MACHINE_PATH = re.compile(r"""(?<![\w.{}/])/(?:home|root|Users|work|opt|mnt|media)/[\w.-]+""")
VAGUE_NAMES = re.compile(r"(Manager|Helper|Utils?)$|^Base(?!$|Row$)")  # Base is one of our nouns, BaseRow its row


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _functions(tree: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


def _depth(node: ast.AST, depth: int = 0) -> int:
    """How deep blocks are nested below a node; ``elif`` is no deeper than its ``if``."""
    deepest = depth
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                continue
            is_elif = isinstance(node, ast.If) and field == "orelse" and isinstance(child, ast.If) and len(value) == 1
            step = isinstance(child, NESTING_NODES) and not is_elif
            deepest = max(deepest, _depth(child, depth + step))
    return deepest


def test_no_file_is_longer_than_the_ceiling() -> None:
    lengths = {_name(path): len(path.read_text().splitlines()) for path in (*CODE, *TESTS)}
    assert {name: lines for name, lines in lengths.items() if lines > FILE_LINES} == {}


def test_no_function_is_longer_or_deeper_than_the_ceilings() -> None:
    found = {}
    for path in CODE:
        if path.parent.name == "versions":
            continue  # a migration is a list of tables, however long
        for function in _functions(ast.parse(path.read_text())):
            lines, depth = (function.end_lineno or 0) - function.lineno + 1, _depth(function)
            if lines > FUNCTION_LINES or depth > NESTING:
                found[f"{_name(path)}:{function.name}"] = (lines, depth)
    assert found == {}


def test_names_say_what_a_thing_is() -> None:
    classes = [
        f"{_name(path)}:{node.name}"
        for path in CODE
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef) and VAGUE_NAMES.search(node.name)
    ]
    assert classes == []


def test_nothing_is_left_to_do() -> None:
    # Spelled apart so that this file does not find itself.
    words = re.compile("|".join((r"\bTO" + "DO\\b", r"\bFIX" + "ME\\b")))
    found = [_name(path) for path in CODE if words.search(path.read_text())]
    assert found == []


def test_no_path_of_one_machine_is_written_down() -> None:
    documents = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "Makefile", "alembic.ini", "pyproject.toml")]
    files = [*CODE, *TESTS, *DATA, *(path for path in documents if path.exists())]
    found = [_name(path) for path in files if MACHINE_PATH.search(path.read_text())]
    # A hostile program that reaches for somebody's home folder has to name one.
    assert [name for name in found if "hostile" not in name] == []


@pytest.mark.parametrize("path", sorted(ROOT.glob("*.toml")) + [p for p in DATA if p.suffix == ".toml"], ids=_name)
def test_every_toml_file_parses(path: Path) -> None:
    import tomllib

    assert tomllib.loads(path.read_text())


def test_the_shell_scripts_parse_and_can_be_run() -> None:
    script = ROOT / ".ci" / "run"
    subprocess.run(["bash", "-n", str(script)], check=True)
    assert script.stat().st_mode & 0o111
