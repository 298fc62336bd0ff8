"""A stranger's PEFT folder, read as data alone: copied, checked, and written anew.

Nothing in it is run, unpickled, fetched or followed: its configuration never reaches PEFT.
The numbers are bound to our own adapter of the shape it states, on our own base, and what is
stored is the file that this writes.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file

from loop.core.accounting import TensorShape, safetensors_shapes
from loop.core.base import Base
from loop.core.errors import UserError
from loop.core.imported import Imported, Terms
from loop.core.pair import Adapter
from loop.core.training_set import TrainingProfile
from loop.ports import Blobs
from loop.trainers.adapters import CONFIG_FILE, PROBE_FILE, WEIGHTS_FILE, Values, keep, probed
from loop.trainers.signature import signer_of

MOST_BYTES: Mapping[str, int] = {CONFIG_FILE: 1 << 16, PROBE_FILE: 1 << 20, WEIGHTS_FILE: 2 << 30}
MOST_RANK = 512
MOST_TARGETS = 64
PICKLES = frozenset({".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".joblib", ".npy", ".npz", ".dill"})
DTYPES = frozenset({"F32", "F16", "BF16"})
# Read, or without any meaning for an adapter whose numbers are known. Every other field must be off.
KNOWN_FIELDS = frozenset(
    {"peft_type", "task_type", "r", "lora_alpha", "lora_dropout", "target_modules", "base_model_name_or_path", "bias"}
    | {"peft_version", "inference_mode", "init_lora_weights", "megatron_core", "qalora_group_size", "revision"}
)
# The others (pissa, olora, loftq, ...) also change the base, so the numbers alone are not the adapter.
PLAIN_STARTS = (True, False, "gaussian")
PROBE_TOLERANCE = 5e-3  # logits, float32 by unlike kernels (see loop.engines.attest)
NO_CHANGE = 1e-5


class Files(NamedTuple):
    """Private copies of the files that are read, and ``sha256sum``'s lines for them, sorted by name."""

    folder: Path
    listing: str


def receive(
    path: Path, base: Base, blobs: Blobs, terms: Terms, *, signed: tuple[Path, Path] | None, who: str, at: str
) -> Imported:
    """Check the folder against the base and store its adapter; ``signed`` is (signature, public key).

    UserError in one sentence for anything that is not as it should be; then nothing is stored.
    """
    terms = terms.revise(licence=_licence(terms.licence))
    with copied(path) as files:
        signer = signer_of(files.listing, *signed) if signed else None
        profile = read_profile(files.folder / CONFIG_FILE, base, stated=bool(terms.base_digest))
        values = read_values(files.folder / WEIGHTS_FILE, profile)
        known_by, probe = _base_evidence(files.folder / PROBE_FILE, base, terms)
        source = hashlib.sha256(files.listing.encode()).hexdigest()
        adapter = _store(base, blobs, profile, values, probe, terms, source)
    return Imported(
        adapter=adapter,
        terms=terms,
        source=str(path),
        source_digest=source,
        signer=signer,
        base_known_by=known_by,
        who=who,
        at=at,
    )


def listing_of(folder: Path) -> str:
    """What an owner signs: ``sha256sum``'s lines for the files of an adapter's folder."""
    with copied(folder) as files:
        return files.listing


@contextmanager
def copied(path: Path) -> Iterator[Files]:
    """The files as they are now: later changes of the folder, or of links in it, change nothing."""
    with tempfile.TemporaryDirectory(prefix="received-") as name:
        target = Path(name)
        try:
            folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError as error:
            raise UserError(
                f"{path} is not a folder ({error.strerror}): give a PEFT folder itself, no link."
            ) from error
        try:
            _refuse_strangers(path, folder)
            digests = {file: _copy(path, folder, file, target) for file in sorted(MOST_BYTES)}
        finally:
            os.close(folder)
        yield Files(target, "".join(f"{digest}  {file}\n" for file, digest in digests.items() if digest))


def _refuse_strangers(path: Path, folder: int) -> None:
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.is_symlink():
            raise UserError(f"{path} holds the link {entry.name!r}: give a folder of plain files.")
        if Path(entry.name).suffix.lower() in PICKLES | {".py"}:
            raise UserError(
                f"{path} holds {entry.name!r}, which can run code when it is loaded: "
                f"give a folder with {CONFIG_FILE} and {WEIGHTS_FILE}."
            )


