"""How an exercise of the coding ladder is put together from a family's parts.

A part is said in words, written in Python and computed here by a third, independent
form, so that the expected values of the tests never come from the text of a program.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from types import SimpleNamespace
from typing import Any

Arguments = tuple[Any, ...]
LEVELS = 5
VISIBLE = 3  # tests a task that may select training data; the request shows the first
HIDDEN = 8  # hidden tests a task
EDGES = 2  # at most, among the hidden inputs of a guarded part
DOUBLES = 0.65  # share of the second level without a condition
TRIES = 200  # draws of an input before a family is called unable to give a distinct one


@dataclass(frozen=True)
class Part:
    """A value in three forms: words, Python text (both with ``{k}`` and ``{j}``), and a function."""

    words: str
    source: str
    value: Callable[[SimpleNamespace], Any]


@dataclass(frozen=True)
class Guarded:
    """A part that fails or means nothing on some inputs (``when``), for which a fallback is asked."""

    part: Part
    when: Part


@dataclass(frozen=True)
class Constrained:
    """A guarded part whose usual name is banned: the reference gets by without it."""

    guarded: Guarded
    banned: str


@dataclass(frozen=True)
class Family:
    """A domain with its wording, its inputs and its parts for each rung of the ladder.

    ``draw(random, wide)`` gives arguments on which nothing fails; ``edge(random)`` gives
    arguments on which every guarded part needs its fallback. ``frames`` say a level's
    demand with the names of its parts in braces.
    """

    name: str
    names: tuple[str, ...]
    draw: Callable[[Random, bool], Arguments]
    edge: Callable[[Random], Arguments]
    frames: tuple[str, str, str, str, str]
    terms: tuple[Part, ...]
    doubles: tuple[Part, ...]
    tests: tuple[Part, ...]
    firsts: tuple[Part, ...]
    seconds: tuple[Part, ...]
    guarded: tuple[Guarded, ...]
    constrained: tuple[Constrained, ...]

    @property
    def head(self) -> str:
        """The function's head, as ``f(a, b)``."""
        return f"f({', '.join(self.names)})"


@dataclass(frozen=True)
class Example:
    """One test: arguments and the value the function must give for them."""

    arguments: Arguments
    expected: Any

    @property
    def call(self) -> str:
        """The call as a person writes it."""
        return f"f({', '.join(map(repr, self.arguments))})"


@dataclass(frozen=True)
class Exercise:
    """What a task asks: the words, a reference body, the visible and the hidden tests."""

    head: str
    request: str
    reference: str
    visible: tuple[Example, ...]
    hidden: tuple[Example, ...]
    banned: str = ""


@dataclass(frozen=True)
class _Program:
    """Words, body and meaning, before any example is drawn; ``branch`` is what both shown tests differ in."""

    words: str
    body: str
    value: Callable[[SimpleNamespace], Any]
    branch: Callable[[SimpleNamespace], bool] | None = None
    edged: bool = False
    banned: str = ""


def make_exercise(family: Family, level: int, random: Random) -> Exercise:
    """The exercise that this state of ``random`` draws; raises ValueError for a level off the ladder."""
    k, j = random.sample(range(2, 10), 2)
    makers = (_one_expression, _two_operations, _two_steps, _with_fallback, _constrained)
    if not 1 <= level <= LEVELS:
        raise ValueError(f"the coding ladder has levels 1 to {LEVELS}, found {level}")
    program = makers[level - 1](family, random)

    def meaning(arguments: Arguments) -> SimpleNamespace:
        return SimpleNamespace(**dict(zip(family.names, arguments, strict=True)), k=k, j=j)

    def example(arguments: Arguments) -> Example:
        return Example(arguments, program.value(meaning(arguments)))

    shown = _visible(family, program, random, meaning)
    inputs = _hidden(family, program, random, shown)
    words = program.words.replace("{k}", str(k)).replace("{j}", str(j))
    body = program.body.replace("{k}", str(k)).replace("{j}", str(j))
    visible = tuple(map(example, shown))
    told = visible[: 2 if program.edged else 1]
    lines = [f"# {test.call} = {test.expected!r}" for test in told]
    return Exercise(
        head=family.head,
        request="\n".join([*lines, f"# {words}", f"def {family.head}:"]),
        reference=body,
        visible=visible,
        hidden=tuple(map(example, inputs)),
        banned=program.banned,
    )


