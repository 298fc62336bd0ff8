"""An exception on its way from one process to another: type, message and chain kept."""

from __future__ import annotations

import os
import pickle
import platform
import traceback
from dataclasses import dataclass


@dataclass(frozen=True)
class Raised:
    """A pickled exception, the exceptions it came from, and its traceback as text.

    ``links`` starts with the exception itself; ``explicit[i]`` says that ``links[i + 1]``
    was its ``__cause__`` (``raise ... from``) and not its ``__context__``.
    """

    links: tuple[bytes, ...]
    explicit: tuple[bool, ...]
    text: str


def pack(error: BaseException) -> Raised:
    """What the worker sends instead of a result; pickle itself would drop the chain."""
    links, explicit = [_pickled(error)], []
    seen = {id(error)}
    link = error
    while True:
        cause = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
        if cause is None or id(cause) in seen:
            break
        explicit.append(link.__cause__ is not None)
        links.append(_pickled(cause))
        seen.add(id(cause))
        link = cause
    where = f"in worker process {os.getpid()} on {platform.node()}"
    return Raised(tuple(links), tuple(explicit), f"{where}:\n{''.join(traceback.format_exception(error))}")


def unpack(raised: Raised) -> BaseException:
    """The exception as it was in the worker, with its chain and the worker's traceback as a note."""
    errors: list[BaseException] = [pickle.loads(link) for link in raised.links]
    for error, cause, explicit in zip(errors, errors[1:], raised.explicit, strict=False):
        error.__context__ = cause
        if explicit:
            error.__cause__ = cause
    errors[0].add_note(raised.text)
    return errors[0]


def _pickled(error: BaseException) -> bytes:
    """The error's pickle; a RuntimeError that names the type when it does not survive the trip."""
    try:
        data = pickle.dumps(error)
        same = type(pickle.loads(data)) is type(error)
    except (pickle.PicklingError, AttributeError, TypeError, ValueError):
        same = False
    if same:
        return data
    return pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}"))
