"""What an engine says of itself: that an adapter is what it claims to be, and how fast a call went."""

from __future__ import annotations

from loop.core.episode import Failure
from loop.core.noun import Noun


class Attestation(Noun):
    """What was checked after an adapter was loaded; ``ok`` is the whole verdict.

    ``modules`` counts bound LoRA modules; ``probe_difference`` is the largest absolute
    difference between the served logits and an independent load of the same blob;
    ``base_difference`` the same against the base (0 for a fresh adapter).
    """

    adapter: str
    blob: str
    modules: int
    probe_difference: float
    base_difference: float
    ok: bool
    text: str


class EngineReport(Noun):
    """Throughput of one ``generate`` call, for progress and benchmarks (seconds, tokens).

    ``failures`` says by the caller's key why a request has no completion.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    seconds: float = 0.0
    failures: dict[int, Failure] = {}
