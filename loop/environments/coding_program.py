"""What is done with a reply before and after the sandbox: find the program, read it, compare outputs.

Nothing here runs a program. Reading it first keeps out what no exercise needs (imports
that draw chance or time, files, processes): the sandbox would contain it, but two runs of
it could differ, and an episode must score the same every time.
"""

from __future__ import annotations

import ast
import math
import re
import textwrap
import warnings
from collections.abc import Sequence

from pydantic import JsonValue

from loop.environments.coding_exercise import Example
from loop.environments.sandbox import Returned

IMPORTS = frozenset({"math", "string", "functools", "itertools", "operator", "collections", "re"})
NAMES = frozenset(
    {"open", "input", "eval", "exec", "compile", "breakpoint", "globals", "locals", "vars", "dir", "id", "hash", "help"}
    | {"getattr", "setattr", "delattr", "memoryview", "exit", "quit", "object"}
)
LONGEST = 4_000  # characters of a reply that are read


def find_program(reply: str, head: str) -> str:
    """The program in a reply: a whole ``def`` where there is one, else the reply as the body of ``head``.

    Fences, and prose before a ``def``, are left out, and so is what follows once it no
    longer parses. Empty when there is no text.
    """
    text = reply[:LONGEST].replace("\r\n", "\n")
    lines = [line for line in text.split("\n") if not line.lstrip().startswith("```")]
    first = next((index for index, line in enumerate(lines) if line.startswith(("def ", "import ", "from "))), None)
    if first is not None and any(line.startswith("def ") for line in lines[first:]):
        lines = lines[first:]
    else:
        lines = _as_body(lines, head)
    for last in range(len(lines), 0, -1):
        program = "\n".join(lines[:last]).rstrip()
        if _tree(program) is not None:
            return program
    return "\n".join(lines).strip()


def _as_body(lines: list[str], head: str) -> list[str]:
    """The lines as a function's body; the first may stand at the margin, as after an open head."""
    body = [line for line in lines if line.strip()]
    if not body:
        return []
    rest = textwrap.dedent("\n".join(body[1:]))
    return [f"def {head}:", *textwrap.indent(f"{body[0].strip()}\n{rest}".rstrip(), "    ").split("\n")]


def parses(program: str) -> bool:
    """Whether it is Python at all."""
    return bool(program) and _tree(program) is not None


def is_forbidden(program: str) -> bool:
    """Whether it names what no exercise needs: other modules, files, chance, the interpreter's insides."""
    tree = _tree(program)
    if tree is None:
        return False
    return any(_forbids(node) for node in ast.walk(tree))


def uses(program: str, banned: str) -> bool:
    """Whether it uses a banned name, or (for an expression like ``s[0]``) has that text in it."""
    tree = _tree(program)
    if not banned or tree is None:
        return False
    if not banned.isidentifier():
        return banned in re.sub(r"\s", "", program)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return banned in names | {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def count_lines(program: str) -> int:
    """Lines that are not blank."""
    return sum(1 for line in program.split("\n") if line.strip())


def same(found: JsonValue, expected: object) -> bool:
    """Equal as Python people mean it: lists as tuples, 2 as 2.0, but never True as 1. Walks ``expected``."""
    if isinstance(expected, bool) or isinstance(found, bool):
        return found is expected
    if isinstance(expected, int) and isinstance(found, int):
        return found == expected
    if isinstance(expected, (int, float)):
        return isinstance(found, (int, float)) and _close(found, expected)
    if isinstance(expected, (list, tuple)):
        return (
            isinstance(found, list)
            and len(found) == len(expected)
            and all(same(a, b) for a, b in zip(found, expected, strict=True))
        )
    return type(found) is type(expected) and found == expected


def _close(found: float, expected: float) -> bool:
    try:
        return math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-12)
    except OverflowError:  # a whole number beyond every float
        return False


def count_failed(outputs: Sequence[Returned], tests: Sequence[Example]) -> int:
    """How many tests have no output, an error or another value; outputs are in the tests' order."""
    passed = sum(
        1
        for output, test in zip(outputs, tests, strict=False)
        if output.error is None and same(output.value, test.expected)
    )
    return len(tests) - passed


def _forbids(node: ast.AST) -> bool:
    if isinstance(node, ast.Import):
        return any(alias.name not in IMPORTS for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        return node.module not in IMPORTS
    if isinstance(node, ast.Name):
        return node.id in NAMES or node.id.startswith("__")
    return isinstance(node, ast.Attribute) and node.attr.startswith("__")


def _tree(program: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a SyntaxWarning is the program's affair, not the log's
            return ast.parse(program)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
