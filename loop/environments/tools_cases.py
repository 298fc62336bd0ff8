"""Draws one tool task from a seed: the request, the world it starts in, and a reference solution."""

from __future__ import annotations

from random import Random

from pydantic import JsonValue

from loop.core.episode import Split, Task
from loop.core.noun import Noun, seed_from
from loop.environments.tools_families import FAMILIES, POOLS, WORDINGS, Family
from loop.environments.tools_world import (
    LOOKUPS,
    PARAMETERS,
    State,
    World,
    empty_state,
    failed,
    plain,
    plain_arguments,
    row_key,
    template,
)

LEVELS = 5

_RANGES = {
    "hour": (8, 20),
    "order": (1000, 9999),
    "count": (2, 9),
    "km": (2, 90),
    "kg": (2, 90),
    "hours": (2, 90),
    "euros": (2, 90),
    "stock": (2, 90),
}


class Call(Noun):
    """A call of the reference solution; ``ok`` is whether the world grants it."""

    tool: str
    arguments: dict[str, JsonValue]
    ok: bool = True


class Case(Noun):
    """A drawn task: ``calls`` (and ``say``, where it must fail) solve it.

    ``requests`` are made one after the other, the next when the last one's call was granted;
    ``asked`` are the values that the user wants to see.
    """

    requests: tuple[str, ...]
    tools: tuple[str, ...]
    state: dict[str, JsonValue]
    calls: tuple[Call, ...]
    asked: tuple[JsonValue, ...]
    must_fail: bool
    say: str

    def message(self, index: int) -> str:
        """What the user says as request ``index``: tools as call templates, one a line, then the request.

        With two requests, each comes with the tool that serves it.
        """
        tools = self.tools if len(self.requests) == 1 else (self.calls[index].tool,)
        return "\n".join([*(template(tool) for tool in tools), self.requests[index]])

    @property
    def granted(self) -> int:
        """How many granted calls the task needs; after the last one its result is shown to the user."""
        return sum(call.ok for call in self.calls)

    @property
    def steps(self) -> int:
        """How many replies the agent has: those it needs and two more."""
        return len(self.calls) + int(self.must_fail) + 2


class _Intent(Noun):
    clause: str
    calls: tuple[Call, ...]


class _Draw:
    """The random state of one case, with the world it fills."""

    def __init__(self, task: Task) -> None:
        self.random = Random(seed_from("tools", task.split.value, task.case, task.level, task.seed))
        self.split = task.split
        self.pools = POOLS[task.split]
        self._drawn: set[tuple[str, str | int]] = set()
        self.state: State = empty_state()
        self.state["next_order"] = self.random.randint(1000, 9999)

    def value(self, name: str) -> JsonValue:
        """A value for an argument or a result's field that this case does not have yet."""
        while True:
            value = self._draw(name)
            if (name, value) not in self._drawn:
                self._drawn.add((name, value))
                return value

    def _draw(self, name: str) -> str | int:
        random = self.random
        if name == "email":
            return f"{random.choice(self.pools['name']).lower()}@{random.choice(self.pools['domain'])}"
        if name == "phone":
            return f"555-{random.randint(1000, 9999)}"
        if name in _RANGES:
            return random.randint(*_RANGES[name])
        return random.choice(self.pools[name])

    def arguments(self, tool: str) -> dict[str, JsonValue]:
        """Fresh arguments for a call of the tool."""
        return {name: self.value(name) for name in PARAMETERS[tool]}

    def provide(self, tool: str, arguments: dict[str, JsonValue], result: JsonValue = None) -> None:
        """Make the world such that this call works (and, for a lookup, answers ``result``)."""
        if tool in LOOKUPS:
            lookup = LOOKUPS[tool]
            row = self.state[lookup.table].setdefault(row_key(arguments[lookup.key]), {})
            row[lookup.field] = self.value(lookup.field) if result is None else result
        elif tool in {"move_event", "cancel_event"}:
            event = {"day": plain(self.value("day")), "hour": 21}
            self.state["calendar"].setdefault(row_key(arguments["title"]), event)
        elif tool == "cancel_order":
            self.state["orders"].setdefault(row_key(arguments["order"]), {"status": "packed"})

    def intent(self, family: Family, *, linked: bool = False) -> _Intent:
        """One intent in words with its calls; ``linked`` takes an argument from another tool."""
        arguments = self.arguments(family.tool)
        spoken = {name: family.spoken.get(name, "{}").format(value) for name, value in arguments.items()}
        calls = [Call(tool=family.tool, arguments=arguments)]
        self.provide(family.tool, arguments)
        if linked:
            link = family.link
            source = self.arguments(link.tool)
            self.provide(link.tool, source, arguments[link.argument])
            spoken[link.argument] = link.phrase.format(**source)
            calls.insert(0, Call(tool=link.tool, arguments=source))
        return _Intent(clause=self.random.choice(family.clauses).format(**spoken), calls=tuple(calls))


