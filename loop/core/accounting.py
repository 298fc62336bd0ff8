"""How many values an adapter set has: on disk, logically, and against merged copies of its base.

*Stored* values are the numbers in the adapter files (LoRA factors A and B). A *merged
copy* is a whole base with one adapter folded in, so k specialists cost k bases.
*Resident* is what a server holds: one shared base and every adapter; *logical* is the
same count, seen as the size of the system (Macaron-V1 prints it as about 774.8B).
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import Field

from loop.core.errors import UserError
from loop.core.noun import Noun

DTYPE_BYTES: Mapping[str, int] = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "F8_E5M2": 1, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1,
    "BOOL": 1,
}  # fmt: skip
LONGEST_HEADER_BYTES = 100_000_000  # the limit of the safetensors format


class TensorShape(Noun):
    """One tensor as its file declares it."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def values(self) -> int:
        """How many numbers it holds; a scalar holds one."""
        return math.prod(self.shape)

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return self.values * DTYPE_BYTES[self.dtype]


class AdapterSize(Noun):
    """One adapter: its label, its stored values and its bytes on disk."""

    label: str
    values: int = Field(ge=0)
    size: int = Field(default=0, ge=0)


class Accounting(Noun):
    """One base and its adapters, counted; every count is in values (parameters)."""

    base_values: int = Field(gt=0)
    adapters: tuple[AdapterSize, ...]

    @property
    def adapter_values(self) -> int:
        """Stored values of all adapters together."""
        return sum(adapter.values for adapter in self.adapters)

    @property
    def logical_values(self) -> int:
        """The shared base once, and every adapter: what is resident when all are served."""
        return self.base_values + self.adapter_values

    @property
    def merged_values(self) -> int:
        """One merged copy of the base per adapter; a merged adapter adds no values."""
        return self.base_values * len(self.adapters)

    @property
    def ratio(self) -> float:
        """Logical over merged; below 1 sharing the base is smaller. ``inf`` without adapters."""
        return self.logical_values / self.merged_values if self.adapters else math.inf

    @property
    def overhead(self) -> float:
        """Adapter values over base values."""
        return self.adapter_values / self.base_values


def safetensors_shapes(path: Path) -> dict[str, TensorShape]:
    """The tensors that a safetensors file declares, from its header alone (no weights are read).

    The format: 8 bytes with the header's length (unsigned, little endian), then the header
    as JSON. Raises UserError when the file is no safetensors file or is cut short.
    """
    with open(path, "rb") as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else LONGEST_HEADER_BYTES + 1
        header = file.read(length) if length <= LONGEST_HEADER_BYTES else b""
    try:
        declared = json.loads(header)
        shapes = {
            name: TensorShape(shape=tuple(entry["shape"]), dtype=entry["dtype"])
            for name, entry in declared.items()
            if name != "__metadata__"
        }
        ends = [int(entry["data_offsets"][1]) for name, entry in declared.items() if name != "__metadata__"]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError) as error:
        raise UserError(f"{path} is not a safetensors file ({error}); give the adapter_model.safetensors.") from error
    expected, found = 8 + length + max(ends, default=0), path.stat().st_size
    if found != expected:
        raise UserError(f"{path} should have {expected} bytes and has {found}; copy it again.")
    return shapes


def adapter_size(label: str, shapes: Mapping[str, TensorShape]) -> AdapterSize:
    """The size of one adapter from its tensors; UserError for a dtype that is not known."""
    strange = sorted({shape.dtype for shape in shapes.values()} - set(DTYPE_BYTES))
    if strange:
        raise UserError(f"Adapter {label} has tensors of type {strange[0]}; known: {', '.join(sorted(DTYPE_BYTES))}.")
    values, size = sum(shape.values for shape in shapes.values()), sum(shape.size for shape in shapes.values())
    return AdapterSize(label=label, values=values, size=size)


def lora_values(in_features: int, out_features: int, rank: int) -> int:
    """Values of one LoRA pair: A is [rank, in], B is [out, rank] (Hu et al. 2021)."""
    return rank * (in_features + out_features)


class Published(Noun):
    """Figures that others published about their system, to be counted in the same way."""

    name: str
    source: str
    base: str
    base_values: int
    labels: tuple[str, ...]
    values_each: int

    def accounting(self) -> Accounting:
        """Their system under our counting."""
        sizes = tuple(AdapterSize(label=label, values=self.values_each) for label in self.labels)
        return Accounting(base_values=self.base_values, adapters=sizes)


_MACARON = "Macaron-V1 report (arXiv 2608.09819) and model cards, as published"

PUBLISHED: Sequence[Published] = (
    Published(
        name="venti",
        source=_MACARON,
        base="GLM-5.2",
        base_values=744_000_000_000,
        labels=("L0", "L1", "L2", "L3"),
        values_each=7_688_042_496,
    ),
    Published(
        name="tall",
        source=f"{_MACARON}; both figures are rounded there",
        base="Qwen3.6-35B-A3B",
        base_values=35_000_000_000,
        labels=("L0", "L1", "L2", "L3"),
        values_each=3_780_000_000,
    ),
)


def published(name: str) -> Published:
    """A published profile by name; UserError listing those that exist."""
    for profile in PUBLISHED:
        if profile.name == name:
            return profile
    known = ", ".join(profile.name for profile in PUBLISHED)
    raise UserError(f"There are no published figures named {name!r} (known: {known}).")


def billions(values: int, digits: int = 2) -> str:
    """'30.75B', or '2.976T' from a thousand billion on."""
    if values >= 10**12:
        return f"{values / 10**12:.3f}T"
    return f"{values / 10**9:.{digits}f}B"
