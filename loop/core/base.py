"""The frozen base model that every generation of a lineage shares."""

from __future__ import annotations

from loop.core.noun import Noun


class Base(Noun):
    """A base model by content: its weights digest is its identity, its id is a name.

    ``weights_digest`` is SHA-256 over the sorted (file name, file digest) pairs of the
    folder; ``context_length`` is in tokens, ``parameters`` counts stored values.
    """

    id: str
    family: str
    weights_digest: str
    context_length: int
    parameters: int
    licence: str = "unknown"
