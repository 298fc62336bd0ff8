"""Who may come in: the key of a request, and what it opens."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Annotated, cast

from fastapi import Depends, Request
from fastapi.security import APIKeyHeader, HTTPBearer
from fastapi.security.http import HTTPAuthorizationCredentials

from loop.core.access import OPEN, Access, Grant, Scope
from loop.serve.http.refusals import Refused
from loop.serve.http.service import Service

log = logging.getLogger(__name__)

LONGEST_KEY = 256
LOOK_SECONDS = 5.0

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
        return Grant(key=OPEN, owner=service.owner, scopes=tuple(Scope))
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


async def shut_once_keyed(
    service: Service, access: Access, has_keys: Callable[[], bool], seconds: float = LOOK_SECONDS
) -> None:
    """From the first key on, only keys open a server that stood open; looks every so many seconds, until cancelled."""
    while service.access is None:
        await asyncio.sleep(seconds)
        try:
            if await asyncio.to_thread(has_keys):
                service.access = access
                log.warning("a key was made: from now on only keys open this server")
        except Exception:
            log.exception("whether there are keys could not be read; the server stays open to this machine")
