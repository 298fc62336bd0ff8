"""Many conversations on one engine: none lost, doubled or crossed, whatever breaks meanwhile."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from concurrent.futures import CancelledError

import pytest

from loop.core.conversation import EntryKind, Timeline
from loop.core.episode import Request
from loop.core.errors import LoopError, UserError
from loop.core.pair import Message
from loop.serve.hub import Busy, Hub
from loop.serve.turns import Delivered, Turns, told
from loop.store.blobs import FsBlobs
from tests import fakes
from tests.mol.turns import harness
from tests.serve.simulated import SECRET, Simulated, engine, made, user

__all__ = ["engine", "made"]


def test_a_plain_client_is_recognised_by_the_history_it_sends(made: Turns) -> None:
    async def talk() -> Timeline:
        said = [user("L1: secret-1")]
        first = await made.deliver("ana", said)
        said += [Message(role="assistant", content=first.exchange.reply.text), user("L2: go on")]
        second = await made.deliver("ana", said)
        await made.settle()
        return made.kept.timeline("ana", second.id)

    timeline = asyncio.run(talk())
    assert [(e.turn, e.kind.value, e.label) for e in timeline.entries if e.kind is not EntryKind.SUMMARY] == [
        (1, "user", ""),
        (1, "reply", "L1"),
        (2, "user", ""),
        (2, "reply", "L2"),
    ]


def test_a_history_that_nobody_here_has_played_is_taken_over_once(made: Turns) -> None:
    said = [user("hello"), Message(role="assistant", content="Hi, Ana."), user("L2: secret-7 now")]

    async def talk() -> Timeline:
        first = await made.deliver("ana", said)
        again = [*said, Message(role="assistant", content=first.exchange.reply.text), user("L2: and then")]
        second = await made.deliver("ana", again)
        assert second.exchange.reply.text == "secret-7 after 3"
        return made.kept.timeline("ana", second.id)

    timeline = asyncio.run(talk())
    assert [(e.turn, e.label) for e in timeline.entries if e.kind is EntryKind.REPLY] == [
        (1, "L0"),
        (2, "L2"),
        (3, "L2"),
    ]


def test_the_same_history_of_another_owner_is_another_conversation(made: Turns) -> None:
    async def talk() -> None:
        first = await made.deliver("ana", [user("L1: secret-1")])
        with pytest.raises(LookupError):
            await made.deliver("bob", [user("L1: go on")], after=first.id)

    asyncio.run(talk())


@pytest.mark.parametrize(
    ("said", "pin"), [([], ""), ([Message(role="assistant", content="hi")], ""), ([user("hi")], "L9")]
)
def test_what_cannot_be_answered_is_refused_before_anything_is_asked(
    made: Turns, said: list[Message], pin: str
) -> None:
    with pytest.raises(UserError):
        asyncio.run(made.deliver("ana", said, pin=pin))


def test_a_client_that_goes_away_leaves_no_turn(made: Turns, engine: Simulated) -> None:
    async def talk() -> None:
        first = await made.deliver("ana", [user("L1: secret-1")])
        await made.settle()
        engine.gate.clear()
        gone = asyncio.create_task(made.deliver("ana", [user("L1: two")], after=first.id))
        await asyncio.sleep(0.05)
        gone.cancel()
        engine.gate.set()
        with pytest.raises(asyncio.CancelledError):
            await gone
        again = await made.deliver("ana", [user("L1: two")], after=first.id)
        assert again.exchange.reply.text == "secret-1 after 2"

    asyncio.run(talk())


def test_a_reply_is_told_as_it_grows_and_is_whole_before_the_turn_is_committed(made: Turns) -> None:
    pieces: list[str] = []
    delivered = asyncio.run(made.deliver("ana", [user("L1: secret-1")], heard=pieces.append))
    assert pieces == ["secret-1", " after 1"] and delivered.exchange.reply.text == "secret-1 after 1"


def test_the_parts_of_a_reply_are_told_as_they_are_joined(made: Turns) -> None:
    split = harness(intents="split")
    made.pair = made.pair.revise(harness=split)
    pieces: list[str] = []
    said = "L1: tell me of secret-1; L2: tell me of secret-2"
    delivered = asyncio.run(made.deliver("ana", [user(said)], heard=pieces.append))
    assert delivered.exchange.reply.text == "secret-1 after 1\n\nsecret-1 secret-2 after 2"
    assert pieces == ["secret-1", " after 1", "\n\n", "secret-1 sec", "ret-2 after 2"]


def test_a_turn_that_nobody_waits_for_is_given_up_in_the_engine(made: Turns, engine: Simulated) -> None:
    pieces: list[str] = []

    async def talk() -> None:
        engine.ends.clear()
        task = asyncio.create_task(made.deliver("ana", [user("L1: secret-1")], heard=pieces.append))
        while not pieces:
            await asyncio.sleep(0.001)
        task.cancel()
        while not engine.given_up:
            await asyncio.sleep(0.001)
        engine.ends.set()
        again = await made.deliver("ana", [user("L1: secret-1")])
        assert again.exchange.reply.text == "secret-1 after 1"

    asyncio.run(talk())
    assert pieces[0] == "secret-1" and len(engine.given_up) == 1


def test_a_request_is_given_up_while_those_beside_it_go_on(engine: Simulated) -> None:
    hub = Hub(engine, fakes.BASE, FsBlobs(url="memory://beside"))
    request = Request(messages=(user("L1: x"),), adapter=None, sampling=harness().prompt("L1").sampling, seed=1)
    engine.gate.clear()
    first = hub.ask(request.revise(choices=("L1",)))
    while not first.running():
        time.sleep(0.001)
    told = threading.Event()
    gone, stays = hub.ask(request, lambda text: text and told.set()), hub.ask(request)
    engine.ends.clear()
    engine.gate.set()
    assert told.wait(5) and not gone.cancel()
    with pytest.raises(CancelledError):
        gone.result(5)
    assert stays.running()
    engine.ends.set()
    assert stays.result(5).text == " after 1" and len(engine.given_up) == 1
    hub.close(5)


def test_a_listener_that_breaks_ends_its_own_request_alone(engine: Simulated) -> None:
    hub = Hub(engine, fakes.BASE, FsBlobs(url="memory://broken"))
    request = Request(messages=(user("L1: x"),), adapter=None, sampling=harness().prompt("L1").sampling, seed=1)

    def broken(text: str) -> None:
        raise ValueError("no ears")

    answers = [hub.ask(request, broken), hub.ask(request)]
    assert isinstance(answers[0].exception(5), ValueError) and answers[1].result(5).text == " after 1"
    hub.close(5)


def test_a_request_that_the_engine_refuses_fails_its_own_turn_alone(made: Turns) -> None:
    async def talk() -> list[object]:
        said = [[user("L1: secret-1")], [user("L1: unanswerable")], [user("L2: secret-2")]]
        return await asyncio.gather(*(made.deliver("ana", one) for one in said), return_exceptions=True)

    first, refused, last = asyncio.run(talk())
    assert isinstance(refused, LoopError) and str(refused) == "the prompt is refused"
    assert isinstance(first, Delivered) and first.exchange.reply.text == "secret-1 after 1"
    assert isinstance(last, Delivered) and last.exchange.reply.text == "secret-2 after 1"


def test_too_many_waiting_requests_are_refused(engine: Simulated) -> None:
    hub = Hub(engine, fakes.BASE, FsBlobs(url="memory://busy"), most_waiting=2)
    request = Request(messages=(user("L1: x"),), adapter=None, sampling=harness().prompt("L1").sampling, seed=1)
    engine.gate.clear()
    begun = hub.ask(request)
    while not begun.running():
        time.sleep(0.001)
    waiting = [hub.ask(request), hub.ask(request)]
    with pytest.raises(Busy, match="2 requests wait"):
        hub.ask(request)
    engine.gate.set()
    assert [reply.result(5).text for reply in (begun, *waiting)] == [" after 1"] * 3
    hub.close(5)
    with pytest.raises(Busy, match="closing"):
        hub.ask(request)


class Crowd:
    """Clients that ask again when the engine died or they hung up; every tenth try hangs up at once."""

    def __init__(self, turns: Turns, engine: Simulated, deaths: Sequence[int]) -> None:
        self.turns, self.engine, self.deaths = turns, engine, list(deaths)
        self.tries = 0

    async def converse(self, number: int, length: int) -> None:
        last, secret = None, f"secret-{number}"
        for place in range(1, length + 1):
            said = [user(f"L{(number + place) % 3}: {secret} request {place}")]
            delivered = None
            while delivered is None:
                delivered = await self._try(said, last)
            assert delivered.exchange.reply.text == f"{secret} after {place}"
            last = delivered.id
        timeline = self.turns.kept.timeline("ana", last or "")
        users = [entry.content for entry in timeline.entries if entry.kind is EntryKind.USER]
        assert [int(text.split()[-1]) for text in users] == list(range(1, length + 1))
        assert {found for entry in timeline.entries for found in SECRET.findall(entry.content)} == {secret}

    async def _try(self, said: Sequence[Message], last: str | None) -> Delivered | None:
        self.tries += 1
        if self.deaths and self.tries >= self.deaths[0]:
            del self.deaths[0]
            self.engine.die += 1
        task = asyncio.create_task(self.turns.deliver("ana", said, after=last))
        if self.tries % 10 == 0:
            await asyncio.sleep(0.003)
            task.cancel()
        try:
            return await task
        except (ConnectionError, asyncio.CancelledError):
            return None


def test_no_turn_is_lost_doubled_or_crossed(made: Turns, engine: Simulated) -> None:
    """48 conversations of five turns; the engine dies twice and clients leave in every tenth try."""
    crowd = Crowd(made, engine, deaths=(60, 140))

    async def everybody() -> None:
        await asyncio.gather(*(crowd.converse(number, 5) for number in range(48)))
        await made.settle()

    asyncio.run(everybody())
    assert not crowd.deaths and engine.die == 0
    assert crowd.tries > 48 * 5 and engine.largest > 8


def test_an_unknown_history_has_one_turn_for_each_exchange() -> None:
    roles = ["system", "user", "assistant", "tool", "assistant", "user", "user", "assistant"]
    said = [Message.model_validate({"role": role, "content": role}) for role in roles]
    assert [entry.turn for entry in told(Timeline(), said, "L0").entries] == [1, 1, 1, 1, 1, 2, 2, 2]
