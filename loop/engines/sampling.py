"""Draw tokens from logits, with luck that belongs to the request and to nothing else.

Temperature 0 takes the largest logit and reports ``log_softmax(logits)`` of it. Otherwise
the token is drawn by inverting the cumulative distribution of ``softmax(logits / T)``,
cut to the nucleus when ``top_p`` < 1, and its log-probability under exactly that
distribution is reported. The uniform number of position i is the i-th of a Philox stream
keyed by the request's seed, so batch neighbours never move it.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

BLOCK = 128
HEAD = 512
# A few rows of a large vocabulary stay in the processor's cache over the passes made on them.
ROWS_AT_ONCE = 8


def uniforms(seed: int, count: int) -> Tensor:
    """The first ``count`` numbers in [0, 1) of the request's stream, float64 [count]."""
    return torch.from_numpy(np.random.Generator(np.random.Philox(key=seed)).random(count))


def draw(logits_NV: Tensor, temperature_N: Tensor, top_p_N: Tensor, uniform_N: Tensor) -> tuple[Tensor, Tensor]:
    """Choose a token per row; returns int64 token ids [N] and float32 log-probabilities [N].

    ``logits_NV`` is float of any width, the others float64 [N]. Rows are independent.
    """
    rows, _ = logits_NV.shape
    assert temperature_N.shape == top_p_N.shape == uniform_N.shape == (rows,)
    whole = (logits_NV, temperature_N, top_p_N, uniform_N)
    parts = zip(*(torch.split(tensor, ROWS_AT_ONCE) for tensor in whole), strict=True)
    drawn = [_draw_some(*part) for part in parts]
    return torch.cat([token_N for token_N, _ in drawn]), torch.cat([logprob_N for _, logprob_N in drawn])


def _draw_some(logits_NV: Tensor, temperature_N: Tensor, top_p_N: Tensor, uniform_N: Tensor) -> tuple[Tensor, Tensor]:
    logits_NV = logits_NV.float()
    sampled_N = temperature_N > 0
    if not bool(sampled_N.any()):
        token_N = logits_NV.argmax(-1)
        return token_N, log_probability(logits_NV, token_N)
    scaled_NV = logits_NV / torch.where(sampled_N, temperature_N, 1.0).float()[:, None]
    cut_N = sampled_N & (top_p_N < 1)
    if bool(cut_N.all()):
        found = _draw_head(scaled_NV, top_p_N.float(), uniform_N)
        if found is not None:
            return found
    if bool(cut_N.any()):
        scaled_NV = _nucleus(scaled_NV, torch.where(sampled_N, top_p_N, 1.0).float())
    probability_NV = torch.softmax(scaled_NV, -1)
    token_N = _invert(probability_NV, uniform_N)
    if not bool(sampled_N.all()):
        token_N = torch.where(sampled_N, token_N, logits_NV.argmax(-1))
    return token_N, probability_NV.gather(1, token_N[:, None])[:, 0].log()


def _draw_head(scaled_NV: Tensor, top_p_N: Tensor, uniform_N: Tensor) -> tuple[Tensor, Tensor] | None:
    """Draw within the nucleus of each row when the HEAD likeliest tokens hold it; None when they do not.

    The nucleus of a language model is small: a partial selection finds it at a tenth of
    the cost of sorting the vocabulary. Tokens are inverted in the order of their ids, as
    in the whole distribution.
    """
    head_NK, id_NK = torch.topk(scaled_NV, min(HEAD, scaled_NV.shape[1]))
    mass_NK = (head_NK - torch.logsumexp(scaled_NV, -1, keepdim=True)).exp().double()
    before_NK = mass_NK.cumsum(-1) - mass_NK
    if not bool(((before_NK + mass_NK)[:, -1] >= top_p_N).all()):
        return None
    kept_NK = torch.where(before_NK < top_p_N[:, None], mass_NK, 0.0)
    kept_NK[:, 0] = mass_NK[:, 0]
    order_NK = id_NK.argsort(-1)
    cumulative_NK = kept_NK.gather(1, order_NK).cumsum(-1)
    total_N = cumulative_NK[:, -1]
    place_N = torch.searchsorted(cumulative_NK, (uniform_N * total_N)[:, None], right=True)
    chosen_N1 = order_NK.gather(1, place_N.clamp(max=order_NK.shape[1] - 1))
    logprob_N = (kept_NK.gather(1, chosen_N1)[:, 0] / total_N).log()
    return id_NK.gather(1, chosen_N1)[:, 0], logprob_N.float()


def log_probability(logits_NV: Tensor, token_N: Tensor) -> Tensor:
    """``log_softmax(logits)`` of one token a row, float32 [N], without making the whole table."""
    wide_NV = logits_NV.float()
    return wide_NV.gather(1, token_N[:, None])[:, 0] - torch.logsumexp(wide_NV, -1)


def _nucleus(logits_NV: Tensor, top_p_N: Tensor) -> Tensor:
    """Keep the fewest likeliest tokens whose mass reaches top_p (Holtzman et al. 2020); the rest is -inf."""
    sorted_NV, order_NV = torch.sort(logits_NV, descending=True, stable=True)
    mass_NV = torch.softmax(sorted_NV, -1).cumsum(-1)
    before_NV = mass_NV - torch.softmax(sorted_NV, -1)
    dropped_NV = (before_NV >= top_p_N[:, None]) & (top_p_N[:, None] < 1)
    dropped_NV[:, 0] = False
    return logits_NV.masked_fill(torch.zeros_like(dropped_NV).scatter(1, order_NV, dropped_NV), -torch.inf)


def _invert(probability_NV: Tensor, uniform_N: Tensor) -> Tensor:
    """The first token whose cumulative probability exceeds the uniform number, [N].

    Two levels, blocks and then tokens within one, since a running sum over the whole
    vocabulary costs more than the language-model head.
    """
    rows, vocabulary = probability_NV.shape
    padded_NV = torch.nn.functional.pad(probability_NV, (0, -vocabulary % BLOCK))
    blocks_NBK = padded_NV.view(rows, -1, BLOCK)
    mass_NB = blocks_NBK.sum(-1).double()
    cumulative_NB = mass_NB.cumsum(-1)
    target_N = uniform_N * cumulative_NB[:, -1]
    block_N = torch.searchsorted(cumulative_NB, target_N[:, None], right=True)[:, 0].clamp(max=mass_NB.shape[1] - 1)
    row_N = torch.arange(rows)
    mass_N = mass_NB[row_N, block_N]
    # The share of the block's own mass that is passed over: blocks and tokens round differently.
    share_N = (target_N - (cumulative_NB[row_N, block_N] - mass_N)) / mass_N
    inner_NK = blocks_NBK[row_N, block_N].double().cumsum(-1)
    inner_target_N = share_N.clamp(0, 1 - 1e-12) * inner_NK[:, -1]
    inside_N = torch.searchsorted(inner_NK, inner_target_N[:, None], right=True)[:, 0].clamp(max=BLOCK - 1)
    return block_N * BLOCK + inside_N
