"""Telling a webhook how a night ended: one POST, a few tries; what fails here fails nothing else."""

from __future__ import annotations

import http.client
import json
import os
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from loop.core.errors import UserError

TIMEOUT_SECONDS = 10.0
PAUSES = (1.0, 4.0)
LOOPBACK = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class Webhook:
    """An address to POST to, and the name it may be called by: the address itself can be a secret."""

    url: str
    name: str

    def post(self, document: dict[str, Any], pauses: tuple[float, ...] = PAUSES) -> str | None:
        """Send one JSON document; None when it was taken, else a sentence without the address.

        Server errors, 429 and broken connections are tried again after each pause. A
        redirect is a failure: the document goes nowhere but to the address given.
        """
        body = json.dumps(document).encode()
        problem, again = _send(self.url, body)
        for pause in pauses:
            if not again:
                break
            time.sleep(pause)
            problem, again = _send(self.url, body)
        return f"the webhook {self.name} was not told: {problem}" if problem else None


def open_webhook(reference: str) -> Webhook:
    """A webhook from ``env:NAME``, ``file:PATH`` or an https URL; UserError, which never shows the address."""
    kind, _, where = reference.partition(":")
    if "://" in where and kind in ("env", "file"):
        raise UserError(f"--webhook takes {kind}: with a name or a path after it, and an https URL without it")
    if kind == "env":
        url, name = os.environ.get(where, ""), reference
    elif kind == "file":
        url, name = _read(Path(where)), reference
    else:
        url, name = reference, "given by its URL"
    if not url.strip():
        raise UserError(f"--webhook {reference} names nothing: set that variable or file to the webhook's https URL")
    try:
        parts = urlsplit(url.strip())
        good = bool(parts.hostname) and (parts.scheme == "https" or _is_local(parts.scheme, parts.hostname))
    except ValueError:
        good = False
    if not good:
        raise UserError(
            f"the webhook {name} is no https URL: give env:NAME, file:PATH or https://... (http only on this machine)"
        )
    return Webhook(url.strip(), name)


def _is_local(scheme: str, host: str | None) -> bool:
    return scheme == "http" and host in LOOPBACK


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """Follow nothing: urllib then raises HTTPError with the redirect's status."""


def _send(url: str, body: bytes) -> tuple[str, bool]:
    """What went wrong ("" for nothing), and whether another try may help; never an error's own text."""
    request = urllib.request.Request(url, data=body, headers={"Content-Type": "application/json"}, method="POST")
    try:
        with urllib.request.build_opener(_NoRedirect).open(request, timeout=TIMEOUT_SECONDS):
            return "", False
    except urllib.error.HTTPError as error:
        error.close()
        return f"it answered {error.code}", error.code >= 500 or error.code == 429
    except urllib.error.URLError as error:
        return f"no connection ({type(error.reason).__name__})", True
    except (OSError, http.client.HTTPException, ValueError) as error:
        return f"no answer ({type(error).__name__})", not isinstance(error, ValueError)
