"""An adapter that came from elsewhere: whose it is, how it got here, and whether it may serve."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar, Literal

from pydantic import Field

from loop.core.gate import Interval
from loop.core.noun import Noun
from loop.core.pair import Adapter, Prompt

OWNER_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"


class ImportStanding(StrEnum):
    """Quarantined: no generation may serve it or grow from it; accepted: one that was examined was promoted."""

    QUARANTINED = "quarantined"
    ACCEPTED = "accepted"


class Terms(Noun):
    """What the importer says of an adapter: the files cannot be believed about it.

    ``label`` is its place in the registry and ``role`` what it is for. ``environments`` are those
    it was trained for. A label that the registry does not know yet needs a ``prompt``;
    ``description`` is the router's line on it. ``base_digest`` is the weights digest of the base
    that its owner trained on, needed where the folder has no probe.
    """

    owner: str = Field(pattern=OWNER_PATTERN)
    licence: str
    label: str
    role: str = Field(min_length=1)
    environments: tuple[str, ...] = ()
    prompt: Prompt | None = None
    description: str = ""
    base_digest: str = ""


class Imported(Noun):
    """An imported adapter with its provenance; what was imported is a new file with the same numbers.

    ``source`` is the path as given, ``source_digest`` the SHA-256 of the listing of its files
    (``sha256sum``'s lines), which is what ``signer`` signed: the SHA-256 of an Ed25519 key, None
    for an unsigned one. ``base_known_by`` says what showed which base it belongs to.
    """

    undigested: ClassVar[frozenset[str]] = frozenset({"source", "who", "at"})

    adapter: Adapter
    terms: Terms
    source: str
    source_digest: str
    signer: str | None = None
    base_known_by: Literal["probe", "statement"]
    who: str
    at: str


class Composition(Noun):
    """What a composed system is worth beside its parts, on the sealed holdout, by environment and ``all``.

    ``scores`` has a row a system: ``composed`` and ``before`` (both routed), ``base``, and each
    trained adapter alone, by label. ``strongest`` names the best of the adapters alone, and
    ``over`` is the composed system less it (``strongest``), the base, and ``before``, paired and
    clustered. ``interference`` is each environment's score with each adapter alone; ``routes``
    counts who answered. ``regret`` is what right routes would add, in points.
    """

    adapter: str
    pair: str
    contract: str
    scores: dict[str, dict[str, Interval]]
    strongest: dict[str, str]
    over: dict[str, dict[str, Interval]]
    interference: dict[str, dict[str, float]]
    routes: dict[str, dict[str, int]]
    regret: Interval | None = None
