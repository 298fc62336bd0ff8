"""Checks values against JSON schemas that strangers wrote, within bounds."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

from jsonschema import Draft202012Validator, SchemaError, ValidationError
from jsonschema.validators import extend
from referencing import Registry
from referencing.exceptions import Unresolvable

# Each may cost time without bound (regular expressions), or leads around the bound on references.
REFUSED = frozenset({"pattern", "patternProperties", "$dynamicRef", "unevaluatedItems", "unevaluatedProperties"})
MOST_REFERENCES = 2000


class _TooDeep(Exception):
    """A schema refers to itself without an end, or has a value visited too often."""


def fault(value: Any, schema: dict[str, Any]) -> str:
    """Why a value does not fit a schema that is neither malformed nor unsupported; empty where it does."""
    try:
        found = next(iter(_validator(schema).iter_errors(value)), None)
    except (_TooDeep, RecursionError, Unresolvable):
        return "the references of the schema cannot be followed"
    return "" if found is None else f"{found.json_path}: {found.message[:300]}"


def malformed(schema: dict[str, Any]) -> str:
    """Why this is no JSON schema, in a sentence; empty where it is one."""
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        return f"not a JSON schema: {error.json_path}: {error.message[:300]}"
    except RecursionError:
        return "the schema is nested too deeply"
    return ""


def unsupported(schema: dict[str, Any]) -> str:
    """Which keyword of a schema is not checked here, in a sentence; empty where there is none."""
    found = sorted(REFUSED & set(_keywords(schema)))
    return f"the keyword {found[0]} is not supported in a schema" if found else ""


def _keywords(schema: Any) -> Iterator[str]:
    """Every key in the schema; a property that is named like a keyword is none."""
    if isinstance(schema, list):
        for item in schema:
            yield from _keywords(item)
    if isinstance(schema, dict):
        for key, item in schema.items():
            named = key in ("properties", "$defs", "definitions", "dependentSchemas") and isinstance(item, dict)
            yield key
            yield from _keywords(list(item.values()) if named else item)


def _validator(schema: dict[str, Any]) -> Any:
    visits = count()
    plain = Draft202012Validator.VALIDATORS["$ref"]

    def counted(validator: Any, reference: Any, value: Any, inside: Any) -> Iterator[ValidationError]:
        if next(visits) >= MOST_REFERENCES:
            raise _TooDeep
        yield from plain(validator, reference, value, inside) or ()

    # An empty registry: a reference never fetches anything.
    return extend(Draft202012Validator, {"$ref": counted})(schema, registry=Registry())  # type: ignore[no-untyped-call]
