"""A really started server, and an engine that spells, calls tools and keeps to schemas, for tests of the proxy."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from loop.core.access import Access
from loop.core.base import Base
from loop.core.episode import Completion, Failure, Request
from loop.core.pair import Message, Pair
from loop.ports import Blobs, EngineReport, Follow, Hear
from loop.serve.http.run import Door, Server, address, bound
from loop.serve.http.server import make_app
from loop.serve.http.service import Limits, Service
from loop.serve.hub import Hub
from loop.serve.turns import Turns
from loop.store.blobs import FsBlobs
from loop.store.conversations import SqlConversations
from loop.store.database import dispose
from loop.store.migrate import upgrade
from loop.store.responses import SqlResponses
from tests import fakes
from tests.mol.turns import harness
from tests.serve import simulated

CONTEXT = 6000
CITY = re.compile(r"weather in (\w+)")
TOOL = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def answer(request: Request) -> str:
    """As ``simulated.answer``; "weather in X" calls an offered get_weather, and a result is told as it came.

    Of a schema it makes JSON of one key on a second try, and nonsense on the first, greedy one.
    """
    last, before = request.messages[-1], request.messages[-2].content if len(request.messages) > 1 else ""
    if request.choices:
        return simulated.answer(request)
    if last.role == "tool":
        return f"It is {last.content}."
    if "JSON" in before:
        return json.dumps({"city": "Oslo"}) if request.sampling.temperature else "no JSON"
    city = CITY.search(last.content)
    if city and any("get_weather" in message.content for message in request.messages[:-1]):
        return json.dumps({"tool": "get_weather", "city": city.group(1)})
    return simulated.answer(request)


class Spelling:
    """Its tokens are the code points of letters, 2 ends a reply; ``asked`` keeps all requests of turns.

    ``readied`` keeps those that only make the router ready behind a reply.

    ``gate`` holds answers back once their first half was told.
    """

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.readied: list[Request] = []
        self.gate = threading.Event()
        self.gate.set()

    def generate(
        self,
        base: Base,
        blobs: Blobs,
        requests: Sequence[tuple[int, Request]],
        follow: Follow,
        hear: Hear | None = None,
    ) -> EngineReport:
        waiting, failures = list(requests), dict[int, Failure]()
        while waiting:
            key, request = waiting.pop(0)
            is_ahead = request.messages[-1].content.endswith("Message: ")
            (self.readied if is_ahead else self.asked).append(request)
            done = self.completion(request)
            if hear is not None and not request.choices and not self._is_wanted(key, done.text, hear):
                failures[key] = Failure(boundary="cancelled", message="given up")
                continue
            waiting.extend(follow(key, done))
        return EngineReport(failures=failures)

    def _is_wanted(self, key: int, text: str, hear: Hear) -> bool:
        hear(key, text[: len(text) // 2])
        self.gate.wait(20)
        return hear(key, text)

    def completion(self, request: Request) -> Completion:
        prompt = tuple(ord(letter) for message in request.messages for letter in message.content)
        if len(prompt) > CONTEXT and not request.choices:
            return Completion(text="", prompt_ids=prompt, token_ids=(), logprobs=(), finish="length")
        text = answer(request)[: request.sampling.max_tokens]
        ends = len(text) < request.sampling.max_tokens
        tokens = (*map(ord, text), *((2,) if ends else ()))
        values = tuple(-0.5 for _ in tokens)
        finish = "choice" if request.choices else "stop" if ends else "length"
        return Completion(text=text, prompt_ids=prompt, token_ids=tokens, logprobs=values, finish=finish)


class Letters:
    """The text side of ``Spelling``."""

    def text(self, tokens: Sequence[int]) -> str:
        return "".join(chr(token) for token in tokens if token > 2)

    def render(self, messages: Sequence[Message]) -> tuple[int, ...]:
        return tuple(ord(letter) for message in messages for letter in message.content)


@pytest.fixture
def engine() -> Spelling:
    return Spelling()


@contextmanager
def kept_turns(engine: Spelling, folder: Path, most_waiting: int = 256) -> Iterator[Turns]:
    """Turns on a database in this folder; what an earlier call kept there goes on."""
    database = f"sqlite:///{folder / 'loop.db'}"
    upgrade(database)
    pair = Pair(base=fakes.BASE, adapters=(), harness=harness())
    hub = Hub(engine, pair.base, FsBlobs(url="memory://turns"), most_waiting)  # type: ignore[arg-type]
    try:
        yield Turns(pair, hub, SqlConversations(database))
    finally:
        engine.gate.set()
        hub.close(10)
        dispose(database)


@pytest.fixture
def turns(engine: Spelling, tmp_path: Path) -> Iterator[Turns]:
    with kept_turns(engine, tmp_path) as made:
        yield made


LIMITS = Limits()


@contextmanager
def serving(
    turns: Turns, access: Access | None = None, limits: Limits = LIMITS, drain: float = 5.0
) -> Iterator[tuple[str, Server]]:
    """The address of a server that takes turns, and the server; it is drained at the end."""
    service = Service(turns, Letters(), SqlResponses(turns.kept.url), access, limits=limits)  # type: ignore[attr-defined]

    async def ready() -> None: ...

    door = Door(port=0, drain_seconds=drain)
    listening = bound(door)
    server = Server(make_app(service), door, ready)
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    while not (server.started and service.is_ready):
        assert thread.is_alive(), "the server did not start"
        time.sleep(0.005)
    try:
        yield address(listening), server
    finally:
        server.loop.call_soon_threadsafe(server.drain)
        thread.join(20)
        assert not thread.is_alive(), "the server did not end"


@pytest.fixture
def url(turns: Turns) -> Iterator[str]:
    with serving(turns) as (found, _):
        yield found


def posted(url: str, path: str, body: object, **headers: str) -> httpx2.Response:
    return httpx2.post(f"{url}{path}", json=body, headers=headers, timeout=30)