def _visible(
    family: Family, program: _Program, random: Random, meaning: Callable[[Arguments], SimpleNamespace]
) -> tuple[Arguments, ...]:
    """Inputs of the visible tests: of both branches, of several values, and one that needs the fallback."""

    def side(arguments: Arguments) -> Any:
        here = meaning(arguments)
        return program.branch(here) if program.branch else program.value(here)

    edge = [family.edge(random)] if program.edged else []
    usual: list[Arguments] = []
    for _ in range(TRIES):
        candidate = family.draw(random, False)
        unlike = edge or usual[:1]
        if candidate not in usual and all(side(candidate) != side(other) for other in unlike):
            usual.append(candidate)
        if len(usual) + len(edge) == VISIBLE:
            return (usual[0], *edge, *usual[1:])
    raise ValueError(f"family {family.name} draws no {VISIBLE} inputs that tell {program.words!r} from a constant")


def _hidden(family: Family, program: _Program, random: Random, shown: tuple[Arguments, ...]) -> tuple[Arguments, ...]:
    """Wider inputs, none of them shown; of a guarded part's some need the fallback.

    A domain with a single edge (the empty list) has it among the hidden inputs as well.
    """
    inputs: list[Arguments] = []
    if program.edged:
        edges = [family.edge(random) for _ in range(EDGES)]
        for edge in [edge for edge in edges if edge not in shown] or edges[:1]:
            inputs += [edge] if edge not in inputs else []
    for _ in range(TRIES):
        candidate = family.draw(random, True)
        if candidate not in inputs and candidate not in shown:
            inputs.append(candidate)
        if len(inputs) == HIDDEN:
            return tuple(inputs)
    raise ValueError(f"family {family.name} draws fewer than {HIDDEN} distinct inputs")


def _fill(frame: str, **words: str) -> str:
    for name, said in words.items():
        frame = frame.replace("{" + name + "}", said)
    return frame


def _one_expression(family: Family, random: Random) -> _Program:
    term = random.choice(family.terms)
    return _Program(_fill(family.frames[0], term=term.words), f"return {term.source}", term.value)


def _two_operations(family: Family, random: Random) -> _Program:
    if random.random() < DOUBLES:
        double = random.choice(family.doubles)
        return _Program(_fill(family.frames[0], term=double.words), f"return {double.source}", double.value)
    test = random.choice(family.tests)
    yes, no = random.sample(family.terms, 2)
    return _Program(
        _fill(family.frames[1], yes=yes.words, test=test.words, no=no.words),
        f"return {yes.source} if {test.source} else {no.source}",
        lambda v: yes.value(v) if test.value(v) else no.value(v),
        branch=lambda v: bool(test.value(v)),
    )


def _two_steps(family: Family, random: Random) -> _Program:
    first, second = random.choice(family.firsts), random.choice(family.seconds)
    return _Program(
        _fill(family.frames[2], first=first.words, second=second.words),
        f"c = {first.source}; return {second.source}",
        lambda v: second.value(_with_c(v, first.value(v))),
    )


def _with_fallback(family: Family, random: Random) -> _Program:
    guarded = random.choice(family.guarded)
    part, when = guarded.part, guarded.when
    return _Program(
        _fill(family.frames[3], term=part.words, when=when.words),
        f"return {{k}} if {when.source} else {part.source}",
        lambda v: v.k if when.value(v) else part.value(v),
        edged=True,
    )


def _constrained(family: Family, random: Random) -> _Program:
    constrained = random.choice(family.constrained)
    second = random.choice([second for second in family.seconds if constrained.banned not in second.source])
    part, when = constrained.guarded.part, constrained.guarded.when
    return _Program(
        _fill(
            family.frames[4],
            first=part.words,
            when=when.words,
            second=second.words,
            banned=constrained.banned,
        ),
        f"return {{k}} if {when.source} else " + re.sub(r"\bc\b", f"({part.source})", second.source),
        lambda v: v.k if when.value(v) else second.value(_with_c(v, part.value(v))),
        edged=True,
        banned=constrained.banned,
    )


def _with_c(values: SimpleNamespace, c: Any) -> SimpleNamespace:
    return SimpleNamespace(**{**vars(values), "c": c})
