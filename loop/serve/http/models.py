"""``/v1/models``, ``/health`` and ``/metrics``: what can be asked, whether, and what was."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response

from loop.serve.http.doors import Served, Talker, Watcher
from loop.serve.http.figures import CONTENT_TYPE
from loop.serve.http.service import Service

router = APIRouter(tags=["models"])


@router.get("/v1/models")
async def models(service: Served, grant: Talker) -> dict[str, Any]:
    """The routed mixture, and each specialist by name."""
    data = [_model(service, name) for name in service.models]
    return {"object": "list", "data": data, "has_more": False, "first_id": data[0]["id"], "last_id": data[-1]["id"]}


@router.get("/v1/models/{name}")
async def model(name: str, service: Served, grant: Talker) -> dict[str, Any]:
    """One of them."""
    service.pin(name)
    return _model(service, name)


@router.get("/health")
async def health(service: Served) -> JSONResponse:
    """200 while turns are taken; 503 before the model is loaded, and once the server ends."""
    status = "draining" if service.is_draining else "ready" if service.is_ready else "loading"
    return JSONResponse({"status": status}, 200 if status == "ready" else 503)


@router.get("/metrics", response_class=Response)
async def metrics(service: Served, grant: Watcher) -> Response:
    """The figures of this server, for Prometheus."""
    return Response(service.figures.text(), media_type=CONTENT_TYPE)


def _model(service: Service, name: str) -> dict[str, Any]:
    """A model in the form of OpenAI's and of Anthropic's clients at once."""
    about = {"id": name, "object": "model", "created": 0, "owned_by": service.owner}
    return about | {"type": "model", "display_name": name, "created_at": "1970-01-01T00:00:00Z"}
