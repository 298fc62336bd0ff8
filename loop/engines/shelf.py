"""The adapters that this process keeps loaded on one server, each under a name made of its digest."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from threading import RLock

from loop.core.base import Base
from loop.core.errors import AttestationFailed, UserError
from loop.core.pair import Adapter
from loop.engines.attest import adapter_folder, failed
from loop.engines.attest_served import attest_served
from loop.engines.served_model import ServedModel
from loop.ports import Attestation, Blobs
from loop.remote.line import NoAnswer, TryAgain

LOAD, UNLOAD = "/load_lora_adapter", "/unload_lora_adapter"


def served_name(adapter: Adapter) -> str:
    """A name no other revision ever has, so that no cache of the server can mistake one for another."""
    return f"{adapter.label}-{adapter.digest}"


@dataclass
class Shelf:
    """Loaded and attested adapters, least recently used first; those in use are never taken down."""

    held: OrderedDict[str, Attestation] = field(default_factory=OrderedDict)
    users: Counter[str] = field(default_factory=Counter)
    lock: RLock = field(default_factory=RLock)

    @contextmanager
    def lend(
        self, server: ServedModel, base: Base, blobs: Blobs, adapter: Adapter, most: int
    ) -> Iterator[tuple[str, Attestation]]:
        """The adapter's served name and attestation; it stays loaded while the context is open.

        Raises AttestationFailed on any doubt and UserError when the server loads no adapters.
        """
        name = served_name(adapter)
        with self.lock:
            if name not in self.held:
                self._make_room(server, most)
                self.held[name] = _load(server, base, blobs, adapter, name)
            self.held.move_to_end(name)
            self.users[name] += 1
            found = self.held[name]
        try:
            yield name, found
        finally:
            with self.lock:
                self.users[name] -= 1

    def forget(self, name: str) -> None:
        """The server no longer has it (it was started again): the next ``lend`` loads and attests it anew."""
        with self.lock:
            self.held.pop(name, None)

    def _make_room(self, server: ServedModel, most: int) -> None:
        idle = [name for name in self.held if not self.users[name]]
        for name in idle[: max(0, len(self.held) - most + 1)]:
            del self.held[name]
            _unload(server, name)


_shelves: dict[str, Shelf] = {}


def shelf_of(url: str) -> Shelf:
    """This process's shelf on the server of a URL."""
    return _shelves.setdefault(url, Shelf())


def _load(server: ServedModel, base: Base, blobs: Blobs, adapter: Adapter, name: str) -> Attestation:
    folder = adapter_folder(base, blobs, adapter)
    url = server.line.endpoint.url
    try:
        server.post(LOAD, {"lora_name": name, "lora_path": str(folder)})
    except NoAnswer as error:
        if isinstance(error, TryAgain):
            raise
        if error.status in (404, 405, 501):
            raise UserError(
                f"the server at {url} loads no adapters ({error}): start vLLM with --enable-lora and "
                "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True."
            ) from None
        # Another process may have loaded it; under this name it can be no other revision.
        if name not in server.models():
            raise failed(
                adapter, f"{url} does not load it ({error}); is its folder seen there, is the rank allowed?"
            ) from None
    try:
        return attest_served(
            base,
            blobs,
            adapter,
            partial(server.score, name),
            partial(server.score, server.line.endpoint.model),
        )
    except (NoAnswer, AttestationFailed) as error:
        _unload(server, name)
        if isinstance(error, (TryAgain, AttestationFailed)):
            raise
        raise failed(adapter, f"{url} did not answer the probe ({error})") from None


def _unload(server: ServedModel, name: str) -> None:
    # A name is never used for anything else, so one that stays behind does no harm.
    with suppress(NoAnswer):
        server.post(UNLOAD, {"lora_name": name})
