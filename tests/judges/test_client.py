"""One endpoint and everything that can go wrong with it: no failure raises, and none shows a secret."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from pydantic import ValidationError

from loop.core.errors import UserError
from loop.judges.client import Reply, exchange
from loop.judges.llm import LlmJudge
from loop.judges.prompt import RESPONSE_FORMAT
from loop.remote.endpoint import Endpoint
from loop.remote.line import opened, retry_after
from tests.judges.endpoint import Said, Script, completion, grade, serve

BODY: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
OK = grade(1)


def ask(
    script: Script, *, timeout: float = 5.0, retries: int = 2, left: int | None = None, **endpoint: object
) -> tuple[Reply, list[dict[str, Any]]]:
    """One exchange with a scripted server, and the bodies it saw."""
    with serve(script) as served:
        made = Endpoint.model_validate({"url": served.url, "model": "m", **endpoint})
        with opened((made,), timeout=timeout, retries=retries, backoff=0.001) as (line,):
            line.allowance.left = left
            return exchange(line, BODY, RESPONSE_FORMAT), served.bodies


def test_a_completion_is_its_text() -> None:
    reply, bodies = ask(lambda number, body: completion("hi"))
    assert reply == Reply("hi", "", 1)
    assert bodies[0] == BODY | {"response_format": RESPONSE_FORMAT}


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 529])
def test_a_passing_failure_is_asked_again_and_every_request_counts(status: int) -> None:
    reply, bodies = ask(lambda number, body: OK if number == 2 else Said(status=status))
    assert reply.content and reply.calls == len(bodies) == 3


@pytest.mark.parametrize("status", [401, 403, 404, 302, 501])
def test_the_tries_are_bounded_and_a_final_failure_has_one(status: int) -> None:
    reply, bodies = ask(lambda number, body: Said(status=status, headers={"Location": "/elsewhere"}))
    assert reply.content is None and reply.problem == f"HTTP {status}"
    assert reply.calls == len(bodies) == (3 if status >= 500 else 1)


def test_silence_and_a_reply_that_drips_are_both_timeouts() -> None:
    for said in (Said(silent=1.0, body=OK.body), OK.revise(drip=0.05)):
        reply, _ = ask(lambda number, body, said=said: said, timeout=0.3, retries=0)
        assert reply == Reply(None, "no answer within 0.3 s", 1)


def test_no_server_is_a_failure_like_any_other() -> None:
    with serve(lambda number, body: OK) as served:
        gone = served.url
    with opened((Endpoint(url=gone, model="m"),), timeout=1, retries=1, backoff=0.001) as (line,):
        reply = exchange(line, BODY, RESPONSE_FORMAT)
    assert (reply.content, reply.calls) == (None, 2) and "connection failed" in reply.problem


@pytest.mark.parametrize("url", ["http://a..b/v1", "http://" + "a" * 64 + ".example/v1"])
def test_a_host_that_cannot_be_looked_up_is_a_failure_like_any_other(url: str) -> None:
    with opened((Endpoint(url=url, model="m"),), timeout=5, retries=0, backoff=1) as (line,):
        reply = exchange(line, BODY, RESPONSE_FORMAT)
    assert reply.content is None and reply.calls == 1


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        (Said(body="<html>"), "malformed: not a chat completion"),
        (Said(body='{"choices": []}'), "malformed: not a chat completion"),
        (Said(body='{"choices":' + "[" * 100_000), "malformed: not a chat completion"),
        (Said(body="x" * 1_000_001), "malformed: the reply is too large"),
        (completion(None), "malformed: the answer is empty"),
        (completion("{", finish="length"), "malformed: the answer was cut off"),
        (completion(None, refusal="I cannot help."), "refused"),
        (completion("", finish="content_filter"), "refused"),
        (Said(body=OK.body, headers={"Content-Encoding": "gzip"}), "the endpoint cannot be used (DecodingError)"),
    ],
)
def test_what_is_no_answer_says_why_and_is_not_asked_again(said: Said, problem: str) -> None:
    assert ask(lambda number, body: said)[0] == Reply(None, problem, 1)


def test_an_endpoint_without_structured_output_is_asked_without_and_then_never_again_with() -> None:
    def script(number: int, body: dict[str, Any]) -> Said:
        return Said(status=400) if "response_format" in body else OK

    with (
        serve(script) as served,
        opened((Endpoint(url=served.url, model="m"),), timeout=5, retries=0, backoff=1) as (line,),
    ):
        first, second = (exchange(line, BODY, RESPONSE_FORMAT) for _ in range(2))
        assert (first.calls, second.calls, len(served.bodies)) == (2, 1, 3) and first.content == second.content
    told, bodies = ask(script, structured=False)
    assert told.calls == len(bodies) == 1


def test_a_bad_request_is_not_taken_for_missing_structured_output() -> None:
    with (
        serve(lambda number, body: Said(status=400) if number < 2 else OK) as served,
        opened((Endpoint(url=served.url, model="m"),), timeout=5, retries=0, backoff=1) as (line,),
    ):
        assert exchange(line, BODY, RESPONSE_FORMAT) == Reply(None, "HTTP 400", 2)
        exchange(line, BODY, RESPONSE_FORMAT)
        assert "response_format" in served.bodies[2]


def test_the_allowance_bounds_the_retries() -> None:
    reply, bodies = ask(lambda number, body: Said(status=503), left=1, retries=5)
    assert (reply.calls, len(bodies)) == (2, 2) and reply.problem == "the budget of judge calls is spent"


def test_retry_after_is_read_in_seconds_and_as_a_date() -> None:
    # The date is the example of RFC 9110, 5.6.7.
    now = datetime(1994, 11, 6, 8, 49, 7, tzinfo=UTC)
    assert retry_after("120", now) == 120.0
    assert retry_after("Sun, 06 Nov 1994 08:49:37 GMT", now) == 30.0
    assert retry_after("Sun, 06 Nov 1994 08:48:37 GMT", now) == 0.0
    assert [retry_after(text, now) for text in ("", "soon", "-3", "\u0663")] == [None] * 4


class Pauses(Event):
    """Keeps the pauses it is asked to make, and makes none."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.kept.append(timeout or 0.0)
        return False


