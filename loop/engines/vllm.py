"""The engine that keeps a vLLM server of its own, in vLLM's own environment, and asks it by URL."""

from __future__ import annotations

import atexit
import logging
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from threading import Lock
from typing import Literal

from pydantic import Field

from loop.core.base import Base
from loop.core.episode import Request
from loop.core.errors import UserError
from loop.core.noun import Noun
from loop.core.pair import Adapter, Message
from loop.engines.openai import OpenAIEngine
from loop.engines.tokens import load_tokens
from loop.ports import Attestation, Blobs, EngineReport, Follow, Hear
from loop.remote.endpoint import Endpoint
from loop.remote.hosting import Hosted, watched

NAME = "base"
# What vLLM needs to be told by variables: adapters while it runs, nothing sent or fetched.
VARIABLES = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
MOST_STARTS = 5  # of one server in a process; one that ends as often will end again

log = logging.getLogger(__name__)
_servers: dict[tuple[str, str], list[Hosted]] = {}
_open = ExitStack()
_starting = Lock()
atexit.register(_open.close)


class VllmEngine(Noun):
    """One vLLM server a process, up until the process ends; the ``openai`` engine does the asking.

    ``environment`` is the folder that ``macaron-loop engine install vllm`` made.
    ``most_adapters`` are loaded at once, each of rank at most ``rank``; ``context`` (tokens)
    cuts the base's own, and ``arguments`` go to vLLM's server as they are. Starting may
    take ``start_seconds``, an answer ``timeout`` seconds.
    """

    environment: str = ".macaron/engines/vllm"
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    context: int | None = Field(default=None, gt=0)
    rank: int = Field(default=64, gt=0)
    most_adapters: int = Field(default=8, gt=0)
    arguments: tuple[str, ...] = ()
    in_flight: int = Field(default=64, ge=1, le=96)
    start_seconds: float = Field(default=900.0, gt=0)
    timeout: float = Field(default=600.0, gt=0)

    def generate(
        self,
        base: Base,
        blobs: Blobs,
        requests: Sequence[tuple[int, Request]],
        follow: Follow,
        hear: Hear | None = None,
    ) -> EngineReport:
        """Answer every request; see the port."""
        return self._asking(base, blobs).generate(self._cut(base), blobs, requests, follow, hear)

    def attest(self, base: Base, blobs: Blobs, adapter: Adapter) -> Attestation:
        """Load the adapter if need be and return what its check found; AttestationFailed on any doubt."""
        return self._asking(base, blobs).attest(base, blobs, adapter)

    def render(self, base: Base, blobs: Blobs, messages: Sequence[Message]) -> tuple[int, ...]:
        """The token ids of a conversation up to and with the generation prompt."""
        return load_tokens(base, blobs).render(messages)

    def _cut(self, base: Base) -> Base:
        return base.revise(context_length=min(base.context_length, self.context or base.context_length))

    def _asking(self, base: Base, blobs: Blobs) -> OpenAIEngine:
        """The engine at this process's server, started on first use and when it has ended, or UserError."""
        with _starting:
            started = _servers.setdefault((base.weights_digest, self.digest), [])
            words = started[-1].last_words() if started else None
            if len(started) == MOST_STARTS and words is not None:
                raise UserError(f"vLLM ended {MOST_STARTS} times, the last time with:\n{words}")
            if words is not None:
                log.warning("vLLM ended and is started again; its last words:\n%s", words)
            if words is not None or not started:
                started.append(self._started(base, blobs))
        return OpenAIEngine(
            endpoint=Endpoint(url=f"{started[-1].url}/v1", model=NAME),
            structured="vllm",
            processed_logprobs=True,
            most_adapters=self.most_adapters,
            mixes_base=not self._is_cpu_build(),
            in_flight=self.in_flight,
            timeout=self.timeout,
        )

    def _started(self, base: Base, blobs: Blobs) -> Hosted:
        command = self.command(blobs.get_tree(base.weights_digest))
        try:
            return _open.enter_context(watched(command, VARIABLES, start_seconds=self.start_seconds))
        except RuntimeError as error:
            raise UserError(f"vLLM did not start: {error}") from error

    def _is_cpu_build(self) -> bool:
        return any(Path(self.environment).glob("lib/python*/site-packages/vllm*cpu*.dist-info"))

    def command(self, folder: Path) -> list[str]:
        """vLLM's server for a base's folder; UserError where it is not installed."""
        programs = Path(self.environment).absolute() / "bin"
        if not (programs / "vllm").is_file():
            raise UserError(
                f"vLLM is not installed at {self.environment}: run 'macaron-loop engine install vllm', "
                "or name its folder by the engine's option environment."
            )
        on_cpu = self._is_cpu_build()
        # The CPU build takes the last place's adapter for requests that have none, so it stays empty
        # until another adapter stands in for the base in its own place. It ends when a prompt with
        # a seed is read in parts.
        loras = str(self.most_adapters + (2 if on_cpu else 0))
        return [
            # Not by ``vllm serve``, which the CPU wheel breaks: it asks for a package of another name.
            *(str(programs / "python"), "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder)),
            *("--host", "{host}", "--port", "{port}"),
            *("--served-model-name", NAME, "--dtype", self.dtype, "--logprobs-mode", "processed_logprobs"),
            *("--enable-lora", "--max-loras", loras, "--max-cpu-loras", loras, "--max-lora-rank", str(self.rank)),
            "--enable-prompt-tokens-details",
            *(("--no-enable-chunked-prefill",) if on_cpu else ()),
            *(("--max-model-len", str(self.context)) if self.context else ()),
            *self.arguments,
        ]
