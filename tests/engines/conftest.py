"""A tiny base for most tests, and the embedded base (kept between runs) for those marked ``model``."""

from __future__ import annotations

from pathlib import Path

import pytest

from loop.core.base import Base
from loop.engines.prepare import prepare_base
from loop.settings import Settings
from loop.store.blobs import FsBlobs
from tests.engines.tiny import tiny_base
from tests.engines.vllm_server import WIDTH


@pytest.fixture(scope="session")
def blobs(tmp_path_factory: pytest.TempPathFactory) -> FsBlobs:
    return FsBlobs(url=str(tmp_path_factory.mktemp("blobs")))


@pytest.fixture(scope="session")
def base(blobs: FsBlobs, tmp_path_factory: pytest.TempPathFactory) -> Base:
    return tiny_base(tmp_path_factory.mktemp("tiny"), blobs)


@pytest.fixture(scope="session")
def wide(blobs: FsBlobs, tmp_path_factory: pytest.TempPathFactory) -> Base:
    """The tiny base with attention heads as wide as vLLM's kernels need."""
    return tiny_base(tmp_path_factory.mktemp("wide"), blobs, head_dim=WIDTH)


@pytest.fixture(scope="session")
def embedded(pytestconfig: pytest.Config) -> tuple[Base, FsBlobs]:
    """The default base in pytest's own cache folder, fetched and converted on first use."""
    cache = Path(pytestconfig.cache.mkdir("base"))
    kept = FsBlobs(url=str(cache / "blobs"))
    return prepare_base("default", kept, Settings.model_fields["base_sha256"].default, cache), kept
