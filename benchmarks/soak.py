"""Many people at once over HTTP: no turn lost, doubled or crossed, while the engine dies and clients hang up.

Each conversation tells a secret of its own, under an owner of its own or shared, and expects of every
reply its own secret, nobody else's, and the count of what it has said. The engine is simulated (it
writes a word of every live reply per step) and is killed at a third and at two thirds of the time; in every
tenth turn the client reads the beginning of its answer, hangs up, and says the same again. The
server, the wire, the turns, the routing and the store are the real ones.

    python -m benchmarks.soak --conversations 256 --seconds 600
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx2

from loop.core.base import Base
from loop.core.conversation import EntryKind, history_of
from loop.core.episode import Completion, Failure, Request
from loop.core.pair import Harness, Message, Pair, Prompt, Routing
from loop.ports import Blobs, EngineReport, Follow, Hear
from loop.serve.http.run import Door, Server, bound
from loop.serve.http.server import make_app
from loop.serve.http.service import Service
from loop.serve.hub import Hub
from loop.serve.turns import Turns
from loop.store.blobs import FsBlobs
from loop.store.conversations import SqlConversations
from loop.store.migrate import upgrade
from loop.store.responses import SqlResponses

SECRET = re.compile(r"secret-\d+")
LABELS = ("L0", "L1", "L2")
STEP = 0.02
OWNER = "local"
BASE = Base(id="simulated", family="simulated", weights_digest="0" * 64, context_length=4096, parameters=1)
HARNESS = Harness(
    schema_version=1,
    name="soak",
    prompts=tuple(Prompt(label=label, role=f"role {label}", system=f"You are {label}.") for label in LABELS),
    routing=Routing(prompt="Choose:\n{labels}", labels=LABELS, fallback="L0"),
)
PADDING = ["and", "so", "on", "and", "on", "with", "nothing", "more", "to", "say"]


def reply_to(request: Request) -> str:
    """As a router the label before the colon; as a specialist the secrets it sees and how often the user spoke."""
    last = request.messages[-1].content
    if request.choices:
        return last.rpartition("Message: ")[2].partition(":")[0]
    seen = sorted(set(SECRET.findall(" ".join(message.content for message in request.messages))))
    count = sum(message.role == "user" for message in request.messages)
    return " ".join((*seen, "after", str(count), *PADDING))


@dataclass
class Live:
    """A reply that is being written."""

    request: Request
    words: list[str]
    said: int = 0


class Paced:
    """A batch engine with a step's wait for every word; ``kill`` breaks the call that runs."""

    def __init__(self) -> None:
        self.kill = threading.Event()
        self.killed = self.largest = self.given_up = 0

    def generate(
        self,
        base: Base,
        blobs: Blobs,
        requests: Sequence[tuple[int, Request]],
        follow: Follow,
        hear: Hear | None = None,
    ) -> EngineReport:
        """Write all replies side by side; see the port."""
        live = {key: _live(request) for key, request in requests}
        failures: dict[int, Failure] = {}
        while live:
            self.largest = max(self.largest, len(live))
            if self.kill.is_set() and len(live) > 1:
                self.kill.clear()
                self.killed += 1
                raise ConnectionError("the engine was killed")
            time.sleep(STEP)
            for key, row in list(live.items()):
                row.said += 1
                text = " ".join(row.words[: row.said])
                if hear is not None and not row.request.choices and not hear(key, text):
                    failures[key] = Failure(boundary="cancelled", message="given up")
                    self.given_up += 1
                    del live[key]
                elif row.said >= len(row.words):
                    del live[key]
                    done = Completion(text=text, prompt_ids=(1,), token_ids=(2,), logprobs=(0.0,), finish="stop")
                    live |= {other: _live(request) for other, request in follow(key, done)}
        return EngineReport(failures=failures)


def _live(request: Request) -> Live:
    text = reply_to(request)
    return Live(request, [text] if request.choices else text.split(" "))


class Words:
    """No tokenizer: nobody here asks for tokens."""

    def text(self, tokens: Sequence[int]) -> str:
        """See Words of the service."""
        raise NotImplementedError

    def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        """See Words of the service."""
        raise NotImplementedError


@dataclass
class Seen:
    """What all clients saw together."""

    turns: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    said: dict[int, list[dict[str, str]]] = field(default_factory=dict)


