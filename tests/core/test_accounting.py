"""Parameter accounting against figures worked out by hand and files written by safetensors."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from loop.core.accounting import (
    Accounting,
    AdapterSize,
    TensorShape,
    adapter_size,
    billions,
    lora_values,
    published,
    safetensors_shapes,
)
from loop.core.errors import UserError


def test_the_published_figures_come_out_as_published() -> None:
    venti = published("venti").accounting()
    assert venti.adapter_values == 30_752_169_984  # 4 x 7,688,042,496
    assert billions(venti.adapter_values) == "30.75B"
    assert billions(venti.logical_values, 1) == "774.8B"
    assert billions(venti.merged_values) == "2.976T"
    assert f"{venti.ratio:.1%}" == "26.0%"


def test_four_tall_specialists_share_a_base_at_a_good_third_of_merged_copies() -> None:
    tall = published("tall").accounting()
    assert tall.logical_values == 50_120_000_000  # 35B + 4 x 3.78B
    assert tall.ratio == pytest.approx(50.12 / 140)


def test_an_unknown_profile_lists_those_that_exist() -> None:
    with pytest.raises(UserError, match="'grande' .*venti, tall"):
        published("grande")


def test_shapes_are_read_from_a_file_that_safetensors_wrote(tmp_path: Path) -> None:
    path = tmp_path / "adapter_model.safetensors"
    arrays = {"a.lora_A": np.zeros((16, 576), np.float32), "a.lora_B": np.zeros((192, 16), np.float16)}
    save_file(arrays, path, metadata={"format": "pt"})
    shapes = safetensors_shapes(path)
    assert shapes == {
        "a.lora_A": TensorShape(shape=(16, 576), dtype="F32"),
        "a.lora_B": TensorShape(shape=(192, 16), dtype="F16"),
    }
    size = adapter_size("L0", shapes)
    assert size == AdapterSize(label="L0", values=9_216 + 3_072, size=36_864 + 6_144)
    assert size.values == lora_values(576, 192, 16)


def test_a_scalar_is_one_value_and_an_empty_tensor_none() -> None:
    assert TensorShape(shape=(), dtype="F32").values == 1
    assert TensorShape(shape=(0, 4), dtype="F32").values == 0


def test_a_file_that_is_cut_short_or_is_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "adapter_model.safetensors"
    save_file({"w": np.zeros((4, 4), np.float32)}, path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(UserError, match=f"should have {len(whole)} bytes and has {len(whole) - 1}"):
        safetensors_shapes(path)
    for content in (
        b"",
        b"PK",
        b"\xff" * 64,
        struct.pack("<Q", 4) + b"[1]x",
        struct.pack("<Q", 14) + b'{"w":{"a":1}}x',
    ):
        path.write_bytes(content)
        with pytest.raises(UserError, match="not a safetensors file"):
            safetensors_shapes(path)


def test_an_unknown_dtype_is_named() -> None:
    with pytest.raises(UserError, match="F4"):
        adapter_size("L0", {"w": TensorShape(shape=(2,), dtype="F4")})


def test_one_adapter_costs_more_than_its_merged_copy_and_none_has_no_ratio() -> None:
    one = Accounting(base_values=100, adapters=(AdapterSize(label="L0", values=5),))
    assert (one.logical_values, one.merged_values, one.ratio, one.overhead) == (105, 100, 1.05, 0.05)
    assert math.isinf(Accounting(base_values=100, adapters=()).ratio)


def test_the_header_is_plain_json_as_the_format_says(tmp_path: Path) -> None:
    header = json.dumps({"w": {"dtype": "BF16", "shape": [3], "data_offsets": [0, 6]}}).encode()
    path = tmp_path / "by_hand.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(6))
    assert safetensors_shapes(path) == {"w": TensorShape(shape=(3,), dtype="BF16")}
