"""The adapters that this process keeps loaded on one server, each under a name made of its digest."""

from __future__ import annotations

import shutil
from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import RLock

import torch
from peft.utils import CONFIG_NAME, SAFETENSORS_WEIGHTS_NAME
from safetensors.torch import save_file

from loop.core.base import Base
from loop.core.errors import AttestationFailed, UserError
from loop.core.pair import Adapter
from loop.engines.attest import adapter_folder, failed, read_adapter
from loop.engines.attest_served import attest_served
from loop.engines.served_model import ServedModel
from loop.ports import Attestation, Blobs
from loop.remote.line import NoAnswer, TryAgain

LOAD, UNLOAD = "/load_lora_adapter", "/unload_lora_adapter"
STAND_IN = "base-{}"


def served_name(adapter: Adapter) -> str:
    """A name no other revision ever has, so that no cache of the server can mistake one for another."""
    return f"{adapter.label}-{adapter.digest}"


@dataclass
class Shelf:
    """Loaded and attested adapters, least recently used first; those in use are never taken down.

    ``follows`` is False once the server was seen not to tell the next token's probabilities;
    ``stand_in`` is the name of the adapter that changes nothing, where the base is asked by one.
    """

    follows: bool = True
    stand_in: str | None = None
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
                self.held[name] = self._load(server, base, blobs, adapter, name)
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
            self.stand_in = None if name == self.stand_in else self.stand_in

    def _make_room(self, server: ServedModel, most: int) -> None:
        idle = [name for name in self.held if not self.users[name]]
        for name in idle[: max(0, len(self.held) - most + 1)]:
            del self.held[name]
            _unload(server, name)

    def _load(self, server: ServedModel, base: Base, blobs: Blobs, adapter: Adapter, name: str) -> Attestation:
        folder = adapter_folder(base, blobs, adapter)
        if not server.mixes_base and self.stand_in is None:
            changing_nothing = _changing_nothing(blobs, adapter, folder)
            _post(server, adapter, STAND_IN.format(changing_nothing), blobs.get_tree(changing_nothing))
            self.stand_in = STAND_IN.format(changing_nothing)
        _post(server, adapter, name, folder)
        bare = self.stand_in or server.line.endpoint.model
        try:
            return attest_served(
                base, blobs, adapter, partial(_following, server, name), partial(_following, server, bare)
            )
        except (NoAnswer, AttestationFailed) as error:
            _unload(server, name)
            if isinstance(error, (TryAgain, AttestationFailed)):
                raise
            raise failed(adapter, f"{server.line.endpoint.url} did not answer the probe ({error})") from None


_shelves: dict[str, Shelf] = {}


def shelf_of(url: str) -> Shelf:
    """This process's shelf on the server of a URL."""
    return _shelves.setdefault(url, Shelf())


def _post(server: ServedModel, adapter: Adapter, name: str, folder: Path) -> None:
    """Have the server load a folder under a name; UserError or AttestationFailed where it does not."""
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


def _changing_nothing(blobs: Blobs, adapter: Adapter, folder: Path) -> str:
    """The blob of an adapter on the same modules whose every value is zero."""
    stored, _ = read_adapter(adapter, folder)
    with TemporaryDirectory() as made:
        shutil.copy(folder / CONFIG_NAME, made)
        zeros = {key: torch.zeros_like(tensor) for key, tensor in stored.items()}
        save_file(zeros, Path(made) / SAFETENSORS_WEIGHTS_NAME)
        return blobs.put_tree(Path(made))


def _following(server: ServedModel, name: str, prompt: Sequence[int], tokens: Sequence[int]) -> list[float]:
    """Log-probabilities of tokens as the next one: asked for by id, or by echo where the server has only that."""
    try:
        return server.following(name, [prompt], tokens)[0][0]
    except TryAgain:
        raise
    except NoAnswer:
        return [row[-1] for row in server.score(name, [[*prompt, token] for token in tokens])]


def _unload(server: ServedModel, name: str) -> None:
    # A name is never used for anything else, so one that stays behind does no harm.
    with suppress(NoAnswer):
        server.post(UNLOAD, {"lora_name": name})
