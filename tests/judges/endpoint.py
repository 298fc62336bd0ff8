"""A small HTTP server that speaks the chat-completions API by a script and remembers what it was asked."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import Any

from loop.core.noun import Noun


class Said(Noun):
    """One HTTP reply: status, headers and body, and how it is sent.

    ``silent`` seconds pass before it; ``drip`` seconds pass between its bytes.
    """

    status: int = 200
    headers: dict[str, str] = {}
    body: str = ""
    silent: float = 0.0
    drip: float = 0.0


def completion(content: str | None, *, finish: str = "stop", refusal: str | None = None) -> Said:
    """A chat completion with one choice."""
    message = {"role": "assistant", "content": content, "refusal": refusal}
    return Said(body=json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": finish}]}))


def grade(score: object, quote: str = "", reason: str = "because") -> Said:
    """A completion that is a grade."""
    return completion(json.dumps({"quote": quote, "reason": reason, "score": score}))


@dataclass
class Served:
    """What the server was asked, and where it is; ``broken`` is set once a client went away amid an answer."""

    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    broken: Event = field(default_factory=Event)


Script = Callable[[int, dict[str, Any]], Said]
Routes = Callable[[int, str, dict[str, Any]], Said]


@contextmanager
def serve(script: Script) -> Iterator[Served]:
    """Answer each POST by ``script(number, body)``, with numbers from 0 in the order of arrival."""
    with serve_routes(lambda number, path, body: script(number, body)) as served:
        yield served


@contextmanager
def serve_routes(routes: Routes) -> Iterator[Served]:
    """Answer each request by ``routes(number, path, body)``; the body of a GET is empty."""
    served, lock = Served(), Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or "{}")
            with lock:
                number = len(served.bodies)
                served.bodies.append(body)
                served.headers.append(dict(self.headers))
                served.paths.append(self.path)
            try:
                self._send(routes(number, self.path, body))
            except OSError:
                self.close_connection = True  # the client has given up waiting
                served.broken.set()

        do_GET = do_POST

        def _send(self, said: Said) -> None:
            time.sleep(said.silent)
            data = said.body.encode()
            self.send_response(said.status)
            for name, value in said.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            step = 1 if said.drip else max(1, len(data))
            for start in range(0, len(data), step):
                self.wfile.write(data[start : start + step])
                time.sleep(said.drip)

        def log_message(self, format: str, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    served.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
