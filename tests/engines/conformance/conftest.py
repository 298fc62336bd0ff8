"""The engines that every conformance test runs on, and a tiny server for those that need one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from loop.core.base import Base
from loop.engines.openai import OpenAIEngine
from loop.engines.transformers import TransformersEngine
from loop.ports import Engine
from loop.remote.endpoint import Endpoint
from loop.store.blobs import FsBlobs
from tests.engines.conformance.server import NAME, TinyServer
from tests.engines.vllm_server import needs_vllm, tiny_vllm
from tests.judges.endpoint import Served, serve_routes

MakeEngine = Callable[..., OpenAIEngine]


@pytest.fixture
def tiny_server(base: Base, blobs: FsBlobs) -> TinyServer:
    return TinyServer(base, blobs)


@pytest.fixture
def served(tiny_server: TinyServer) -> Iterator[Served]:
    with serve_routes(tiny_server) as served:
        yield served


@pytest.fixture
def openai(served: Served) -> MakeEngine:
    """An engine at the tiny server, with options; quick where it has to wait."""

    def make(**options: object) -> OpenAIEngine:
        plain = {"endpoint": Endpoint(url=served.url, model=NAME), "backoff": 0.001, "timeout": 60, "in_flight": 4}
        return OpenAIEngine.model_validate(plain | options)

    return make


@pytest.fixture(params=["transformers", "openai", pytest.param("vllm", marks=[pytest.mark.vllm, needs_vllm])])
def engine(request: pytest.FixtureRequest) -> Engine:
    """Each engine over a tiny base, telling the log-probabilities that tokens were drawn with."""
    if request.param == "transformers":
        return TransformersEngine(dtype="float32", threads=1)
    if request.param == "vllm":
        return tiny_vllm()
    make: MakeEngine = request.getfixturevalue("openai")
    return make(processed_logprobs=True)


@pytest.fixture
def base(request: pytest.FixtureRequest, base: Base, wide: Base) -> Base:
    """The tiny base, with wider heads for the engine that needs them."""
    spec = getattr(request.node, "callspec", None)
    return wide if spec is not None and spec.params.get("engine") == "vllm" else base
