"""Both forwards against one whole pass of plain transformers, for every cut into prefix, own part and step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from loop.core.base import Base
from loop.engines.forward import Forward, ModuleForward
from loop.engines.llama import LlamaForward, fits
from loop.store.blobs import FsBlobs
from tests.engines.tiny import reference_model, tiny_base

FORWARDS = [ModuleForward, LlamaForward]


@pytest.fixture(scope="module")
def tokens() -> list[list[int]]:
    """Four sequences that begin alike for 40 tokens."""
    drawn = torch.randint(3, 259, (4, 90), generator=torch.Generator().manual_seed(0))
    drawn[:, :40] = drawn[0, :40]
    rows: list[list[int]] = drawn.tolist()
    return rows


def last_logits(model: Any, sequence: list[int]) -> torch.Tensor:
    """Logits after the last token, by one pass without a cache."""
    with torch.inference_mode():
        logits: torch.Tensor = model(torch.tensor([sequence])).logits[0, -1]
    return logits


@pytest.mark.parametrize("kind", FORWARDS)
@pytest.mark.parametrize("shared", [0, 1, 31, 40])
def test_prefix_and_own_part_give_the_whole_passs_logits(
    kind: type, shared: int, base: Base, blobs: FsBlobs, tokens: list[list[int]]
) -> None:
    model = reference_model(base, blobs)
    lengths = (90, 41, 64, 72)
    whole = [sequence[:length] for sequence, length in zip(tokens, lengths, strict=True)]
    expected = torch.stack([last_logits(model, sequence) for sequence in whole])
    forward: Forward = kind(model)
    logits, cache = forward.extend(forward.prefix(whole[0][:shared]), [sequence[shared:] for sequence in whole])
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)
    assert cache.shape[1] == 4
    assert cache.shape[2] >= 90 - shared


@pytest.mark.parametrize("kind", FORWARDS)
def test_steps_give_the_whole_passs_logits(kind: type, base: Base, blobs: FsBlobs, tokens: list[list[int]]) -> None:
    model = reference_model(base, blobs)
    forward: Forward = kind(model)
    prefix = forward.prefix(tokens[0][:40])
    lengths = [1, 9, 30, 17]
    _, cache = forward.extend(prefix, [row[40 : 40 + length] for row, length in zip(tokens, lengths, strict=True)])
    rows = forward.empty(6, 64)
    rows[:, :4, : cache.shape[2]] = cache
    for _ in range(3):
        newest = torch.tensor([row[40 + length] for row, length in zip(tokens, lengths, strict=True)])
        logits = forward.step(prefix, rows, torch.tensor(lengths), newest)
        lengths = [length + 1 for length in lengths]
        expected = [last_logits(model, row[: 40 + length]) for row, length in zip(tokens, lengths, strict=True)]
        torch.testing.assert_close(logits, torch.stack(expected), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", FORWARDS)
@pytest.mark.parametrize("shared", [0, 40])
def test_a_past_between_prefix_and_own_part_gives_the_whole_passs_logits(
    kind: type, shared: int, base: Base, blobs: FsBlobs, tokens: list[list[int]]
) -> None:
    model = reference_model(base, blobs)
    forward: Forward = kind(model)
    prefix = forward.prefix(tokens[0][:shared])
    starts, lengths = [shared + past for past in (1, 33, 30, 12)], (90, 75, 71, 89)
    pasts = []
    for row, start in zip(tokens, starts, strict=True):
        _, cache = forward.extend(prefix, [row[shared:start]])
        pasts.append(cache[:, 0, : start - shared])
    new = [row[start:length] for row, start, length in zip(tokens, starts, lengths, strict=True)]
    logits, cache = forward.extend(prefix, new, pasts)
    whole = [row[:length] for row, length in zip(tokens, lengths, strict=True)]
    torch.testing.assert_close(logits, torch.stack([last_logits(model, row) for row in whole]), atol=1e-4, rtol=1e-4)
    for index, row in enumerate(whole):
        _, expected = forward.extend(prefix, [row[shared:]])
        own = len(new[index])
        begin = starts[index] - shared
        torch.testing.assert_close(cache[:, index, :own], expected[:, 0, begin : begin + own], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", FORWARDS)
@pytest.mark.parametrize("shared", [0, 40])
@pytest.mark.parametrize("with_past", [True, False])
def test_branches_give_the_whole_passs_logits_and_change_nothing_before_them(
    kind: type, shared: int, with_past: bool, base: Base, blobs: FsBlobs, tokens: list[list[int]]
) -> None:
    model = reference_model(base, blobs)
    forward: Forward = kind(model)
    prefix = forward.prefix(tokens[0][:shared])
    starts = [shared + past for past in (1, 33, 30)] if with_past else [shared] * 3
    pasts = []
    for row, start in zip(tokens, starts, strict=False):
        if with_past:
            pasts.append(forward.extend(prefix, [row[shared:start]])[1][:, 0, : start - shared])
    new = [row[start:length] for row, start, length in zip(tokens, starts, (90, 75, 74), strict=False)]
    begun: list[list[tuple[int, ...]]] = [[(5,), (5, 9), (5, 9, 5), (5, 11), (9,)], [], [(7,), (7, 7)]]
    logits, cache = forward.extend(prefix, new, pasts, begun)
    whole = [
        [*row[:start], *mine, *follows]
        for row, start, mine, branches in zip(tokens, starts, new, begun, strict=False)
        for follows in ((), *branches)
    ]
    expected = torch.stack([last_logits(model, sequence) for sequence in whole])
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=1e-4)
    _, plain = forward.extend(prefix, new, pasts)
    for index, mine in enumerate(new):
        torch.testing.assert_close(cache[:, index, : len(mine)], plain[:, index, : len(mine)], atol=1e-5, rtol=1e-5)


def test_only_a_plain_llama_takes_the_written_out_pass(base: Base, blobs: FsBlobs, tmp_path: Path) -> None:
    assert fits(reference_model(base, blobs))
    other = tiny_base(tmp_path, blobs, "qwen2")
    assert not fits(reference_model(other, blobs))
