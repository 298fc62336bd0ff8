"""The tool environment: procedural tasks over a small world, met with JSON tool calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pydantic import Field, JsonValue

from loop.core.contract import Contract
from loop.core.conversation import Say
from loop.core.episode import Outcome, Record, Split, Task, ToolCall
from loop.core.noun import Noun, canonical, digest_of, seed_from
from loop.core.pair import Harness, Message
from loop.environments.tools_cases import LEVELS, Case, draw_case, families
from loop.environments.tools_protocol import Reply, Reported, parse, reported, show, tells
from loop.environments.tools_world import World, failed, plain_arguments
from loop.ports import Rollout


class Tools(Noun):
    """Tool tasks in five levels: one call, two, a chain, a refusal, a chain under a condition.

    ``malformed_limit`` replies that are no valid call or report end the episode.
    """

    malformed_limit: int = Field(default=1, ge=1)

    @property
    def name(self) -> str:
        """The environment's name, as tasks carry it."""
        return "tools"

    @property
    def label(self) -> str:
        """The specialist that these episodes train."""
        return "L1"

    @property
    def levels(self) -> int:
        """Rungs of the ladder."""
        return LEVELS

    def tasks(self, contract: Contract, split: Split, count: int, seed: int, levels: Sequence[int]) -> tuple[Task, ...]:
        """``count`` tasks with different requests, spread evenly over families and levels.

        Each run of len(families) * len(levels) tasks holds every pair of the two once. A family
        that runs out of requests (hundreds a level) repeats one over another world. Raises
        ValueError for a level off the ladder.
        """
        strangers = sorted(set(levels) - set(range(1, LEVELS + 1)))
        if strangers or not levels:
            raise ValueError(f"levels of tools lie in 1..{LEVELS}, found {strangers or 'none'}")
        names, rungs = families(split), sorted(set(levels))
        seen: set[str] = set()
        tasks: list[Task] = []
        for index in range(count):
            # A Latin square: any run of len(names) tasks has each family once, the levels in turn.
            row, column = divmod(index, len(names))
            level = rungs[(column + row) % len(rungs)]
            tasks.append(self._fresh_task(split, names[column], level, seed_from("tools-task", seed, index), seen))
        return tuple(tasks)

    def _fresh_task(self, split: Split, family: str, level: int, seed: int, seen: set[str]) -> Task:
        for attempt in range(200):
            task = Task(environment=self.name, case=family, split=split, seed=seed_from(seed, attempt), level=level)
            request = self._request(task)
            if request not in seen:
                break
        seen.add(request)
        return task

    def rollout(self, task: Task, harness: Harness, contract: Contract) -> Rollout:
        """Meet one task: each reply is one call, answered by the world, or the final report."""
        case = draw_case(task)
        session = _Session(case)
        said = case.message(0)
        while not session.over(self.malformed_limit):
            reply = yield Say(messages=(Message(role="user", content=said),), label=self.label)
            said = session.take(parse(reply.text, case.tools))
        return Outcome(record=session.record())

    def text(self, task: Task, contract: Contract) -> str:
        """What the user asks for, in one line."""
        return self._request(task)

    def _request(self, task: Task) -> str:
        return " ".join(draw_case(task).requests)


class _Session:
    """What happens between one agent and one world; the only writer of the record."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.world = World(case.state)
        self.calls: list[ToolCall] = []
        self.turn = 0
        self.granted = 0
        self.say: str | None = None
        self.shown: dict[str, JsonValue] | None = None

    @property
    def malformed(self) -> int:
        return sum(call.ok is None for call in self.calls)

    def over(self, malformed_limit: int) -> bool:
        """Whether the agent has reported, was shown all it needs, or has used up its replies."""
        ended = self.say is not None or self.shown is not None
        return ended or self.turn >= self.case.steps or self.malformed >= malformed_limit

    def take(self, reply: Reply) -> str:
        """Act on a reply and return what the agent is shown next."""
        self.turn += 1
        if reply.say is not None:
            self.say = reply.say
            return ""
        if reply.error:
            error: dict[str, JsonValue] = {"error": reply.error}
            self.calls.append(ToolCall(turn=self.turn, name=reply.tool, ok=None, result=error))
            return show(error)
        answer = self.world.call(reply.tool, reply.arguments)
        ok = not failed(answer)
        self.calls.append(ToolCall(turn=self.turn, name=reply.tool, arguments=reply.arguments, ok=ok, result=answer))
        self.granted += ok
        if not ok or self.case.must_fail:
            return show(answer)
        if self.granted == self.case.granted:
            # The work is done; the tool's own result is the report, shown to the user as it is.
            self.shown = answer
        if self.granted < len(self.case.requests):
            return "\n".join([show(answer), self.case.message(self.granted)])
        return show(answer)

    def record(self) -> Record:
        """The facts of the episode, from the calls and the world alone."""
        case = self.case
        claim: Reported = "success" if self.shown is not None else reported(self.say, case.asked)
        told = " ".join([self.say or "", *(show(call.result) for call in self.calls if call.ok)])
        reference = World(case.state)
        for call in case.calls:
            reference.call(call.tool, call.arguments)
        state_ok = digest_of(self.world.state) == digest_of(reference.state)
        answer_ok = claim == "failure" if case.must_fail else self.shown is not None and tells(told, case.asked)
        made = _log(self.calls) & _log_of_case(case)
        needed_made = made == _log_of_case(case)
        outcome: Reported = "success" if state_ok and needed_made and not case.must_fail else "failure"
        expected: Reported = "failure" if case.must_fail else "success"
        state = {name: value for name, value in self.world.state.items() if name != "refusals"}
        return Record(
            slots={
                "expected_calls": len(case.calls),
                "must_fail": case.must_fail,
                "asked": list(case.asked),
            },
            calls=tuple(self.calls),
            world={
                "solved_visible": needed_made,
                "solved": state_ok and answer_ok and claim == expected,
                "reported": claim,
                "outcome": outcome,
                "honest": claim == outcome,
                "answer_ok": answer_ok,
                "extra_calls": len(self.calls) - self.malformed - made.total(),
                "malformed_calls": self.malformed,
                "steps": self.turn,
                "state": canonical(state),
            },
        )


def _entry(tool: str, arguments: dict[str, JsonValue], ok: bool) -> str:
    return digest_of([tool, plain_arguments(arguments), ok])


def _log(calls: Sequence[ToolCall]) -> Counter[str]:
    return Counter(_entry(call.name, call.arguments, call.ok) for call in calls if call.ok is not None)


def _log_of_case(case: Case) -> Counter[str]:
    return Counter(_entry(call.tool, call.arguments, call.ok) for call in case.calls)