def _copy(path: Path, folder: int, name: str, target: Path) -> str:
    """Copy one file and return its SHA-256; empty for a probe that is not there."""
    try:
        source = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    except FileNotFoundError:
        if name == PROBE_FILE:
            return ""
        raise UserError(f"{path} has no {name}: give a PEFT folder whose weights are safetensors.") from None
    except OSError as error:
        raise UserError(f"cannot read {name} of {path} ({error.strerror}): give a folder of plain files.") from error
    with os.fdopen(source, "rb") as stream, (target / name).open("wb") as copy:
        about, most, digest = os.fstat(source), MOST_BYTES[name], hashlib.sha256()
        if not stat.S_ISREG(about.st_mode) or about.st_size > most:
            raise UserError(f"{name} of {path} is not a plain file of at most {most:,} bytes: give the adapter alone.")
        left = most
        while chunk := stream.read(min(1 << 20, left)):
            digest.update(chunk)
            copy.write(chunk)
            left -= len(chunk)
    return digest.hexdigest()


def read_profile(file: Path, base: Base, *, stated: bool) -> TrainingProfile:
    """The shape that a configuration states; UserError for any field that would do more than shape LoRA.

    The base's name must fit unless its digest is ``stated``; it is never looked up.
    """
    fields = _json(file)
    if fields.get("peft_type") != "LORA" or fields.get("task_type") not in (None, "CAUSAL_LM"):
        raise UserError(
            f"{CONFIG_FILE} describes no LoRA adapter of a causal language model, which is all that is taken."
        )
    on = sorted(name for name, value in fields.items() if name not in KNOWN_FIELDS and value)
    on += ["bias"] if fields.get("bias", "none") != "none" else []
    on += ["init_lora_weights"] if fields.get("init_lora_weights", True) not in PLAIN_STARTS else []
    if on:
        raise UserError(f"{CONFIG_FILE} sets {', '.join(on)}, which is not supported: give a plain LoRA adapter.")
    targets = fields.get("target_modules")
    if not isinstance(targets, list) or not all(isinstance(target, str) for target in targets):
        raise UserError(f"{CONFIG_FILE} needs target_modules as a list of names, found {type(targets).__name__}.")
    if not 0 < len(targets) <= MOST_TARGETS or len(set(targets)) < len(targets):
        raise UserError(
            f"{CONFIG_FILE} names {len(targets)} target_modules: 1 to {MOST_TARGETS} different ones are taken."
        )
    named = fields.get("base_model_name_or_path")
    if not stated and _last(named) != _last(base.id):
        raise UserError(
            f"{CONFIG_FILE} names the base {named!r}, not {base.id}: if it is the same, say so by --base-digest."
        )
    try:
        profile = TrainingProfile(
            name="of the imported adapter",
            rank=fields.get("r"),
            alpha=fields.get("lora_alpha"),
            dropout=fields.get("lora_dropout", 0.0),
            targets=tuple(sorted(targets)),
            learning_rate=1.0,
            batch_rows=1,
        )
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"{CONFIG_FILE} has a bad {first['loc'][0]}: {first['msg']}.") from None
    if profile.rank > MOST_RANK or not math.isfinite(profile.alpha) or not 0 <= profile.dropout < 1:
        raise UserError(f"{CONFIG_FILE} needs a rank up to {MOST_RANK}, a finite alpha, and a dropout from 0 to 1.")
    return profile


def read_values(file: Path, profile: TrainingProfile) -> Values:
    """The tensors in float32; UserError unless the file is whole, of this rank, and all numbers are finite."""
    try:
        shapes = safetensors_shapes(file)
    except UserError as error:
        raise UserError(str(error).replace(str(file), file.name)) from None
    for key, shape in sorted(shapes.items()):
        _check_tensor(key, shape, profile.rank)
    try:
        values = {key: value.float() for key, value in sorted(load_file(str(file)).items())}
    except (OSError, SafetensorError) as error:
        raise UserError(f"{file.name} cannot be read ({error}): copy it again.") from error
    bad = [key for key, value in values.items() if not bool(torch.isfinite(value).all())]
    if bad:
        raise UserError(f"{len(bad)} tensors hold values that are no numbers, first {bad[0]}: the adapter is broken.")
    return values


