"""The loss against numbers worked out elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import log_softmax

from loop.trainers.losses import IGNORED, sft_loss


def test_a_two_token_example_by_hand() -> None:
    # Uniform over 4 tokens: ln 4. One token with odds 3 to 1+1+1 more by ln 3: p = 3 / 6.
    logits = torch.tensor([[[0.0, 0.0, 0.0, 0.0], [np.log(3.0), 0.0, 0.0, 0.0]]])
    loss = sft_loss(logits, torch.tensor([[2, 0]]), torch.ones(1))
    assert float(loss) == pytest.approx((np.log(4.0) + np.log(2.0)) / 2, rel=1e-6)


def test_it_equals_the_weighted_token_mean_in_float64() -> None:
    draw = np.random.default_rng(0)
    logits = draw.normal(size=(3, 5, 11)) * 3
    targets = draw.integers(0, 11, size=(3, 5))
    lengths, weights = (5, 2, 4), (1.0, 3.0, 0.5)
    total = tokens = 0.0
    for row, (length, weight) in enumerate(zip(lengths, weights, strict=True)):
        targets[row, length:] = IGNORED
        for token in range(length):
            total -= weight * log_softmax(logits[row, token])[targets[row, token]]
            tokens += weight
    loss = sft_loss(torch.tensor(logits), torch.tensor(targets), torch.tensor(weights))
    assert loss.dtype == torch.float32
    assert float(loss) == pytest.approx(total / tokens, rel=1e-6)


def test_it_is_computed_in_float32_from_bfloat16_logits() -> None:
    logits = torch.randn(2, 3, 64, generator=torch.Generator().manual_seed(0)).bfloat16()
    targets = torch.tensor([[1, 2, 3], [4, 5, IGNORED]])
    expected = sft_loss(logits.double(), targets, torch.ones(2))
    assert float(sft_loss(logits, targets, torch.ones(2))) == pytest.approx(float(expected), rel=1e-6)


def test_a_batch_without_response_tokens_is_an_error() -> None:
    with pytest.raises(ValueError, match="no response token"):
        sft_loss(torch.zeros(1, 2, 4), torch.full((1, 2), IGNORED), torch.ones(1))


def test_shapes_that_do_not_fit_are_an_error() -> None:
    with pytest.raises(ValueError, match="shapes do not fit"):
        sft_loss(torch.zeros(1, 2, 4), torch.zeros(1, 3, dtype=torch.long), torch.ones(1))