async def client(number: int, http: httpx2.AsyncClient, until: float, seen: Seen, draw: random.Random) -> None:
    """One conversation, told by its whole history, until the time is over."""
    secret, label = f"secret-{number}", LABELS[number % 3]
    said = seen.said[number] = []
    turn = 0
    while time.monotonic() < until:
        turn += 1
        words = f"{label}: {f'my word is {secret}' if turn == 1 else f'turn {turn}'}"
        said.append({"role": "user", "content": words})
        leaves = turn % 10 == 0
        reply = None
        while reply is None:
            started = time.monotonic()
            outcome, reply = await ask(http, said, leaves)
            leaves = False
            seen.turns[outcome] += 1
            if reply is None and outcome != "hung up":
                await asyncio.sleep(0.2 + draw.random())
        seen.seconds.append(time.monotonic() - started)
        expected = " ".join((secret, "after", str(turn), *PADDING))
        if reply != expected:
            seen.faults.append(f"conversation {number}, turn {turn}: {reply!r}")
        said.append({"role": "assistant", "content": reply})
        await asyncio.sleep(draw.random())


async def ask(http: httpx2.AsyncClient, said: Sequence[dict[str, str]], leaves: bool) -> tuple[str, str | None]:
    """One request: how it ended, and the whole reply where it did."""
    body = {"model": "macaron", "messages": list(said), "stream": True}
    try:
        async with http.stream("POST", "/v1/chat/completions", json=body) as answer:
            if answer.status_code == 200:
                return await read(answer, leaves)
            await answer.aread()
            return f"refused, {answer.status_code}", None
    except httpx2.HTTPError as error:
        return f"connection: {type(error).__name__}", None


async def read(answer: httpx2.Response, leaves: bool) -> tuple[str, str | None]:
    """The stream to its end, or its first piece where the client leaves."""
    pieces: list[str] = []
    async for line in answer.aiter_lines():
        data = line.removeprefix("data: ")
        if not line.startswith("data: ") or data == "[DONE]":
            continue
        event = json.loads(data)
        if "error" in event:
            return "broken off by the engine", None
        pieces += [choice["delta"].get("content") or "" for choice in event["choices"]]
        if leaves and pieces:
            return "hung up", None
    return "answered", "".join(pieces)


async def soak(service: Service, engine: Paced, conversations: int, seconds: float) -> Seen:
    """All clients at once against a server of this process."""
    seen, started = Seen(), time.monotonic()
    door = Door(port=0, owner=OWNER)
    listening = bound(door)
    server = Server(make_app(service), door, ready)
    serving = asyncio.create_task(server.serve([listening]))
    while not service.is_ready:
        await asyncio.sleep(0.05)
    port = listening.getsockname()[1]
    bounds = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", limits=bounds, timeout=120) as http:
        until = started + seconds
        clients = [client(n, http, until, seen, random.Random(n)) for n in range(conversations)]
        playing = asyncio.gather(*clients)
        for _ in range(2):
            await asyncio.sleep(seconds / 3)
            engine.kill.set()
        await playing
    server.drain()
    await serving
    return seen


def kept_faults(kept: SqlConversations, seen: Seen) -> list[str]:
    """What is wrong with the conversations as the store has them: each whole, in order, and nobody else's."""
    faults = []
    for number, said in seen.said.items():
        messages = [Message.model_validate(message) for message in said]
        found = kept.find(OWNER, history_of(messages))
        if found is None:
            faults.append(f"conversation {number} is lost")
            continue
        timeline = kept.timeline(OWNER, found)
        words = [entry.content for entry in timeline.entries if entry.kind in (EntryKind.USER, EntryKind.REPLY)]
        if words != [message.content for message in messages]:
            faults.append(f"conversation {number} is kept otherwise than it was said")
    return faults


def main() -> int:
    """Print what was seen; 1 for any fault."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conversations", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=600.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'soak.db'}"
        upgrade(url)
        engine, kept = Paced(), SqlConversations(url)
        hub = Hub(engine, BASE, FsBlobs(url=f"file://{folder}/blobs"), most_waiting=4 * options.conversations)  # type: ignore[arg-type]
        turns = Turns(Pair(base=BASE, adapters=(), harness=HARNESS), hub, kept)
        service = Service(turns, Words(), SqlResponses(url), owner=OWNER)
        seen = asyncio.run(soak(service, engine, options.conversations, options.seconds))
        hub.close(10)
        faults = [*seen.faults, *kept_faults(kept, seen)]
    took = sorted(seen.seconds)
    print(f"{options.conversations} conversations, {options.seconds:.0f} s: {len(took)} turns were answered")
    print(f"a turn: median {took[len(took) // 2]:.2f} s, 99 % within {took[len(took) * 99 // 100]:.2f} s")
    for outcome, count in seen.turns.most_common():
        print(f"{count:8}  {outcome}")
    print(f"engine: killed {engine.killed} times, {engine.given_up} replies given up, at most {engine.largest} at once")
    print(f"lost, doubled or crossed: {len(faults)}")
    for fault in faults[:10]:
        print(f"  {fault}")
    return int(bool(faults) or engine.killed != 2)


async def ready() -> None:
    """Nothing has to be loaded."""


if __name__ == "__main__":
    sys.exit(main())
