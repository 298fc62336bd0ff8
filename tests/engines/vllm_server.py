"""A real vLLM server for the tiny base, in the tests that can have one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from loop.engines.vllm import VllmEngine

ENVIRONMENT = os.environ.get("MACARON_VLLM", ".macaron/engines/vllm")
needs_vllm = pytest.mark.skipif(
    not (Path(ENVIRONMENT) / "bin" / "vllm").is_file(),
    reason=f"no vLLM at {ENVIRONMENT}: run 'macaron-loop engine install vllm', or set MACARON_VLLM",
)
# vLLM's attention has kernels for heads of this width and more.
WIDTH = 64


def tiny_vllm() -> VllmEngine:
    """One value, so one server for all tests of a process."""
    return VllmEngine(
        environment=ENVIRONMENT,
        dtype="float32",
        most_adapters=2,
        rank=8,
        arguments=("--enforce-eager", "--gpu-memory-utilization", "0.2"),
    )
