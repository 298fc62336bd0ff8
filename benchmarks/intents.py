"""A message with two intents, answered by one specialist and split among several: how much of it gets done.

Each message is a sealed task for tools and one for code, of the lowest level, one after the
other, in both orders. A generation that was grown before plays each message under three policies: ``single``
as one turn of whoever it is routed to, ``split`` by intent, and ``split, told`` where the router
is told whose each piece is, which shows what its mistakes cost. The environments' own sealed
checks decide what was done: by the whole reply or by any of its paragraphs, for either intent.

    macaron-loop run --generation 0
    python -m benchmarks.intents --messages 60
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy import stats

from loop.app import open_blobs, open_contract, open_store
from loop.core.contract import Contract
from loop.core.conversation import Reply, Say, Timeline, Turned
from loop.core.episode import Ask, Completion, Outcome, Request, Split, Task
from loop.core.hop import Hop
from loop.core.noun import seed_from
from loop.core.pair import Harness, Message, Pair
from loop.core.plan import Spec
from loop.engines.transformers import TransformersEngine
from loop.mol.runtime import JOINT, turn
from loop.plugins import environment
from loop.ports import Environment
from loop.settings import Settings, load_settings
from loop.store.blobs import FsBlobs

SUBJECTS = ("tools", "coding")
POLICIES = ("single", "split", "split, told")


@dataclass(frozen=True)
class Mixed:
    """A message of two intents: the tasks in the order in which they are asked for, and their words."""

    tasks: tuple[Task, Task]
    texts: tuple[str, str]

    @property
    def say(self) -> Say:
        """The message, the intents below each other."""
        return Say(messages=(Message(role="user", content=JOINT.join(self.texts)),))

    def owner(self, piece: str, environments: dict[str, Environment]) -> str:
        """Whose a piece is, by the task whose words it is made of; both on one line, as the router reads them."""
        place = 0 if piece in " ".join(self.texts[0].split()) else 1
        return str(environments[self.tasks[place].environment].label)


@dataclass
class Played:
    """What became of one message under one policy."""

    done: tuple[bool, bool] = (False, False)
    hops: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    routes: tuple[str, ...] = ()


def messages(contract: Contract, harness: Harness, environments: dict[str, Environment], count: int) -> list[Mixed]:
    """``count`` messages; every second one asks for the program first."""
    drawn = {name: one.tasks(contract, Split.HOLDOUT, count, 77, (1,)) for name, one in environments.items()}
    made = []
    for index in range(count):
        order = SUBJECTS if index % 2 == 0 else SUBJECTS[::-1]
        first, second = (drawn[name][index] for name in order)
        texts = [next(environments[t.environment].rollout(t, harness, contract)).messages[-1] for t in (first, second)]
        made.append(Mixed((first, second), (texts[0].content, texts[1].content)))
    return made


def solved(task: Task, text: str, one: Environment, harness: Harness, contract: Contract) -> bool:
    """Whether this reply alone does what the task asks for, by its sealed facts."""
    rollout = one.rollout(task, harness, contract)
    next(rollout)
    try:
        rollout.send(Reply(text=text))
    except StopIteration as end:
        outcome: Outcome = end.value
        world = outcome.record.world
        if task.environment == "tools":
            return bool(world["solved"])
        failed = (world["visible_failed"], world["hidden_failed"])
        return bool(world["ran"]) and failed == (0, 0) and not world["forbidden"]
    return False


def play(
    engine: TransformersEngine,
    pair: Pair,
    blobs: FsBlobs,
    asking: list[Generator[Ask, Completion, Turned]],
    known: Callable[[int, Ask], str | None],
) -> list[tuple[Turned, Played]]:
    """All the turns at once; ``known`` answers an ask without the engine, or says None."""
    done: dict[int, tuple[Turned, Played]] = {}
    played = [Played() for _ in asking]
    told = Completion(text="", prompt_ids=(), token_ids=(), logprobs=(), finish="choice")

    def onward(key: int, completion: Completion | None) -> Sequence[tuple[int, Request]]:
        while True:
            try:
                ask = next(asking[key]) if completion is None else asking[key].send(completion)
            except StopIteration as end:
                done[key] = (end.value, played[key])
                return ()
            played[key].hops[ask.hop] += 1
            answer = known(key, ask)
            if answer is None:
                return [(key, request_of(pair, ask))]
            completion = told.revise(text=answer)

    def follow(key: int, completion: Completion) -> Sequence[tuple[int, Request]]:
        played[key].tokens += len(completion.token_ids)
        return onward(key, completion)

    first = [request for key in range(len(asking)) for request in onward(key, None)]
    report = engine.generate(pair.base, blobs, first, follow)
    assert not report.failures, report.failures
    return [done[key] for key in range(len(asking))]


def request_of(pair: Pair, ask: Ask) -> Request:
    """What the engine is asked, as the server asks it."""
    return Request(
        messages=ask.messages,
        adapter=pair.adapter(ask.label),
        sampling=ask.sampling,
        seed=seed_from("intents", *((m.role, m.content) for m in ask.messages)),
        choices=ask.choices,
    )


def policy(name: str, settings: Settings, pair: Pair, mixed: Sequence[Mixed]) -> list[Played]:
    """Every message under one policy, and what was done of it."""
    contract, blobs = open_contract(settings), open_blobs(settings)
    environments = {one: environment(Spec(use=one)) for one in SUBJECTS}
    rules = pair.harness.session.revise(intents="single" if name == "single" else "split")
    harness = pair.harness.revise(session=rules)

    def known(key: int, ask: Ask) -> str | None:
        if name != "split, told" or ask.hop is not Hop.ROUTE:
            return None
        return mixed[key].owner(ask.messages[-1].content.rpartition("Message: ")[2], environments)

    asking = [turn(harness, Timeline(), one.say) for one in mixed]
    found = []
    for one, (turned, played) in zip(
        mixed, play(TransformersEngine(threads=2), pair, blobs, asking, known), strict=True
    ):
        tries = dict.fromkeys((turned.reply.text, *turned.reply.parts, *turned.reply.text.split(JOINT)))
        played.done = tuple(
            any(solved(task, text, environments[task.environment], harness, contract) for text in tries)
            for task in one.tasks
        )
        played.routes = tuple(route.label for route in turned.routes)
        found.append(played)
    return found


def share(values: Sequence[float]) -> str:
    """A mean in percent with its 95 % BCa interval over messages."""
    if len(set(values)) == 1:
        return f"{100 * values[0]:+.1f} (all alike)"
    drawn = stats.bootstrap((np.asarray(values, dtype=float),), np.mean, method="BCa", rng=np.random.default_rng(0))
    low, high = drawn.confidence_interval
    return f"{100 * float(np.mean(values)):+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"


def table(found: dict[str, list[Played]], mixed: Sequence[Mixed]) -> None:
    """What docs/RESULTS.md shows."""
    print("| policy | intents done, % | tools, % | coding, % | both, % | routes | answers | tokens |\n|" + "---|" * 8)
    for name, rows in found.items():
        halves = [sum(row.done) / 2 for row in rows]
        by = {
            s: [row.done[[t.environment for t in m.tasks].index(s)] for row, m in zip(rows, mixed, strict=True)]
            for s in SUBJECTS
        }
        hops = sum((row.hops for row in rows), Counter[str]())
        tokens = sum(row.tokens for row in rows)
        both = share([float(all(row.done)) for row in rows])
        print(
            f"| {name} | {share(halves)} | {share(by['tools'])} | {share(by['coding'])} | {both} | "
            f"{hops[Hop.ROUTE]} | {hops[Hop.ANSWER]} | {tokens:,} |"
        )
    for name in POLICIES[1:]:
        pairs = zip(found[name], found["single"], strict=True)
        print(f"{name} less single, intents done: {share([(sum(a.done) - sum(b.done)) / 2 for a, b in pairs])}")
    for name in POLICIES[:2]:
        print(f"{name}, routes: {Counter(' '.join(row.routes) for row in found[name]).most_common(6)}")


def main() -> int:
    """Play every message under every policy and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, default=None)
    parser.add_argument("--generation", type=int, default=1)
    parser.add_argument("--messages", type=int, default=60)
    options = parser.parse_args()
    settings = load_settings(options.config)
    grown = [g for g in open_store(settings).generations(settings.family) if g.number == options.generation]
    if not grown:
        print(f"no generation {options.generation} of {settings.family!r}: run macaron-loop run first", file=sys.stderr)
        return 2
    pair = grown[-1].pair
    contract = open_contract(settings)
    environments = {one: environment(Spec(use=one)) for one in SUBJECTS}
    mixed = messages(contract, pair.harness, environments, options.messages)
    table({name: policy(name, settings, pair, mixed) for name in POLICIES}, mixed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
