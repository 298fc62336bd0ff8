"""One OpenAI-compatible endpoint as a plug-in is told of it: where, which model, and where its key is kept."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, field_validator

from loop.core.errors import UserError
from loop.core.noun import Noun

_SOURCES = ("env:", "file:")


class Endpoint(Noun):
    """A model behind a URL, to which paths like ``/chat/completions`` are added.

    ``api_key`` is a reference, ``env:NAME`` or ``file:PATH``, or empty for none; the key
    itself is read when it is needed and kept nowhere. For a judge ``family`` names what the
    model descends from, to be compared with the candidate's base, and ``structured`` says
    that the endpoint takes a JSON schema as ``response_format``.
    """

    # A key that was put in the wrong place must not show in the error that says so.
    model_config = ConfigDict(hide_input_in_errors=True)
    undigested: ClassVar[frozenset[str]] = frozenset({"api_key"})

    url: str
    model: str = Field(min_length=1, max_length=200)
    api_key: str = ""
    family: str = ""
    structured: bool = True

    @field_validator("url")
    @classmethod
    def _plain_url(cls, url: str) -> str:
        parts = urlsplit(url)
        # Reading the port checks that it is one.
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
            raise ValueError("an endpoint's url starts with http:// or https:// and a host")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError("an endpoint's url holds no credentials and no query; refer to the key by api_key")
        return url.rstrip("/")

    @field_validator("api_key")
    @classmethod
    def _only_a_reference(cls, reference: str) -> str:
        if reference and not reference.startswith(_SOURCES):
            raise ValueError("api_key is a reference, env:NAME or file:PATH, and never the key itself")
        return reference

    def key(self) -> str:
        """The key, or "" when there is none; UserError naming the reference when it cannot be read or used."""
        if not self.api_key:
            return ""
        source, _, place = self.api_key.partition(":")
        try:
            found = os.environ[place] if source == "env" else Path(place).read_text(encoding="utf-8")
        except (KeyError, OSError, UnicodeDecodeError) as error:
            raise UserError(
                f"the key of model {self.model} cannot be read from {self.api_key} "
                f"({type(error).__name__}); put it there or correct the reference"
            ) from None
        key = found.strip()
        # A key that does not fit in a header would be quoted by the HTTP library's own error.
        if not (key.isascii() and key.isprintable() and key and " " not in key):
            raise UserError(f"the key of model {self.model} in {self.api_key} is empty or not one printable word")
        return key