def test_the_pause_an_endpoint_asks_for_is_kept_and_else_pauses_grow_within_bounds() -> None:
    for header, longest in (({"Retry-After": "7"}, [7.0, 7.0, 7.0]), ({}, [0.5, 1.0, 2.0])):
        pauses = Pauses()
        said = Said(status=503, headers=header)
        with (
            serve(lambda number, body, said=said: said) as served,
            opened((Endpoint(url=served.url, model="m"),), timeout=5, retries=3, backoff=0.5) as (line,),
        ):
            line.allowance.closed = pauses
            assert exchange(line, BODY, RESPONSE_FORMAT).calls == 4
        assert len(pauses.kept) == 3
        assert all(0 <= made <= bound for made, bound in zip(pauses.kept, longest, strict=True))
        assert not header or pauses.kept == longest


def test_an_endpoint_that_wants_a_pause_too_long_is_not_waited_for() -> None:
    reply, _ = ask(lambda number, body: Said(status=429, headers={"Retry-After": "3600"}))
    assert reply == Reply(None, "HTTP 429, to be asked again after 3600 s", 1)


def test_a_closed_allowance_ends_the_tries_at_once() -> None:
    with (
        serve(lambda number, body: Said(status=503)) as served,
        opened((Endpoint(url=served.url, model="m"),), timeout=5, retries=3, backoff=60) as (line,),
    ):
        line.allowance.closed.set()
        assert exchange(line, BODY, RESPONSE_FORMAT).calls == 1


def test_the_key_goes_into_the_header_and_nowhere_else(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    secret = "sk-not-to-be-seen"
    monkeypatch.setenv("JUDGE_KEY", f"{secret}\n")
    (tmp_path / "key").write_text(secret)
    caplog.set_level(logging.DEBUG)
    for reference in ("env:JUDGE_KEY", f"file:{tmp_path / 'key'}"):
        # A server that repeats the key in its error, as some do.
        with serve(lambda number, body: Said(status=401, body=f"bad key {secret}")) as served:
            endpoint = Endpoint(url=served.url, model="m", api_key=reference)
            with opened((endpoint,), timeout=5, retries=0, backoff=1) as (line,):
                reply = exchange(line, BODY, RESPONSE_FORMAT)
                shown = [repr(endpoint), repr(line), repr(reply), endpoint.model_dump_json(), *served.bodies]
        assert served.headers[0]["Authorization"] == f"Bearer {secret}"
        assert secret not in " ".join(map(str, shown))
    assert secret not in caplog.text
    assert endpoint.digest == endpoint.revise(api_key="").digest


@pytest.mark.parametrize("found", ["", "two words", "bro\nken", "sch\u00f6n"])
def test_a_key_that_fits_no_header_is_told_by_its_reference_alone(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JUDGE_KEY", found)
    with pytest.raises(UserError, match="env:JUDGE_KEY") as caught:
        Endpoint(url="http://host", model="m", api_key="env:JUDGE_KEY").key()
    assert not found or found not in str(caught.value)
    reply, bodies = ask(lambda number, body: OK, api_key="env:JUDGE_KEY")
    assert reply.content is None and "env:JUDGE_KEY" in reply.problem and not bodies


@pytest.mark.parametrize("reference", ["env:NO_SUCH_KEY", "file:no/such/file"])
def test_a_key_that_is_not_there_is_named(reference: str) -> None:
    with pytest.raises(UserError, match=reference):
        Endpoint(url="http://host", model="m", api_key=reference).key()


@pytest.mark.parametrize(
    "options",
    [
        {"url": "http://host", "api_key": "sk-a-key-itself"},
        {"url": "http://user:sk-a-key-itself@host"},
        {"url": "http://host/v1?key=sk-a-key-itself"},
        {"url": "ftp://host"},
        {"url": "http://"},
        {"url": "http://host:99999"},
    ],
)
def test_an_endpoint_takes_no_key_itself(options: dict[str, str]) -> None:
    from loop.core.plan import Spec
    from loop.plugins import judge

    for refused in (
        lambda: Endpoint(model="m", **options),
        lambda: LlmJudge.model_validate({"endpoints": [{"model": "m", **options}]}),
    ):
        with pytest.raises(ValidationError) as shown:
            refused()
        assert "sk-a-key-itself" not in str(shown.value)
    with pytest.raises(UserError) as caught:
        judge(Spec(use="llm", options={"endpoints": [{"model": "m", **options}]}))
    assert "sk-a-key-itself" not in str(caught.value)
