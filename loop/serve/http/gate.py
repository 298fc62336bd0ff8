"""What every request passes before it is read: drain, body size and time, slow readers, and safe headers."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import MutableMapping
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from loop.serve.http.refusals import CLOSED, Refused
from loop.serve.http.service import Service

log = logging.getLogger(__name__)

# Nothing here is for a browser to guess at, to frame, or to keep.
_HEADERS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
]
DRAIN_SECONDS = 5
LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")
# What is asked while the server ends: that it ends, and its figures.
_ALWAYS = ("/health", "/metrics")


class _Stuck(Exception):
    """The client reads nothing; its connection is closed."""


class Gate:
    """Reads a request's body within its bounds and hands it on whole; gives up on who does not read the answer."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app, self.service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; see ASGI."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        self.service.open_requests += 1
        outgoing = _Outgoing(send, self.service.limits.read_seconds)
        try:
            self._check_host(scope)
            if self.service.is_draining and scope["path"] not in _ALWAYS:
                raise Refused(503, "the server is ending", code="draining", retry_after=DRAIN_SECONDS)
            body = await self._body(scope, receive)
            await self.app(scope, _Replay(body, receive), outgoing)
        except _Stuck:
            log.warning("a client did not read its answer within %g s", outgoing.seconds)
        except Refused as error:
            response = error.response(scope["path"])
            response.headers["Connection"] = "close"
            await response(scope, receive, outgoing)
        finally:
            self.service.open_requests -= 1
            route = getattr(scope.get("route"), "path", "none")
            self.service.figures.requested(route, outgoing.status)

    def _check_host(self, scope: Scope) -> None:
        """Without keys, a page that has its own name lead to this machine must not get in."""
        if self.service.access is not None:
            return
        host = next((value for name, value in scope["headers"] if name == b"host"), b"").decode("latin-1")
        if re.sub(r":\d+$", "", host) not in LOCAL_NAMES:
            raise Refused(403, "without keys this server answers to localhost alone", code="host_not_local")

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        limits = self.service.limits
        too_large = Refused(413, f"the body is larger than {limits.body_bytes:,} bytes", code="body_too_large")
        lengths = [value for name, value in scope["headers"] if name == b"content-length"]
        if lengths and int(lengths[0]) > limits.body_bytes:
            raise too_large
        try:
            async with asyncio.timeout(limits.body_seconds):
                return await _whole(receive, limits.body_bytes, too_large)
        except TimeoutError:
            raise Refused(408, f"the body did not come within {limits.body_seconds:g} s", code="timeout") from None


async def _whole(receive: Receive, most: int, too_large: Refused) -> bytes:
    body, more = bytearray(), True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > most:
            raise too_large
    return bytes(body)


class _Replay:
    """The body that was read, once; after it what the client does next, which is to go away."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self.body: bytes | None = body
        self.receive = receive

    async def __call__(self) -> MutableMapping[str, Any]:
        if self.body is None:
            return await self.receive()
        body, self.body = self.body, None
        return {"type": "http.request", "body": body, "more_body": False}


class _Outgoing:
    """Sends with a bound on how long the reader may stand still."""

    def __init__(self, send: Send, seconds: float) -> None:
        self.send, self.seconds, self.status = send, seconds, CLOSED

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            set_already = {name.lower() for name, _ in message["headers"]}
            message["headers"] = [*message["headers"], *(pair for pair in _HEADERS if pair[0] not in set_already)]
        try:
            async with asyncio.timeout(self.seconds):
                await self.send(message)
        except TimeoutError:
            raise _Stuck from None
