"""The embedded engine: transformers models on this machine, continuously batched."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Literal

import torch
from pydantic import Field

from loop.core.base import Base
from loop.core.episode import Request
from loop.core.noun import Noun
from loop.core.pair import Adapter, Message
from loop.engines.schedule import Limits, Schedule
from loop.engines.tokens import load_tokens
from loop.engines.weights import LoadedBase, Served, load_base, serve
from loop.ports import Attestation, Blobs, EngineReport, Follow, Hear

# Loaded weights and torch's thread count belong to the process; one call at a time uses them.
_one_call = threading.RLock()


class TransformersEngine(Noun):
    """Serves a base and merged copies of its adapters; frozen, and equal options are equal engines.

    ``dtype`` "auto" is bfloat16 where the processor multiplies it natively, else float32.
    ``threads`` is torch's count while a call runs. ``max_rows`` replies are decoded at
    once, ``prompt_chunk`` is the most prompt tokens of one prefill pass, and ``copies``
    the most adapters kept loaded (each copy holds the tensors its adapter changes; a parent
    and a child of three specialists each are six). ``kept_bytes`` of keys and values outlive
    the calls that somebody listens to, for later calls of that kind. All other calls neither
    use nor fill them: their results follow from the requests alone, whatever ran before.
    """

    dtype: Literal["auto", "bfloat16", "float32"] = "auto"
    threads: int = Field(default=1, gt=0)
    max_rows: int = Field(default=128, gt=0)
    prompt_chunk: int = Field(default=1024, gt=0)
    copies: int = Field(default=8, gt=0)
    kept_bytes: int = Field(default=1 << 30, ge=0)

    def generate(
        self,
        base: Base,
        blobs: Blobs,
        requests: Sequence[tuple[int, Request]],
        follow: Follow,
        hear: Hear | None = None,
    ) -> EngineReport:
        """Answer every request, continuously batched; see the port."""
        started = time.perf_counter()
        with self._threads():
            loaded = self._load(base, blobs)

            def served(adapter: Adapter | None) -> Served:
                return serve(loaded, base, blobs, adapter, self.copies)

            limits = Limits(max_rows=self.max_rows, prompt_chunk=self.prompt_chunk)
            loaded.kept.most = self.kept_bytes
            report = Schedule(loaded, served, follow, limits, hear).run(requests)
        return report.revise(seconds=time.perf_counter() - started)

    def attest(self, base: Base, blobs: Blobs, adapter: Adapter) -> Attestation:
        """Load the adapter if need be and return what its check found; AttestationFailed on any doubt."""
        with self._threads():
            found = serve(self._load(base, blobs), base, blobs, adapter, self.copies).attestation
        assert found is not None, "an adapter's copy always carries its attestation"
        return found

    def render(self, base: Base, blobs: Blobs, messages: Sequence[Message]) -> tuple[int, ...]:
        """The token ids of a conversation up to and with the generation prompt."""
        return load_tokens(base, blobs).render(messages)

    def _load(self, base: Base, blobs: Blobs) -> LoadedBase:
        with _one_call:
            return load_base(base, blobs, resolve_dtype(self.dtype))

    @contextmanager
    def _threads(self) -> Iterator[None]:
        with _one_call:
            before = torch.get_num_threads()
            torch.set_num_threads(self.threads)
            try:
                yield
            finally:
                torch.set_num_threads(before)


def resolve_dtype(name: str) -> torch.dtype:
    """The torch type of an option; "auto" asks the processor."""
    if name == "auto":
        return torch.bfloat16 if has_bfloat16() else torch.float32
    dtype: torch.dtype = getattr(torch, name)
    return dtype


@cache
def has_bfloat16() -> bool:
    """Whether this processor multiplies bfloat16 in hardware (AVX512-BF16 or AMX)."""
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))
