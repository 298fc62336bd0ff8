"""Runs the application: bounds on connections, readiness, and an end in which what was begun is answered."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Awaitable, Callable
from ipaddress import ip_address
from types import FrameType
from typing import Any, cast

import uvicorn
from fastapi import FastAPI
from pydantic import Field
from uvicorn.protocols.http.h11_impl import H11Protocol

from loop.core.errors import UserError
from loop.core.noun import Noun
from loop.serve.http.service import Service

HEADER_BYTES = 32 * 1024
IDLE_SECONDS = 30
MOST_CONNECTIONS = 1024


class Door(Noun):
    """Where the server listens, and as whom it lets people in where no keys are kept."""

    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    owner: str = "local"
    drain_seconds: float = Field(default=60.0, ge=0)

    @property
    def is_local(self) -> bool:
        """Whether only this machine reaches it."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def bound(door: Door) -> socket.socket:
    """The door's socket, listening; UserError where it cannot."""
    try:
        family = socket.AF_INET6 if ":" in door.host else socket.AF_INET
        return socket.create_server((door.host, door.port), family=family, backlog=MOST_CONNECTIONS)
    except OSError as error:
        where = f"{door.host} port {door.port}"
        raise UserError(f"cannot listen at {where}: {error.strerror}; choose another --host or --port") from error


def address(listening: socket.socket) -> str:
    """Where clients find it."""
    host, port = listening.getsockname()[:2]
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


class _Patient(H11Protocol):
    """HTTP/1.1 with a bound on how long a request's head may take to come: single bytes do not buy time."""

    head: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The first head is awaited from now on."""
        super().connection_made(transport)
        self._awaited()

    def data_received(self, data: bytes) -> None:
        """Any later head is awaited from its first byte on."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._came()
        elif self.head is None:
            self._awaited()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is awaited any more."""
        self._came()
        super().connection_lost(exc)

    def _awaited(self) -> None:
        service: Service = cast(FastAPI, self.config.app).state.service
        self.head = self.loop.call_later(service.limits.head_seconds, self.transport.abort)

    def _came(self) -> None:
        if self.head is not None:
            self.head.cancel()
            self.head = None


class Server(uvicorn.Server):
    """A server that a first signal drains: it takes nothing new, answers what was begun, and ends.

    ``beside`` runs while it serves; turns are taken once ``ready`` is done. A second signal, or
    the door's seconds passed, ends it at once, and what was not answered is not kept.
    """

    def __init__(
        self,
        app: FastAPI,
        door: Door,
        ready: Callable[[], Awaitable[None]],
        beside: tuple[Callable[[], Awaitable[None]], ...] = (),
    ) -> None:
        config = uvicorn.Config(
            app,
            http=_Patient,
            ws="none",
            lifespan="off",
            log_level="warning",
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=IDLE_SECONDS,
            timeout_graceful_shutdown=1,
            limit_concurrency=MOST_CONNECTIONS,
            h11_max_incomplete_event_size=HEADER_BYTES,
        )
        super().__init__(config)
        self.service: Service = app.state.service
        self.ready, self.beside, self.drain_seconds = ready, beside, door.drain_seconds
        self.draining: asyncio.Task[None] | None = None

    async def serve(self, sockets: Any = None) -> None:
        """Listen at once, take turns when ready, and end with every summary written."""
        self.loop = asyncio.get_running_loop()
        tasks = [asyncio.ensure_future(self._begin()), *(asyncio.ensure_future(one()) for one in self.beside)]
        try:
            await super().serve(sockets)
            if tasks[0].done():
                tasks[0].result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait({asyncio.ensure_future(self.service.turns.settle())}, timeout=self.drain_seconds)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain at the first signal, end at the second."""
        if self.service.is_draining:
            self.should_exit, self.drain_seconds = True, 0.0
            self.force_exit = sig == signal.SIGINT
        else:
            self.loop.call_soon_threadsafe(self.drain)

    def drain(self) -> None:
        """Take nothing new, and end once all that was begun is answered."""
        self.service.is_draining = True
        self.draining = self.loop.create_task(self._drained())

    async def _begin(self) -> None:
        try:
            await self.ready()
            self.service.is_ready = True
        except BaseException:
            self.should_exit = True
            raise

    async def _drained(self) -> None:
        until = self.loop.time() + self.drain_seconds
        while self.service.open_requests and self.loop.time() < until:
            await asyncio.sleep(0.05)
        self.should_exit = True
