"""Small Python functions against hidden tests in a sandbox: the environment of specialist L2."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from random import Random

from loop.core.contract import Contract
from loop.core.conversation import Say
from loop.core.episode import Outcome, Record, Split, Task
from loop.core.noun import Noun, seed_from
from loop.core.pair import Harness, Message
from loop.environments.coding_exercise import LEVELS, Exercise, make_exercise
from loop.environments.coding_families import FAMILIES
from loop.environments.coding_program import count_failed, count_lines, find_program, is_forbidden, parses, uses
from loop.environments.sandbox import Ending, Limits, Returned, Run, SandboxUnavailable, isolation, run_python
from loop.ports import Rollout

ATTEMPTS = 200  # draws of a task whose request was not yet asked


class Coding(Noun):
    """Five rungs: one expression, two operations, two steps, a fallback, several demands at once.

    From ``repair_from`` on, a program that fails a visible test meets that failure once and
    may be written again; the last program counts.
    """

    name: str = "coding"
    label: str = "L2"
    levels: int = LEVELS
    repair_from: int = 4
    limits: Limits = Limits()

    def tasks(self, contract: Contract, split: Split, count: int, seed: int, levels: Sequence[int]) -> tuple[Task, ...]:
        """``count`` distinct tasks, in turn over the levels and, within them, over the families."""
        families = [family.name for family in FAMILIES[split]]
        tasks: list[Task] = []
        seen: set[str] = set()
        for index in range(count):
            level = levels[index % len(levels)]
            case = families[index // len(levels) % len(families)]
            # A level has so many short requests: past that, equal words come with other hidden tests.
            for attempt in range(ATTEMPTS):
                drawn = seed_from("coding", split.value, seed, index, attempt) >> 16
                task = Task(environment=self.name, case=case, split=split, seed=drawn, level=level)
                if exercise_of(task).request not in seen:
                    break
            seen.add(exercise_of(task).request)
            tasks.append(task)
        return tuple(tasks)

    def text(self, task: Task, contract: Contract) -> str:
        """The request as the model reads it."""
        return exercise_of(task).request

    def rollout(self, task: Task, harness: Harness, contract: Contract) -> Rollout:
        """Ask for a program, run it on the visible and the hidden inputs, perhaps ask once more.

        Raises SandboxUnavailable before anything is asked when this machine cannot isolate.
        """
        wall = isolation()
        if not wall.ok:
            raise SandboxUnavailable(f"the coding environment refuses to run code without isolation; {wall.fix}")
        exercise = exercise_of(task)
        reply = yield Say(messages=(Message(role="user", content=exercise.request),), label=self.label)
        trial = _try(exercise, reply.text, self.limits)
        first_failed = trial.visible_failed
        repaired = task.level >= self.repair_from and first_failed > 0
        if repaired:
            reply = yield Say(messages=(Message(role="user", content=trial.complaint),), label=self.label)
            trial = _try(exercise, reply.text, self.limits)
        return Outcome(record=_record(task, exercise, trial, first_failed, repaired))


class _Trial(Noun):
    """One program's fate, and what its author would be told about it."""

    program: str
    run: Run | None
    visible_failed: int
    hidden_failed: int
    refused: bool
    forbidden: bool
    complaint: str


@lru_cache(maxsize=4096)
def exercise_of(task: Task) -> Exercise:
    """The exercise of a task; raises KeyError for a case its split does not have."""
    families = {family.name: family for family in FAMILIES[task.split]}
    random = Random(seed_from("coding", task.split.value, task.case, task.level, task.seed))
    return make_exercise(families[task.case], task.level, random)


def _try(exercise: Exercise, reply: str, limits: Limits) -> _Trial:
    """Run the reply's program on every input at once; the expected values stay on this side."""
    program = find_program(reply, exercise.head)
    refused = is_forbidden(program)
    visible = len(exercise.visible)
    run = None
    if parses(program) and not refused:
        inputs = tuple(test.arguments for test in (*exercise.visible, *exercise.hidden))
        run = run_python(program, "f", inputs, limits)
    outputs = run.outputs if run else ()
    return _Trial(
        program=program,
        run=run,
        visible_failed=count_failed(outputs[:visible], exercise.visible),
        hidden_failed=count_failed(outputs[visible:], exercise.hidden),
        refused=refused,
        forbidden=refused or uses(program, exercise.banned),
        complaint=_complaint(exercise, outputs),
    )


def _complaint(exercise: Exercise, outputs: Sequence[Returned]) -> str:
    """What the first failing visible test says; empty when none fails."""
    for index, test in enumerate(exercise.visible):
        output = outputs[index] if index < len(outputs) else Returned(error="no result")
        if count_failed([output], [test]):
            gave = f"fails with {output.error}" if output.error else f"gives {str(output.value)[:40]!r}"
            if output.error is None and not isinstance(output.value, str):
                gave = f"gives {repr(output.value)[:40]}"
            return f"# {test.call} {gave}, not {test.expected!r}\ndef {exercise.head}:"
    return ""


def _record(task: Task, exercise: Exercise, trial: _Trial, first_failed: int, repaired: bool) -> Record:
    """The facts a judge may know; the hidden tests themselves are not among them."""
    run = trial.run
    return Record(
        slots={
            "request": exercise.request,
            "family": task.case,
            "level": task.level,
            "banned": exercise.banned,
            "visible": len(exercise.visible),
            "hidden": len(exercise.hidden),
        },
        world={
            "visible_failed": trial.visible_failed,
            "hidden_failed": trial.hidden_failed,
            "first_visible_failed": first_failed,
            "repaired": repaired,
            "ran": run is not None and bool(run.outputs),
            "timed_out": run is not None and run.ending is Ending.TIMED_OUT,
            # Nothing asked for that the sandbox is there to refuse, and no end but by itself or by time.
            "contained": not trial.refused and (run is None or run.ending in (Ending.FINISHED, Ending.TIMED_OUT)),
            "lines": count_lines(trial.program),
            "forbidden": trial.forbidden,
        },
    )
