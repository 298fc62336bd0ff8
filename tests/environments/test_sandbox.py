"""The sandbox as a tool: outputs come back as they are, errors by name, and limits end a run."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

import pytest

from loop.environments.sandbox import (
    KINDS,
    Ending,
    Isolation,
    Limits,
    Returned,
    SandboxUnavailable,
    check_isolation,
    isolation,
    run_python,
)

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", params=sorted(KINDS))
def wall(request: pytest.FixtureRequest) -> Isolation:
    """Each way of isolating that this machine has."""
    found = check_isolation(request.param)
    if not found.ok:
        pytest.skip(f"{request.param} does not isolate here: {found.fix}")
    return found


def test_each_input_gives_its_output_in_order(wall: Isolation) -> None:
    run = run_python("def f(a, b): return a * 3 + b", "f", ((2, 5), (-1, 0), (10**20, 1)), wall=wall)
    assert run.ending is Ending.FINISHED
    assert [output.value for output in run.outputs] == [11, -3, 3 * 10**20 + 1]


@pytest.mark.parametrize(
    "value",
    [None, True, False, 0, -7, 2.5, 1e300, "", 'a"b\\c\n\t\x00', "é ☃ 🐍", [], [1, [2, ["x"]]], {"k": [1], "é": None}],
)
def test_plain_values_come_back_unchanged(value: object) -> None:
    run = run_python(f"def f(x): return {value!r}", "f", ((0,),))
    assert [output.value for output in run.outputs] == [value]


def test_an_error_is_the_result_of_its_input_only() -> None:
    run = run_python("def f(a): return 6 // a", "f", ((2,), (0,), (3,)))
    assert run.outputs == (Returned(value=3), Returned(error="ZeroDivisionError"), Returned(value=2))


def test_a_program_that_does_not_load_says_why() -> None:
    assert run_python("def f(: pass", "f", ((1,),)).outputs == (Returned(error="SyntaxError"),)
    assert run_python("def g(a): return a", "f", ((1,),)).outputs == (Returned(error="KeyError"),)


def test_what_a_program_prints_does_not_disturb_its_outputs() -> None:
    source = "import sys\ndef f(a):\n    print('[true,9]'); sys.stderr.write('no'); return a"
    assert run_python(source, "f", ((1,),)).outputs == (Returned(value=1),)


def test_values_that_are_not_plain_are_errors() -> None:
    source = "class A:\n    __eq__ = lambda s, o: True\ndef f(a): return [A(), {1, 2}, {1: 2}, f, b'x'][a]"
    run = run_python(source, "f", tuple((n,) for n in range(5)))
    assert {output.error for output in run.outputs} == {"TypeError"}


def test_equal_programs_give_equal_outputs_in_another_process() -> None:
    source = "def f(a): return list({'x', 'yy', 'zzz', 'w', 'v', 'u'})"
    assert len({run_python(source, "f", ((1,),)).digest for _ in range(4)}) == 1


def test_a_program_may_use_its_own_folder_and_finds_it_empty(wall: Isolation) -> None:
    source = (
        "import os\ndef f(a):\n    seen = os.listdir('.')\n    open('x', 'w').write('hi')\n"
        "    return seen, open('x').read()"
    )
    for _ in range(2):
        assert run_python(source, "f", ((1,),), wall=wall).outputs == (Returned(value=[[], "hi"]),)


def test_the_standard_library_is_there_and_installed_packages_are_not(wall: Isolation) -> None:
    source = "def f(name): return __import__(name).__name__"
    run = run_python(source, "f", (("math",), ("collections",), ("pydantic",), ("loop",)), wall=wall)
    assert [output.error for output in run.outputs] == [None, None, "ModuleNotFoundError", "ModuleNotFoundError"]


def test_a_loop_ends_by_its_cpu_time_and_a_sleep_by_the_clock(wall: Isolation) -> None:
    started = time.monotonic()
    looped = run_python("def f(a):\n    while True: pass", "f", ((1,),), wall=wall)
    slept = run_python("import time\ndef f(a): time.sleep(60)", "f", ((1,),), Limits(wall_seconds=1.0), wall=wall)
    assert looped.ending is Ending.TIMED_OUT and slept.ending is Ending.TIMED_OUT
    assert looped.outputs == slept.outputs == ()
    assert time.monotonic() - started < 15


def test_outputs_before_a_stop_are_kept() -> None:
    run = run_python("def f(a):\n    while a: pass\n    return a", "f", ((0,), (1,), (0,)))
    assert run.ending is Ending.TIMED_OUT
    assert run.outputs == (Returned(value=0),)


def test_a_program_too_long_to_be_honest_is_not_run() -> None:
    assert run_python("#" * 20_000, "f", ((1,),)).ending is Ending.OVERFLOWED


def test_isolation_is_a_noun_that_travels() -> None:
    found = isolation()
    assert found.ok and found.kind in KINDS
    assert pickle.loads(pickle.dumps(found)) == found


def test_without_any_way_to_isolate_nothing_runs_and_the_message_names_the_fix() -> None:
    code = (
        "from loop.environments.sandbox import isolation, run_python\n"
        "print(isolation().kind, isolation().ok)\n"
        "run_python('def f(a): return a', 'f', ((1,),))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "PATH": "/nonexistent", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["none", "False"]
    assert "SandboxUnavailable" in done.stderr and "install bubblewrap" in done.stderr
    assert done.returncode == 1


def test_a_sandbox_that_breaks_is_infrastructure_and_not_a_result() -> None:
    with pytest.raises(SandboxUnavailable):
        run_python("def f(a): return a", "f", ((1,),), Limits(memory_bytes=1 << 20))
