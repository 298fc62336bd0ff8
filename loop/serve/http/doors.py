"""Who may come in: the key of a request, and what it opens."""

from __future__ import annotations

import asyncio
from typing import Annotated, cast

from fastapi import Depends, Request
from fastapi.security import APIKeyHeader, HTTPBearer
from fastapi.security.http import HTTPAuthorizationCredentials

from loop.core.access import Grant, Scope
from loop.serve.http.refusals import Refused
from loop.serve.http.service import Service

LONGEST_KEY = 256

_bearer = HTTPBearer(auto_error=False, description="A key of `macaron-loop keys`.")
_header = APIKeyHeader(name="x-api-key", auto_error=False, description="The same key, as Anthropic's clients send it.")


def service_of(request: Request) -> Service:
    """The service behind a request."""
    return cast(Service, request.app.state.service)


Served = Annotated[Service, Depends(service_of)]


async def _grant(
    service: Served,
    bearer: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)],
    header: Annotated[str | None, Depends(_header)],
) -> Grant:
    if service.access is None:
        return Grant(key="open", owner=service.owner, scopes=tuple(Scope))
    secret = bearer.credentials if bearer else header
    if not secret:
        raise Refused(401, "no key: send Authorization: Bearer KEY, or x-api-key: KEY", code="no_api_key")
    try:
        if len(secret) > LONGEST_KEY:
            raise LookupError
        return await asyncio.to_thread(service.access.grant, secret)
    except LookupError:
        raise Refused(401, "this key is unknown, expired or revoked", code="invalid_api_key") from None


def _opened(scope: Scope) -> object:
    async def opened(grant: Annotated[Grant, Depends(_grant)]) -> Grant:
        if scope not in grant.scopes:
            raise Refused(403, f"this key has not the scope {scope}", code="insufficient_scope")
        return grant

    return Depends(opened)


Talker = Annotated[Grant, _opened(Scope.CHAT)]
Watcher = Annotated[Grant, _opened(Scope.METRICS)]
