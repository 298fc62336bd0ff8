"""Losses over response tokens, in float32 whatever the model computes in."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

IGNORED = -100


def sft_loss(logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Weighted mean negative log-likelihood over the response tokens, in nats.

    ``logits`` [batch, response, vocabulary], ``targets`` [batch, response] (``IGNORED``
    past a response's end), ``weights`` [batch], positive. With w_i the weight of row i:

        sum_i w_i sum_t -log p(y_it | y_i<t, x_i)  /  sum_i w_i |y_i|

    so each token of equal weight counts alike, whatever the length of its row. Returns a
    float32 scalar. Raises ValueError when no target is left to learn.
    """
    if logits.shape[:2] != targets.shape or weights.shape != targets.shape[:1]:
        raise ValueError(f"shapes do not fit: {tuple(logits.shape)}, {tuple(targets.shape)}, {tuple(weights.shape)}")
    learned = targets != IGNORED
    if not bool(learned.any()):
        raise ValueError("no response token in the batch: every target is ignored")
    token_nll = cross_entropy(
        logits.float().flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="none"
    ).view_as(targets)
    token_weights = weights.float().unsqueeze(1) * learned
    loss: Tensor = torch.sum(token_nll * token_weights) / torch.sum(token_weights)
    return loss