def _check_tensor(key: str, shape: TensorShape, rank: int) -> None:
    if shape.dtype not in DTYPES:
        raise UserError(f"tensor {key} is of type {shape.dtype}; expected one of {', '.join(sorted(DTYPES))}.")
    side = {"lora_A": 0, "lora_B": 1}.get(key.rpartition(".weight")[0].rpartition(".")[2])
    if side is None or len(shape.shape) != 2:
        raise UserError(f"tensor {key} of shape {shape.shape} is no LoRA factor: give a plain LoRA adapter.")
    if shape.shape[side] != rank:
        raise UserError(
            f"tensor {key} has rank {shape.shape[side]}, and {CONFIG_FILE} says {rank}: give matching files."
        )


def _base_evidence(file: Path, base: Base, terms: Terms) -> tuple[Literal["probe", "statement"], dict[str, Any] | None]:
    """What shows that the adapter belongs to the base: its trainer's probe, or the importer's word for its digest."""
    if terms.base_digest not in ("", base.weights_digest):
        raise UserError(
            f"the adapter was trained on base {terms.base_digest[:12]} and this lineage has {base.weights_digest[:12]} "
            f"({base.id}): it cannot be used here."
        )
    if file.is_file():
        return "probe", _json(file)
    if not terms.base_digest:
        raise UserError(
            f"the folder has no {PROBE_FILE} to show its base: ask the owner for the digest of its base's weights and "
            "give it as --base-digest."
        )
    return "statement", None


def _store(
    base: Base,
    blobs: Blobs,
    profile: TrainingProfile,
    values: Values,
    claimed: dict[str, Any] | None,
    terms: Terms,
    source: str,
) -> Adapter:
    try:
        adapter = Adapter(
            label=terms.label,
            role=terms.role,
            owner=terms.owner,
            licence=terms.licence,
            base_digest=base.weights_digest,
            rank=profile.rank,
            alpha=profile.alpha,
            dropout=profile.dropout,
            targets=profile.targets,
            stored_values=sum(value.numel() for value in values.values()),
            blob="",
            parent=source,
        )
        model, probe = probed(base, blobs, profile, values, torch.device("cpu"))
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"the {first['loc'][0]} of the adapter: {first['msg']}.") from None
    except ValueError as error:
        raise UserError(f"the adapter does not fit {base.id}: {error}.") from error
    if _apart(probe["logits"], probe["base_logits"]) <= NO_CHANGE:
        raise UserError("the adapter answers exactly as the base does: there is nothing to import.")
    if claimed is not None:
        _check_probe(claimed, probe, base)
    return adapter.revise(blob=keep(model, probe, base, blobs))


def _check_probe(claimed: dict[str, Any], probe: dict[str, Any], base: Base) -> None:
    """UserError unless the trainer saw this base, and this adapter on it, as we see them."""
    if any(claimed.get(name) != probe[name] for name in ("prompt_ids", "token_ids")):
        raise UserError(f"{PROBE_FILE} was taken on another base than {base.id}: the adapter cannot be used here.")
    for name, what in (("base_logits", "base"), ("logits", "adapter")):
        apart = _apart(claimed.get(name), probe[name])
        if not apart <= PROBE_TOLERANCE:
            raise UserError(
                f"the {what}'s logits are {apart:.3g} from those in {PROBE_FILE}: it is not what was trained."
            )


def _apart(left: Any, right: list[float]) -> float:
    """The largest difference; infinite for what is no list of as many finite numbers."""
    if not isinstance(left, list) or len(left) != len(right) or not all(isinstance(value, float) for value in left):
        return math.inf
    distances = [abs(a - b) for a, b in zip(left, right, strict=True)]
    return max(distances) if all(map(math.isfinite, distances)) else math.inf


def _json(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file.name} is not JSON ({type(error).__name__}): copy it again.") from error
    if not isinstance(found, dict):
        raise UserError(f"{file.name} is not a JSON object: copy it again.")
    return found


def _last(name: object) -> str:
    return str(name).rstrip("/").rpartition("/")[2]


def _licence(expression: str) -> str:
    try:
        return str(canonicalize_license_expression(expression))
    except InvalidLicenseExpression as error:
        raise UserError(f"{expression!r} is no SPDX licence expression ({error}): give one like Apache-2.0.") from error
