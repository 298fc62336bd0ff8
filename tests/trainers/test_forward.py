"""Shared prefixes, padding and response replay against plain passes, one row at a time, in float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache

from loop.core.training_set import Row
from loop.trainers.adapters import adapter_parameters, attach, redraw
from loop.trainers.forward import Batch, common_prefix, lay_out, response_logits
from loop.trainers.losses import IGNORED, sft_loss
from tests.trainers.tiny import PROFILE, tiny_model, tiny_rows

CPU = torch.device("cpu")
ROWS = tiny_rows(5)


def adapted() -> Any:
    """The tiny model in float64 with an adapter that does something."""
    model = tiny_model(torch.float64).requires_grad_(False)
    peft_model = attach(model, PROFILE)
    redraw(peft_model, 1)
    generator = torch.Generator().manual_seed(2)
    for name, parameter in adapter_parameters(peft_model).items():
        if "lora_B" in name:
            parameter.data.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return peft_model


def gradient(peft_model: Any) -> Tensor:
    found = torch.cat([parameter.grad.flatten() for parameter in adapter_parameters(peft_model).values()])
    peft_model.zero_grad()
    return found


def batch_gradient(peft_model: Any, batch: Batch, *, prompt_gradient: bool) -> tuple[float, Tensor]:
    logits = response_logits(peft_model.get_base_model(), batch, prompt_gradient=prompt_gradient)
    loss = sft_loss(logits, batch.targets, batch.weights)
    loss.backward()
    return float(loss.detach()), gradient(peft_model)


def plain_gradient(peft_model: Any, rows: Sequence[Row]) -> tuple[float, Tensor]:
    """Every row by itself, unpadded, all logits, the formula written out."""
    total = torch.zeros((), dtype=torch.float64)
    for row in rows:
        ids = torch.tensor([row.prompt_ids + row.response_ids])
        scores = peft_model(input_ids=ids).logits[0].log_softmax(-1)
        for place, token in enumerate(row.response_ids):
            total = total - row.weight * scores[len(row.prompt_ids) + place - 1, token]
    loss = total / sum(row.weight * len(row.response_ids) for row in rows)
    loss.backward()
    return float(loss.detach()), gradient(peft_model)


def replay_gradient(peft_model: Any, rows: Sequence[Row]) -> tuple[float, Tensor]:
    """Every row by itself, the keys and values of all prompt tokens but the last detached."""
    model = peft_model.get_base_model()
    total = torch.zeros((), dtype=torch.float64)
    for row in rows:
        cache = DynamicCache(config=model.config)
        model(input_ids=torch.tensor([row.prompt_ids[:-1]]), cache=cache, use_cache=True)
        for layer in cache.layers:
            layer.keys, layer.values = layer.keys.detach(), layer.values.detach()
        ids = torch.tensor([row.prompt_ids[-1:] + row.response_ids[:-1]])
        scores = model(input_ids=ids, cache=cache, use_cache=True).logits[0].log_softmax(-1)
        for place, token in enumerate(row.response_ids):
            total = total - row.weight * scores[place, token]
    loss = total / sum(row.weight * len(row.response_ids) for row in rows)
    loss.backward()
    return float(loss.detach()), gradient(peft_model)


@pytest.mark.parametrize("share_prefix", [True, False])
def test_the_gradient_of_a_batch_is_the_full_gradient_whether_the_prefix_is_shared_or_not(share_prefix: bool) -> None:
    peft_model = adapted()
    loss, found = batch_gradient(peft_model, lay_out(ROWS, CPU, share_prefix=share_prefix), prompt_gradient=True)
    expected_loss, expected = plain_gradient(peft_model, ROWS)
    assert loss == pytest.approx(expected_loss, rel=1e-6)
    # Llama takes norms, softmax and the loss in float32, so float64 gradients agree to about six digits.
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("share_prefix", [True, False])
def test_response_replay_is_the_full_gradient_without_the_term_through_the_prompt(share_prefix: bool) -> None:
    peft_model = adapted()
    loss, found = batch_gradient(peft_model, lay_out(ROWS, CPU, share_prefix=share_prefix), prompt_gradient=False)
    expected_loss, expected = replay_gradient(peft_model, ROWS)
    assert loss == pytest.approx(expected_loss, rel=1e-6)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    assert not torch.allclose(found, plain_gradient(peft_model, ROWS)[1], rtol=1e-2)


def test_no_prompt_token_and_no_padding_is_a_target() -> None:
    batch = lay_out(ROWS, CPU, share_prefix=True)
    for row, targets in zip(ROWS, batch.targets.tolist(), strict=True):
        assert tuple(token for token in targets if token != IGNORED) == row.response_ids


def test_a_single_row_and_prompts_without_a_common_start_are_laid_out_too() -> None:
    strangers = tiny_rows(2, seed=3)[:1] + tiny_rows(2, seed=4)[:1]
    assert common_prefix([row.prompt_ids for row in strangers]) == 0
    for rows in (ROWS[:1], strangers):
        peft_model = adapted()
        found = batch_gradient(peft_model, lay_out(rows, CPU, share_prefix=True), prompt_gradient=True)[1]
        torch.testing.assert_close(found, plain_gradient(peft_model, rows)[1], rtol=1e-4, atol=1e-6)


def test_the_last_prompt_token_is_never_in_the_prefix() -> None:
    assert common_prefix([(1, 2, 3), (1, 2, 3)]) == 2
    assert common_prefix([(1, 2), (1, 2, 3)]) == 1
    assert common_prefix([(1, 2, 3), (1, 4, 3)]) == 1
    assert common_prefix([(7,)]) == 0
