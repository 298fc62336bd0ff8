"""The typed document column: a noun in, the same noun out."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

from loop.core.noun import Noun
from loop.store.document import finite, plain


class NounColumn(TypeDecorator[Noun]):
    """A noun as JSON.

    PostgreSQL's ``json`` and not ``jsonb``: jsonb reorders keys and rewrites numbers
    (-0.0, 1e20), so that a noun read back could have another digest or another order.
    """

    impl = JSON
    cache_ok = True

    def __init__(self, kind: type[Noun]) -> None:
        """A column of nouns of this class."""
        super().__init__(none_as_null=True)
        self.kind = kind

    def process_bind_param(self, value: Noun | None, dialect: Dialect) -> Any:
        """The noun as plain data."""
        return None if value is None else finite(plain(value))

    def process_result_value(self, value: Any, dialect: Dialect) -> Noun | None:
        """The noun again, validated."""
        return None if value is None else self.kind.model_validate(value)
