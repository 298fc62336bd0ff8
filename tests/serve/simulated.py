"""A simulated engine for conversations, and turns on it over a real database."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pytest

from loop.core.base import Base
from loop.core.episode import Completion, Failure, Request
from loop.core.pair import Message, Pair
from loop.ports import Blobs, EngineReport, Follow, Hear
from loop.serve.hub import Hub
from loop.serve.turns import Turns
from loop.store.blobs import FsBlobs
from loop.store.conversations import SqlConversations
from loop.store.database import dispose
from loop.store.migrate import upgrade
from tests import fakes
from tests.mol.turns import harness

SECRET = re.compile(r"secret-\d+")


def answer(request: Request) -> str:
    """As a router the word before the colon; as a specialist every secret and the count of users' words it sees."""
    last = request.messages[-1].content
    if request.choices:
        return last.rpartition("Message: ")[2].partition(":")[0]
    seen = sorted(set(SECRET.findall(" ".join(message.content for message in request.messages))))
    return f"{' '.join(seen)} after {sum(message.role == 'user' for message in request.messages)}"


class Simulated:
    """An engine that answers in batches of random size; ``die`` makes its next calls raise midway.

    Replies grow by a half, and end while ``ends`` is set; ``given_up`` are those that nobody wanted.
    """

    def __init__(self) -> None:
        self.die = 0
        self.largest = 0
        self.given_up: list[Request] = []
        self.gate, self.ends = threading.Event(), threading.Event()
        self.gate.set()
        self.ends.set()

    def generate(
        self,
        base: Base,
        blobs: Blobs,
        requests: Sequence[tuple[int, Request]],
        follow: Follow,
        hear: Hear | None = None,
    ) -> EngineReport:
        draw, live = Random(len(requests)), list(requests)
        failures: dict[int, Failure] = {}
        halves: Counter[int] = Counter()
        while live:
            self.gate.wait(10)
            self.largest = max(self.largest, len(live))
            if self.die and len(live) > 1:
                self.die -= 1
                raise ConnectionError("the engine was killed")
            time.sleep(0.001)
            key, request = live.pop(draw.randrange(len(live)))
            if "unanswerable" in request.messages[-1].content:
                failures[key] = Failure(boundary="engine", message="the prompt is refused")
                continue
            text = answer(request)
            if hear is not None and not request.choices:
                if not hear(key, text[: len(text) * halves[key] // 2]):
                    failures[key] = Failure(boundary="cancelled", message="given up")
                    self.given_up.append(request)
                    continue
                halves[key] = min(halves[key] + 1, 2)
                if halves[key] < 2 or not self.ends.is_set():
                    live.append((key, request))
                    continue
            reply = Completion(text=text, prompt_ids=(1,), token_ids=(2,), logprobs=(0.0,), finish="stop")
            live.extend(follow(key, reply))
        return EngineReport(failures=failures)


def user(text: str) -> Message:
    return Message(role="user", content=text)


@pytest.fixture
def engine() -> Simulated:
    return Simulated()


@pytest.fixture
def made(engine: Simulated, tmp_path: Path) -> Iterator[Turns]:
    url = f"sqlite:///{tmp_path / 'loop.db'}"
    upgrade(url)
    pair = Pair(base=fakes.BASE, adapters=(), harness=harness())
    hub = Hub(engine, pair.base, FsBlobs(url="memory://turns"))
    yield Turns(pair, hub, SqlConversations(url))
    engine.gate.set()
    engine.ends.set()
    hub.close(10)
    dispose(url)