def families(split: Split) -> tuple[str, ...]:
    """The families of a split by name."""
    return tuple(family.tool for family in FAMILIES[split])


def draw_case(task: Task) -> Case:
    """The case of a task; equal tasks give equal cases. KeyError for a family the split lacks."""
    draw = _Draw(task)
    family = {family.tool: family for family in FAMILIES[task.split]}[task.case]
    wording = WORDINGS[task.split]
    if task.level == 2:
        other = draw.random.choice([f for f in FAMILIES[task.split] if f.tool != family.tool])
        first, second = draw.random.sample([draw.intent(family), draw.intent(other)], 2)
        requests = (
            draw.random.choice(wording.single).format(a=first.clause),
            draw.random.choice(wording.second).format(a=second.clause),
        )
        return _finish(draw, task, requests, first.calls + second.calls)
    if task.level == 5:
        return _conditional(draw, task, family)
    intent = draw.intent(family, linked=task.level == 3)
    request = draw.random.choice(wording.single).format(a=intent.clause)
    if task.level == 4:
        return _refused(draw, task, family, request + wording.fallback, intent.calls[0])
    return _finish(draw, task, (request,), intent.calls)


def _refused(draw: _Draw, task: Task, family: Family, request: str, call: Call) -> Case:
    """The intent is refused as asked; the answer offers a way out, or there is none."""
    fault = family.fault
    solvable = draw.random.random() < 0.5
    answer: dict[str, JsonValue] = {"error": fault.error if solvable else fault.dead_end}
    calls = [call.revise(ok=False)]
    if solvable:
        offered = draw.value(fault.argument)
        answer[fault.offer] = offered
        arguments = call.arguments | {fault.argument: offered}
        draw.provide(family.tool, arguments)
        calls.append(Call(tool=family.tool, arguments=arguments))
    refusal = {"tool": family.tool, "arguments": plain_arguments(call.arguments), "answer": answer}
    draw.state["refusals"].append(refusal)
    return _finish(draw, task, (request,), tuple(calls), must_fail=not solvable)


def _conditional(draw: _Draw, task: Task, family: Family) -> Case:
    """A value is looked up; which of two chained requests is to be done depends on it."""
    wording = WORDINGS[task.split]
    limit, found = draw.random.sample(range(10, 90), 2)
    first, second = draw.intent(family, linked=True), draw.intent(family, linked=True)
    asked = draw.arguments(wording.check)
    draw.provide(wording.check, asked, found)
    request = wording.condition.format(**asked, limit=limit, a=first.clause, b=second.clause)
    chosen = first if found < limit else second
    calls = (Call(tool=wording.check, arguments=asked), *chosen.calls)
    return _finish(draw, task, (request,), calls)


def _finish(
    draw: _Draw, task: Task, requests: tuple[str, ...], calls: tuple[Call, ...], must_fail: bool = False
) -> Case:
    tools = list(dict.fromkeys(call.tool for call in calls))
    if task.level > 2:
        tools.append(draw.random.choice([f.tool for f in FAMILIES[task.split] if f.tool not in tools]))
    draw.random.shuffle(tools)
    return Case(
        requests=tuple(request[0].upper() + request[1:] for request in requests),
        tools=tuple(tools),
        state=draw.state,
        calls=calls,
        asked=_asked(draw.state, task, calls),
        must_fail=must_fail,
        say="It failed." if must_fail else "",
    )


def _asked(state: State, task: Task, calls: tuple[Call, ...]) -> tuple[JsonValue, ...]:
    """The values the user wants to hear, as the world gives them to the reference calls."""
    world = World(state)
    fields = {family.tool: family.asked for family in FAMILIES[task.split]}
    asked: list[JsonValue] = []
    answers = [world.call(call.tool, call.arguments) for call in calls]
    for index, (call, answer) in enumerate(zip(calls, answers, strict=True)):
        wrong = failed(answer) is call.ok
        if wrong:
            raise RuntimeError(f"reference call {index} of {task.case} level {task.level}: {call} answered {answer}")
        last = task.level == 2 or index == len(calls) - 1
        field = fields.get(call.tool, "")
        if last and field and not failed(answer):
            asked.append(answer[field])
    return tuple(asked)
