"""Memory that a job left behind, given back to the machine: processes live for a whole run, side by side."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from loop.ports import Item, Result


def trimmed(call: Callable[[Item], Result], item: Item) -> Result:
    """The call's result, with the C library's free memory returned to the system, where it is glibc.

    Tensors of many sizes leave holes in glibc's heap, which by itself only ever shrinks from its end.
    """
    try:
        return call(item)
    finally:
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)
