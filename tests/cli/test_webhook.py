"""A webhook on this machine: told once, told again when it stumbles, never named in what is said of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from loop.cli.webhook import open_webhook
from loop.core.errors import UserError

SECRET = "T0KEN-nobody-may-read"


class Listener(ThreadingHTTPServer):
    """Answers with the statuses in turn (the last one for ever) and keeps what it was sent."""

    def __init__(self, statuses: list[int]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.statuses, self.taken = statuses, list[tuple[str, dict[str, object]]]()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/{SECRET}"


class Handler(BaseHTTPRequestHandler):
    server: Listener

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.taken.append((self.path, body))
        statuses = self.server.statuses
        self.send_response(statuses.pop(0) if len(statuses) > 1 else statuses[0])
        self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST

    def log_message(self, *_: object) -> None: ...


@contextmanager
def listening(*statuses: int) -> Iterator[Listener]:
    with Listener(list(statuses)) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def test_it_is_told_once_by_a_json_post() -> None:
    with listening(204) as server:
        assert open_webhook(server.url).post({"text": "promoted"}) is None
        assert server.taken == [(f"/{SECRET}", {"text": "promoted"})]


def test_a_server_error_is_tried_again_a_refusal_is_not() -> None:
    with listening(503, 429, 200) as server:
        assert open_webhook(server.url).post({"n": 1}, pauses=(0.0, 0.0)) is None
        assert len(server.taken) == 3
    with listening(503) as server:
        problem = open_webhook(server.url).post({"n": 1}, pauses=(0.0, 0.0))
        assert problem is not None and "503" in problem and len(server.taken) == 3
    with listening(404) as server:
        problem = open_webhook(server.url).post({"n": 1}, pauses=(0.0, 0.0))
        assert problem is not None and "404" in problem and len(server.taken) == 1


def test_it_follows_no_redirect() -> None:
    with listening(307) as server:
        problem = open_webhook(server.url).post({"n": 1}, pauses=())
        assert problem is not None and "307" in problem
        assert [path for path, _ in server.taken] == [f"/{SECRET}"]


def test_no_sentence_ever_holds_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    with listening(500) as server:
        gone = server.url
        monkeypatch.setenv("HOOK", gone)
        said = [open_webhook("env:HOOK").post({}, pauses=()), open_webhook(gone).post({}, pauses=())]
    said.append(open_webhook("env:HOOK").post({}, pauses=()))  # nobody listens any more
    for url in (f"ftp://host/{SECRET}", f"http://example.org/{SECRET}", f"https:///{SECRET}", f"https://[{SECRET}"):
        monkeypatch.setenv("HOOK", url)
        for reference in ("env:HOOK", url):
            with pytest.raises(UserError) as caught:
                open_webhook(reference)
            said.append(str(caught.value))
    for kind in ("env", "file"):
        with pytest.raises(UserError) as caught:
            open_webhook(f"{kind}:https://example.org/{SECRET}")
        said.append(str(caught.value))
    said.append(open_webhook(f"https://127.0.0.1:1/{SECRET} with a space").post({}, pauses=()))
    assert all(text and SECRET not in text for text in said), said
    assert said[0] is not None and "env:HOOK" in said[0]


def test_a_reference_names_a_variable_or_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    secret = tmp_path / "hook"
    secret.write_text("https://example.org/x\n")
    assert open_webhook(f"file:{secret}").url == "https://example.org/x"
    monkeypatch.delenv("HOOK", raising=False)
    for missing in ("env:HOOK", f"file:{tmp_path / 'nowhere'}"):
        with pytest.raises(UserError, match="names nothing"):
            open_webhook(missing)
