"""``/``: a page to talk on, and ``/v1/turns/ID``: what is behind a reply, also what came after it."""

from __future__ import annotations

import asyncio
from importlib.resources import files
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response

from loop.serve.http.doors import Served, Talker

router = APIRouter(tags=["page"])

_KINDS = {"index.html": "text/html", "page.css": "text/css", "page.js": "text/javascript"}
# The page runs its own script, speaks to its own server, and nothing else; what a model wrote is text to it.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def _file(name: str) -> Response:
    content = files("loop.serve.http").joinpath("page", name).read_bytes()
    return Response(content, media_type=_KINDS[name], headers={"Content-Security-Policy": _POLICY})


@router.get("/", include_in_schema=False)
async def page() -> Response:
    """The page; it holds nothing of anybody, and asks for a key where one is needed."""
    return _file("index.html")


@router.get("/page.css", include_in_schema=False)
async def style() -> Response:
    """How it looks."""
    return _file("page.css")


@router.get("/page.js", include_in_schema=False)
async def script() -> Response:
    """What it does."""
    return _file("page.js")


@router.get("/v1/turns/{turn}")
async def turn(turn: str, service: Served, grant: Talker) -> dict[str, Any]:
    """Who answered a turn and why, what each hop took, and what other specialists are told of it (written later)."""
    kept = service.turns.kept
    exchange = await asyncio.to_thread(kept.exchange, grant.owner, turn)
    timeline = await asyncio.to_thread(kept.timeline, grant.owner, turn)
    parts = [part for part in timeline.parts() if part.turn == timeline.turn]
    return {
        "turn": turn,
        "routes": [route.model_dump(mode="json") for route in exchange.routes],
        "hops": [hop.model_dump(mode="json") for hop in exchange.hops],
        "summaries": [
            {"label": part.owner, "made": part.summary.made, "content": part.summary.content}
            for part in parts
            if part.summary is not None
        ],
    }
