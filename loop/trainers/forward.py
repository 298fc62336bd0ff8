"""From a batch of rows to the logits of its response tokens, with shared work done once.

The rows of one environment begin with the same system message and exemplars. That common
prefix is computed once, as a batch of one, and its keys and values are expanded to the
rows; autograd adds up the rows' gradients on the way back, so the full gradient is exact
and only cheaper. The head is applied to response positions alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import DynamicCache, DynamicLayer

from loop.core.errors import UserError
from loop.core.training_set import Row
from loop.trainers.losses import IGNORED


@dataclass(frozen=True)
class Batch:
    """Rows laid out so that their responses start in one column.

    With P the common prefix, T the longest rest of a prompt and R the longest response:
    ``prefix`` [1, P]; ``tokens`` [batch, T + R - 1]: the rest of the prompt, padded on the
    left, then the response without its last token, padded on the right; ``mask``
    [batch, P + T + R - 1] and ``positions`` [batch, T + R - 1] as the model takes them;
    ``targets`` [batch, R] and ``weights`` [batch] as the loss takes them.
    """

    prefix: Tensor
    tokens: Tensor
    mask: Tensor
    positions: Tensor
    targets: Tensor
    weights: Tensor

    @property
    def tail(self) -> int:
        """T: columns of ``tokens`` that belong to the prompts."""
        return self.tokens.shape[1] - self.targets.shape[1] + 1


def lay_out(rows: Sequence[Row], device: torch.device, *, share_prefix: bool) -> Batch:
    """Lay rows out as a batch; the last prompt token is never in the prefix (it predicts)."""
    shared = common_prefix([row.prompt_ids for row in rows]) if share_prefix else 0
    tail = max(len(row.prompt_ids) for row in rows) - shared
    width = max(len(row.response_ids) for row in rows)
    columns = tail + width - 1
    tokens = torch.zeros(len(rows), columns, dtype=torch.long)
    mask = torch.zeros(len(rows), shared + columns, dtype=torch.long)
    targets = torch.full((len(rows), width), IGNORED, dtype=torch.long)
    mask[:, :shared] = 1
    for index, row in enumerate(rows):
        content = torch.tensor(row.prompt_ids[shared:] + row.response_ids[:-1])
        start = tail - (len(row.prompt_ids) - shared)
        tokens[index, start : start + len(content)] = content
        mask[index, shared + start : shared + start + len(content)] = 1
        targets[index, : len(row.response_ids)] = torch.tensor(row.response_ids)
    positions = (mask.cumsum(dim=1) - 1).clamp(min=0)[:, shared:]
    return Batch(
        prefix=torch.tensor([rows[0].prompt_ids[:shared]], dtype=torch.long, device=device),
        tokens=tokens.to(device),
        mask=mask.to(device),
        positions=positions.to(device),
        targets=targets.to(device),
        weights=torch.tensor([row.weight for row in rows], dtype=torch.float32, device=device),
    )


def common_prefix(prompts: Sequence[tuple[int, ...]]) -> int:
    """Length of the longest common beginning that leaves every prompt at least one token."""
    first, last = min(prompts), max(prompts)
    limit = min(len(prompt) for prompt in prompts) - 1
    agree = (index for index in range(limit) if first[index] != last[index])
    return next(agree, limit)


def response_logits(model: Any, batch: Batch, *, prompt_gradient: bool) -> Tensor:
    """Logits that predict the response tokens, [batch, R, vocabulary], with autograd.

    ``model`` is a transformers causal language model with its adapter attached. Without
    ``prompt_gradient`` this is response replay (LongStraw): all of the prompt but its last
    token is run without autograd and kept as keys and values, and the term of the gradient
    that flows through the prompt's computation is dropped.
    """
    cache = _prefix_cache(model, batch, prompt_gradient)
    if prompt_gradient:
        keep = torch.arange(batch.tail - 1, batch.tokens.shape[1], device=batch.tokens.device)
        return _logits(model, batch, cache, first=0, keep=keep)
    first = batch.tail - 1
    if first:
        cache = DynamicCache(config=model.config) if cache is None else cache
        with torch.no_grad():
            model.get_decoder()(
                input_ids=batch.tokens[:, :first],
                attention_mask=batch.mask[:, : batch.prefix.shape[1] + first],
                position_ids=batch.positions[:, :first],
                cache=cache,
                use_cache=True,
            )
    return _logits(model, batch, cache, first=first, keep=0)


def shares_prefix(model: Any) -> bool:
    """Whether every layer keeps plain keys and values (no window, no recurrent state)."""
    return all(type(layer) is DynamicLayer for layer in DynamicCache(config=model.config).layers)


def require_replay(model: Any, profile_name: str) -> None:
    """UserError when a profile asks for response replay on a base that cannot do it."""
    if not shares_prefix(model):
        raise UserError(
            f"profile {profile_name} sets prompt_gradient = false, but {model.config.model_type} keeps more than "
            "plain keys and values: set prompt_gradient = true."
        )


def _prefix_cache(model: Any, batch: Batch, prompt_gradient: bool) -> DynamicCache | None:
    if batch.prefix.shape[1] == 0:
        return None
    cache = DynamicCache(config=model.config)
    with nullcontext() if prompt_gradient else torch.no_grad():
        model.get_decoder()(input_ids=batch.prefix, cache=cache, use_cache=True)
        for layer in cache.layers:
            # A view, not a copy: the sum over the rows is taken where the gradient flows back.
            layer.keys = layer.keys.expand(batch.tokens.shape[0], -1, -1, -1)
            layer.values = layer.values.expand(batch.tokens.shape[0], -1, -1, -1)
    return cache


def _logits(model: Any, batch: Batch, cache: DynamicCache | None, *, first: int, keep: Tensor | int) -> Tensor:
    logits: Tensor = model(
        input_ids=batch.tokens[:, first:],
        attention_mask=batch.mask,
        position_ids=batch.positions[:, first:],
        cache=cache,
        use_cache=cache is not None,
        logits_to_keep=keep,
    ).logits
    if logits.shape[:2] != batch.targets.shape:
        raise ValueError(f"expected logits for {tuple(batch.targets.shape)} targets, found {tuple(logits.shape)}")
    return logits
