"""Who gets in, and what of: keys, scopes, quotas, and one owner's turns out of another's reach."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from loop.app import make_server, open_store
from loop.core.access import Quota, Scope
from loop.core.conversation import EntryKind
from loop.core.errors import UserError
from loop.serve.http.doors import shut_once_keyed
from loop.serve.http.gate import Gate
from loop.serve.http.run import Door
from loop.serve.http.service import Limits, Service
from loop.serve.turns import Turns
from loop.settings import Settings
from loop.store.access import SqlAccess
from loop.store.responses import SqlResponses
from tests.cli.test_bad_input import one_sentence, run
from tests.serve.http.started import Letters, Spelling, engine, kept_turns, posted, serving, turns, url
from tests.store import lineage

__all__ = ["engine", "turns", "url"]

CHAT = "/v1/chat/completions"
HELLO: dict[str, Any] = {"model": "macaron", "messages": [{"role": "user", "content": "L1: secret-1"}]}


@pytest.fixture
def access(turns: Turns) -> SqlAccess:
    return SqlAccess(turns.kept.url)  # type: ignore[attr-defined]


@pytest.fixture
def guarded(turns: Turns, access: SqlAccess) -> Iterator[str]:
    with serving(turns, access) as (address, _):
        yield address


def key(access: SqlAccess, owner: str = "ana", scope: Scope = Scope.CHAT, **quota: int) -> str:
    return access.create(owner, (scope,), Quota.model_validate(quota))[0]


def test_a_key_opens_the_server_in_either_header(guarded: str, access: SqlAccess) -> None:
    secret = key(access)
    assert posted(guarded, CHAT, HELLO, Authorization=f"Bearer {secret}").status_code == 200
    assert posted(guarded, CHAT, HELLO, **{"x-api-key": secret}).status_code == 200


def test_the_first_key_shuts_a_server_that_stood_open_and_turns_in_flight_are_answered(
    turns: Turns, access: SqlAccess, engine: Spelling
) -> None:
    with serving(turns) as (address, server), ThreadPoolExecutor() as pool:
        shutting = asyncio.run_coroutine_threadsafe(
            shut_once_keyed(server.service, access, lambda: bool(access.issued()), 0.01), server.loop
        )
        engine.gate.clear()
        begun = pool.submit(posted, address, CHAT, HELLO)
        while not engine.asked:
            time.sleep(0.005)
        assert server.service.access is None
        secret = key(access)
        shutting.result(10)
        assert posted(address, CHAT, HELLO).status_code == 401
        engine.gate.set()
        assert begun.result(30).status_code == 200
        assert posted(address, CHAT, HELLO, Authorization=f"Bearer {secret}").status_code == 200


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer mcl_forged"}, {"x-api-key": "x" * 5000}])
def test_without_a_valid_key_nothing_is_asked(guarded: str, engine: Spelling, headers: dict[str, str]) -> None:
    answer = posted(guarded, CHAT, HELLO, **headers)
    assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert "forged" not in answer.text and engine.asked == []


def test_a_revoked_key_and_one_of_another_scope_open_nothing(guarded: str, access: SqlAccess) -> None:
    secret, made = access.create("ana", (Scope.CHAT,), Quota())
    access.revoke(made.grant.key)
    assert posted(guarded, CHAT, HELLO, Authorization=f"Bearer {secret}").status_code == 401
    watcher = key(access, scope=Scope.METRICS)
    assert posted(guarded, CHAT, HELLO, Authorization=f"Bearer {watcher}").status_code == 403


def test_the_figures_are_those_of_what_was_asked(guarded: str, access: SqlAccess, engine: Spelling) -> None:
    posted(guarded, CHAT, HELLO, Authorization=f"Bearer {key(access)}")
    posted(guarded, "/v1/nowhere/<script>", HELLO)
    headers = {"Authorization": f"Bearer {key(access, scope=Scope.METRICS)}"}
    text = httpx2.get(f"{guarded}/metrics", headers=headers).text
    lines = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    assert lines['macaron_requests_total{route="/v1/chat/completions",status="200"}'] == "1.0"
    assert lines['macaron_requests_total{route="none",status="404"}'] == "1.0" and "script" not in text
    answered = engine.completion(engine.asked[-1])
    assert float(lines['macaron_tokens_total{hop="answer",kind="generated"}']) == len(answered.token_ids)
    assert float(lines['macaron_tokens_total{hop="route",kind="generated"}']) == len("L1") + 1
    assert lines["macaron_turn_seconds_count"] == "1.0" and lines["macaron_waiting_requests"] == "0.0"
    assert posted(guarded, CHAT, HELLO, **headers).status_code == 403


def test_a_spent_quota_says_when_to_come_again(guarded: str, access: SqlAccess) -> None:
    secret = key(access, requests_per_minute=1)
    assert posted(guarded, CHAT, HELLO, Authorization=f"Bearer {secret}").status_code == 200
    spent = posted(guarded, CHAT, HELLO, Authorization=f"Bearer {secret}")
    assert spent.status_code == 429 and 1 <= int(spent.headers["Retry-After"]) <= 60
    assert spent.json()["error"]["code"] == "rate_limit_exceeded"


def test_a_request_counts_the_tokens_of_its_hidden_hops_too(guarded: str, access: SqlAccess, engine: Spelling) -> None:
    secret = key(access, tokens_per_day=10_000)
    posted(guarded, CHAT, HELLO, Authorization=f"Bearer {secret}")
    completions = [engine.completion(request) for request in engine.asked]
    assert len(completions) == 2
    told = sum(len(done.prompt_ids) + len(done.token_ids) for done in completions)
    assert access.issued("ana")[0].tokens_today == told


def test_the_same_history_of_another_owner_is_another_conversation(
    guarded: str, access: SqlAccess, turns: Turns
) -> None:
    ana, bob = key(access), key(access, "bob")
    first = posted(guarded, CHAT, HELLO, Authorization=f"Bearer {ana}").json()
    reply = first["choices"][0]["message"]["content"]
    history = [*HELLO["messages"], {"role": "assistant", "content": reply}, {"role": "user", "content": "L1: more"}]
    heard = {}
    for owner, secret in (("ana", ana), ("bob", bob)):
        answer = posted(guarded, CHAT, HELLO | {"messages": history}, Authorization=f"Bearer {secret}").json()
        added = turns.kept.exchange(owner, answer["macaron"]["turn"]).added
        heard[owner] = [entry.content for entry in added if entry.kind is EntryKind.USER]
    assert heard == {"ana": ["L1: more"], "bob": ["L1: secret-1", "L1: more"]}


def test_a_page_that_names_this_machine_its_own_gets_nothing(url: str) -> None:
    answer = httpx2.get(f"{url}/v1/models", headers={"Host": "evil.example"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "host_not_local")


def test_a_body_is_read_up_to_its_bound(turns: Turns) -> None:
    with serving(turns, limits=Limits(body_bytes=1000)) as (url, _):
        large = HELLO | {"user": "x" * 1000}
        assert posted(url, CHAT, large).status_code == 413
        chunks = (b"x" * 300 for _ in range(10))
        assert httpx2.post(f"{url}{CHAT}", content=chunks).status_code == 413
        assert posted(url, CHAT, HELLO).status_code == 200


def test_a_body_that_comes_too_slowly_is_given_up(turns: Turns) -> None:
    with serving(turns, limits=Limits(body_seconds=0.2)) as (url, _), _connected(url) as line:
        line.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{")
        assert b" 408 " in line.recv(4096)


def test_a_head_that_comes_too_slowly_is_given_up(turns: Turns) -> None:
    with serving(turns, limits=Limits(head_seconds=0.2)) as (url, _), _connected(url) as line:
        line.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n")
        with suppress(ConnectionResetError):
            assert line.recv(4096) == b""


def test_an_answer_that_nobody_reads_is_given_up(turns: Turns) -> None:
    """The reader stands still after the head; what writes for it ends."""
    ended: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"x"})
        finally:
            ended.append(scope["path"])

    async def receive() -> dict[str, Any]:
        return {"type": "http.request"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()

    responses = SqlResponses(turns.kept.url)  # type: ignore[attr-defined]
    service = Service(turns, Letters(), responses, limits=Limits(read_seconds=0.05))
    scope = {"type": "http", "path": "/", "headers": [(b"host", b"localhost")]}
    asyncio.run(asyncio.wait_for(Gate(app, service)(scope, receive, send), 10))
    assert ended == ["/"] and service.open_requests == 0


def test_a_queue_that_is_full_sends_clients_away_for_a_while(engine: Spelling, tmp_path: Path) -> None:
    with kept_turns(engine, tmp_path, most_waiting=1) as turns, serving(turns) as (url, _):
        engine.gate.clear()
        with ThreadPoolExecutor() as pool:
            first = pool.submit(posted, url, CHAT, HELLO)
            while len(engine.asked) < 2:
                time.sleep(0.01)
            second = pool.submit(posted, url, CHAT, HELLO)
            while turns.hub.waiting < 1:
                time.sleep(0.01)
            busy = posted(url, CHAT, HELLO)
            engine.gate.set()
        assert (busy.status_code, busy.headers["Retry-After"], busy.json()["error"]["code"]) == (503, "1", "busy")
        assert (first.result().status_code, second.result().status_code) == (200, 200)


def test_headers_cannot_be_injected(url: str) -> None:
    request = HELLO | {"model": "macaron:L1\r\nX-Injected: 1"}
    answer = posted(url, CHAT, request)
    assert answer.status_code == 400 and "x-injected" not in answer.headers
    with _connected(url) as line:
        line.sendall(b"GET /v1/models/a%0d%0aX-Injected:%201 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        head = line.recv(65536).partition(b"\r\n\r\n")[0]
    assert b" 404 " in head and b"\r\nX-Injected" not in head


def _connected(url: str) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=10)


def test_without_keys_only_this_machine_is_served(turns: Turns, tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    store = open_store(settings)
    with pytest.raises(UserError, match="0.0.0.0 is reached from other machines.*keys create"):
        make_server(settings, store, turns, lineage.root(), Door(host="0.0.0.0"))
    one_sentence(run(tmp_path, "serve"), 2, "no generation to serve")
