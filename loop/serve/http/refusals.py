"""What a client is told when something goes wrong: one status, one sentence, in its own protocol's form."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Any

from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from loop.core.access import Exhausted
from loop.core.errors import LoopError, UserError
from loop.serve.hub import Busy
from loop.serve.turns import Overflow

logger = logging.getLogger(__name__)

BUSY_SECONDS = 1
# What nobody reads: the client hung up.
CLOSED = 499
ANTHROPIC_PATH = "/v1/messages"

# What the schema of a request cannot say of why a value is refused.
_WHY = {
    "n": "one choice a request is given",
    "top_logprobs": "engines report the log-probability of the sampled token alone, not its alternatives",
}
_PLACE = re.compile(r"\w+$")
_OPENAI_KINDS = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_ANTHROPIC_KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


class Refused(LoopError):
    """A request that is answered with an error; ``again`` says whether the same request may do better later."""

    def __init__(
        self, status: int, message: str, *, code: str | None = None, param: str | None = None, retry_after: float = 0.0
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.param, self.retry_after = status, code, param, retry_after

    @property
    def headers(self) -> dict[str, str]:
        """When to come again, for those that may; clients repeat a 5xx on their own unless told not to."""
        if self.retry_after:
            return {"Retry-After": str(ceil(self.retry_after))}
        return {"WWW-Authenticate": "Bearer"} if self.status == 401 else {"X-Should-Retry": "false"}

    def body(self, path: str) -> dict[str, Any]:
        """The error as clients of this path read it."""
        if path.startswith(ANTHROPIC_PATH):
            kind = _ANTHROPIC_KINDS.get(self.status, "api_error" if self.status >= 500 else "invalid_request_error")
            return {"type": "error", "error": {"type": kind, "message": str(self)}}
        kind = _OPENAI_KINDS.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}

    def response(self, path: str) -> JSONResponse:
        """The whole answer."""
        return JSONResponse(self.body(path), self.status, self.headers)


def refusal_of(error: BaseException) -> Refused:
    """What to tell a client of an error; what it must not know of is logged and told as a fault of the server."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, RequestValidationError):
        return _malformed(error.errors())
    if isinstance(error, HTTPException):
        return Refused(error.status_code, error.detail)
    if isinstance(error, Overflow):
        return Refused(400, str(error), code="context_length_exceeded", param="messages")
    if isinstance(error, UserError):
        return Refused(400, str(error))
    if type(error) is LookupError:
        return Refused(404, str(error), code="not_found")
    if isinstance(error, Exhausted):
        return Refused(429, str(error), code="rate_limit_exceeded", retry_after=max(1.0, error.retry_after))
    if isinstance(error, Busy):
        return Refused(503, str(error), code="busy", retry_after=BUSY_SECONDS)
    if isinstance(error, TimeoutError):
        return Refused(504, "the turn took too long and was given up; nothing of it was kept", code="timeout")
    logger.error("a request failed", exc_info=error)
    return Refused(500, "the server failed to answer; nothing of the turn was kept", retry_after=BUSY_SECONDS)


def _malformed(errors: Sequence[Mapping[str, Any]]) -> Refused:
    """The fault of a body that lies deepest, with its place; never the value, which may be anything.

    Where a value may be of several kinds, the kind that was meant fails furthest in.
    """
    first = max(errors, key=lambda error: len(error["loc"]))
    # Pydantic also names the kind, which no client wrote.
    places = [str(part) for part in first["loc"] if part not in ("body", "query", "path") and _PLACE.match(str(part))]
    param = ".".join(places) or None
    if first["type"] == "json_invalid":
        return Refused(400, f"the body is not JSON: {first['ctx']['error']} at character {first['loc'][-1]}")
    if first["type"] == "extra_forbidden":
        return Refused(400, f"{param}: unknown parameter", param=param, code="unknown_parameter")
    why = f" ({_WHY[places[0]]})" if places and places[0] in _WHY else ""
    said = str(first["msg"]).removeprefix("Value error, ")
    return Refused(400, f"{param or 'the body'}: {said}{why}", param=param)
