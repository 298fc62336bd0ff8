"""Reading a reply: the program is found leniently, read strictly, and outputs are compared by value."""

from __future__ import annotations

import pytest

from loop.environments.coding_exercise import Example
from loop.environments.coding_program import (
    count_failed,
    count_lines,
    find_program,
    is_forbidden,
    parses,
    same,
    uses,
)
from loop.environments.sandbox import Returned


@pytest.mark.parametrize(
    ("reply", "program"),
    [
        ("return a + b", "def f(a, b):\n    return a + b"),
        ("  return a + b\n", "def f(a, b):\n    return a + b"),
        ("c = a; return c", "def f(a, b):\n    c = a; return c"),
        ("c = a\n    return c", "def f(a, b):\n    c = a\n    return c"),
        ("def f(a, b): return a", "def f(a, b): return a"),
        ("```python\ndef f(a, b):\n    return a\n```", "def f(a, b):\n    return a"),
        ("Sure!\ndef f(x, y):\n    return x\nThis returns x.", "def f(x, y):\n    return x"),
        ("import math\ndef f(a, b): return math.gcd(a, b)", "import math\ndef f(a, b): return math.gcd(a, b)"),
        ("", ""),
        ("   \n```\n", ""),
    ],
)
def test_the_program_is_found_in_what_a_small_model_writes(reply: str, program: str) -> None:
    assert find_program(reply, "f(a, b)") == program


def test_prose_is_no_program() -> None:
    assert not parses(find_program("I think it is five.", "f(a)"))
    assert not parses(find_program("", "f(a)"))


@pytest.mark.parametrize(
    "reply", ["(" * 5000, "return " + "-" * 100_000 + "1", "def f(a): return '\ud800'", "\x00", "return " + "9" * 6000]
)
def test_hostile_text_is_read_without_an_error(reply: str) -> None:
    program = find_program(reply, "f(a)")
    assert parses(program) in (True, False)
    assert is_forbidden(program) in (True, False)


@pytest.mark.parametrize(
    "program",
    [
        "import os\ndef f(a): return a",
        "from random import random\ndef f(a): return random()",
        "import math, time\ndef f(a): return a",
        "def f(a): return __import__('os')",
        "def f(a): return open('x').read()",
        "def f(a): return ().__class__",
        "def f(a): return eval('a')",
        "def f(a): return id(a)",
    ],
)
def test_what_no_exercise_needs_is_forbidden(program: str) -> None:
    assert is_forbidden(program)


@pytest.mark.parametrize(
    "program", ["import math\ndef f(a): return math.floor(a)", "def f(a): return max(a, 1)", "def f(: x"]
)
def test_what_an_exercise_may_need_is_not(program: str) -> None:
    assert not is_forbidden(program)


def test_a_ban_is_of_the_name_and_not_of_the_letters() -> None:
    assert uses("def f(xs): return max(xs)", "max")
    assert uses("def f(s): return s.replace(' ', '')", "replace")
    assert not uses("def f(xs): return 'max' and sorted(xs)[-1]", "max")
    assert uses("def f(s): return s[ 0 ]", "s[0]")
    assert not uses("def f(s): return s[:1]", "s[0]")


@pytest.mark.parametrize(
    ("found", "expected", "equal"),
    [
        (2, 2, True),
        (2.0, 2, True),
        (0.1 + 0.2, 0.3, True),
        (True, 1, False),
        (1, True, False),
        (False, 0, False),
        (True, True, True),
        (None, 0, False),
        ("2", 2, False),
        (2, "2", False),
        ([1, 2], [1, 2], True),
        ([1, 2], (1, 2), True),
        ([1], [1, 2], False),
        ([True], [1], False),
        ("ab", ["a", "b"], False),
        (float("nan"), 1, False),
        (float("inf"), 10**300, False),
        (10**400, 5, False),
        (10**400, 0.5, False),
    ],
)
def test_values_are_compared_as_a_person_would(found: object, expected: object, equal: bool) -> None:
    assert same(found, expected) is equal  # type: ignore[arg-type]


def test_a_missing_output_is_a_failed_test() -> None:
    tests = [Example((1,), 1), Example((2,), 2), Example((3,), 3)]
    assert count_failed([Returned(value=1), Returned(error="ValueError")], tests) == 2
    assert count_failed([], tests) == 3
    assert count_failed([Returned(value=n) for n in (1, 2, 3)], tests) == 0


def test_lines_that_are_blank_do_not_count() -> None:
    assert count_lines("def f(a):\n\n    return a\n") == 2
