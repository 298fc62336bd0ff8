"""The application: its endpoints behind one gate, every error in the form of its protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from loop import __version__
from loop.core.errors import LoopError
from loop.serve.http import chat, messages, models, page, responses
from loop.serve.http.gate import Gate
from loop.serve.http.refusals import refusal_of
from loop.serve.http.service import Service

ROUTERS: Sequence[APIRouter] = (models.router, chat.router, responses.router, messages.router, page.router)
_ERRORS = {400: "bad request", 401: "no valid key", 403: "not in the key's scopes", 404: "not found"} | {
    408: "the body came too slowly",
    413: "the body is too large",
    429: "a quota is spent",
    500: "failed",
    503: "busy, loading or ending",
    504: "took too long",
}


def make_app(service: Service) -> FastAPI:
    """The proxy over a service; nothing of it is served from elsewhere."""
    app = FastAPI(
        title="macaron-loop",
        version=__version__,
        description="OpenAI's and Anthropic's protocols over a Mixture of LoRA.",
        docs_url=None,
        redoc_url=None,
        responses={status: {"description": text} for status, text in _ERRORS.items()},
    )
    app.state.service = service
    for router in ROUTERS:
        app.include_router(router)
    for kind in (RequestValidationError, HTTPException, LoopError, LookupError, TimeoutError, Exception):
        app.add_exception_handler(kind, _told)
    app.add_middleware(Gate, service=service)
    app.openapi = _described(app)  # type: ignore[method-assign]
    return app


async def _told(request: Request, error: Exception) -> Response:
    return refusal_of(error).response(request.url.path)


def _described(app: FastAPI) -> Any:
    """The OpenAPI description; bodies that do not fit are answered with 400, not with FastAPI's 422."""
    made = app.openapi

    def description() -> dict[str, Any]:
        document = made()
        for operations in document["paths"].values():
            for operation in operations.values():
                operation["responses"].pop("422", None)
        return document

    return description
