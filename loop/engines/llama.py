"""Llama's forward pass written for many short replies on a processor.

Against the module's own forward: query, key and value (and gate and up) are one product,
keys and values are written in place, the shared prefix is attended by all rows in one
product, and joined to each row's own part by the two softmax denominators (the identity
of Dao et al. 2022, section 3.1). Every product runs at a multiple of 64 tokens and at
most 192, sizes at which oneDNN and MKL were seen to round alike, so a row's
numbers do not depend on how many others are beside it; unless ``rounds_alike`` is off,
for few rows that somebody waits for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear, pad, silu
from transformers import LlamaForCausalLM

from loop.engines.branches import Beginning, lay, sight
from loop.engines.forward import Prefix

TOKENS_STEP = 64
# The largest pass that rounds as one of 64 does, for both types, on one thread and on two.
TOKENS_MOST = 192
# Positions are rounded up to these in attention, for the same reason.
SEQUENCE_STEP = 32
ROWS_STEP = 16
STATIC_ROPE = ("default", "linear", "llama3")


class _Layer(NamedTuple):
    """One layer's weights; ``qkv`` and ``gate_up`` are the module's own tensors laid together."""

    input_norm: Tensor
    qkv: Tensor
    output: Tensor
    mlp_norm: Tensor
    gate_up: Tensor
    down: Tensor


def fits(model: torch.nn.Module) -> bool:
    """Whether the model is a Llama this forward computes: on the processor, no biases, fixed rotary table."""
    config: Any = model.config
    return (
        type(model) is LlamaForCausalLM
        and next(model.parameters()).device.type == "cpu"
        and not config.attention_bias
        and not config.mlp_bias
        and config.hidden_act == "silu"
        and config.rope_parameters.get("rope_type", "default") in STATIC_ROPE
    )


class _Past(NamedTuple):
    """Pasts of several rows laid to one length [L, N, P, 2, H, D], with their own lengths and what is there."""

    cache: Tensor
    length_N: Tensor
    mask_NP: Tensor

    def layer(self, index: int) -> tuple[Tensor, Tensor]:
        """One layer's keys and values, and the mask."""
        return self.cache[index], self.mask_NP


class LlamaForward:
    """Implements Forward; shapes as named there, T tokens of a pass, A query heads, G = A / H."""

    def __init__(self, model: torch.nn.Module) -> None:
        assert fits(model), "only a plain Llama on the processor"
        config: Any = model.config
        self.queries, self.heads = int(config.num_attention_heads), int(config.num_key_value_heads)
        self.width = int(config.head_dim)
        self.epsilon = float(config.rms_norm_eps)
        body: Any = model.model
        self.rotary, self.embedding = body.rotary_emb, body.embed_tokens.weight
        head: Any = model.lm_head
        self.head, self.final_norm = head.weight, body.norm.weight
        self.dtype = self.embedding.dtype
        self.layers = [_layer(layer) for layer in body.layers]
        self.rounds_alike = True

    def empty(self, rows: int, positions: int) -> Tensor:
        """See Forward."""
        return torch.zeros((len(self.layers), rows, positions, 2, self.heads, self.width), dtype=self.dtype)

    def prefix(self, tokens: Sequence[int]) -> Prefix:
        """See Forward."""
        nothing = Prefix(self.empty(1, 0)[:, 0])
        if not tokens:
            return nothing
        _, rows = self.extend(nothing, [tokens])
        return Prefix(rows[:, 0, : len(tokens)].contiguous())

    @torch.inference_mode()
    def extend(
        self,
        prefix: Prefix,
        sequences: Sequence[Sequence[int]],
        pasts: Sequence[Tensor] = (),
        begun: Sequence[Sequence[Beginning]] = (),
    ) -> tuple[Tensor, Tensor]:
        """See Forward."""
        rows = len(sequences)
        branches = begun or [()] * rows
        laid = [lay(sequence, mine) for sequence, mine in zip(sequences, branches, strict=True)]
        past = _lay_side_by_side(pasts) if pasts else None
        length_N = torch.tensor([len(row.tokens) for row in laid])
        longest = int(length_N.max())
        longest += -longest % SEQUENCE_STEP
        # Attention needs a rectangle; products run over real tokens only, which stand at these places of it.
        place_T = (torch.arange(longest) < length_N[:, None]).flatten().nonzero()[:, 0]
        position_T = torch.tensor([position for row in laid for position in row.positions]) + prefix.length
        cos_TD, sin_TD = self._angles(position_T if past is None else position_T + past.length_N[place_T // longest])
        sight_N1SS = self._sight(sequences, branches, longest) if begun else None
        cache = self.empty(rows, longest)
        hidden_TE = self.embedding[torch.tensor([token for row in laid for token in row.tokens])]
        qkv_SKD = torch.zeros((rows * longest, self.queries + 2 * self.heads, self.width), dtype=self.dtype)
        for index, layer in enumerate(self.layers):
            qkv_SKD[place_T] = self._project(layer, hidden_TE, cos_TD, sin_TD)
            qkv_NSKD = qkv_SKD.view(rows, longest, -1, self.width)
            cache[index] = qkv_NSKD[:, :, self.queries :].reshape(cache[index].shape)
            attended_NSAD = self._attend_sequences(
                qkv_NSKD[:, :, : self.queries],
                prefix.cache[index],
                past and past.layer(index),
                cache[index],
                sight_N1SS,
            )
            hidden_TE = self._finish(layer, hidden_TE, attended_NSAD.reshape(rows * longest, -1)[place_T])
        starts = (length_N.cumsum(0) - length_N).tolist()
        wanted_B = torch.tensor(
            [start + place for start, row in zip(starts, laid, strict=True) for place in row.wanted]
        )
        return self._logits(hidden_TE[wanted_B]), cache

    @torch.inference_mode()
    def step(self, prefix: Prefix, rows: Tensor, lengths_N: Tensor, token_N: Tensor) -> Tensor:
        """See Forward."""
        live, used = len(token_N), int(lengths_N.max()) + 1
        used = min(used + -used % ROWS_STEP, rows.shape[2])
        # Empty rows fill the products up to their step; they are never attended or written.
        idle = -live % self.tokens_step
        cos_TD, sin_TD = self._angles(pad(lengths_N, (0, idle)) + prefix.length)
        place_N = torch.arange(live) * rows.shape[2] + lengths_N
        mask_NS = torch.zeros(live, used, dtype=self.dtype).masked_fill(
            torch.arange(used) > lengths_N[:, None], -torch.inf
        )
        hidden_TE = self.embedding[pad(token_N, (0, idle))]
        attended_TA = torch.zeros((live + idle, self.queries * self.width), dtype=self.dtype)
        for index, layer in enumerate(self.layers):
            qkv_NKD = self._project(layer, hidden_TE, cos_TD, sin_TD)[:live]
            rows[index].view(-1, 2 * self.heads, self.width).index_copy_(0, place_N, qkv_NKD[:, self.queries :])
            attended_TA[:live] = self._attend_rows(
                qkv_NKD[:, : self.queries], prefix.cache[index], rows[index, :live, :used], mask_NS
            )
            hidden_TE = self._finish(layer, hidden_TE, attended_TA)
        return self._logits(hidden_TE)[:live]

    def _sight(self, sequences: Sequence[Sequence[int]], begun: Sequence[Sequence[Beginning]], longest: int) -> Tensor:
        """What is added to the scores so that branches do not see one another, [N, 1, S, S]."""
        seen_NSS = torch.stack([sight(len(s), mine, longest) for s, mine in zip(sequences, begun, strict=True)])
        return torch.zeros(seen_NSS.shape, dtype=self.dtype).masked_fill(~seen_NSS, -torch.inf)[:, None]

    @property
    def tokens_step(self) -> int:
        """What the tokens of a pass are filled up to a multiple of."""
        return TOKENS_STEP if self.rounds_alike else 1

    def _product(self, input_TE: Tensor, weight_OE: Tensor) -> Tensor:
        return product(input_TE, weight_OE, self.tokens_step)

    def _angles(self, position_T: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines, and sines signed for the half rotation, [T, 1, D]."""
        cos, sin = self.rotary(self.embedding[:1], position_T[None])
        half = self.width // 2
        signed = torch.cat((-sin[0, :, :half], sin[0, :, half:]), -1)
        return cos[0][:, None], signed[:, None]

    def _project(self, layer: _Layer, hidden_TE: Tensor, cos_TD: Tensor, sin_TD: Tensor) -> Tensor:
        """Queries, keys and values [T, A + 2H, D], rotated where they are to be."""
        qkv_THD = self._product(self._norm(hidden_TE, layer.input_norm), layer.qkv).view(
            hidden_TE.shape[0], -1, self.width
        )
        turned_TKD = qkv_THD[:, : self.queries + self.heads]
        half = self.width // 2
        swapped_TKD = torch.cat((turned_TKD[..., half:], turned_TKD[..., :half]), -1)
        turned_TKD.copy_(turned_TKD * cos_TD + swapped_TKD * sin_TD)
        return qkv_THD

    def _finish(self, layer: _Layer, hidden_TE: Tensor, attended_TA: Tensor) -> Tensor:
        hidden_TE = hidden_TE + self._product(attended_TA, layer.output)
        gate_TI, up_TI = self._product(self._norm(hidden_TE, layer.mlp_norm), layer.gate_up).chunk(2, -1)
        return hidden_TE + self._product(silu(gate_TI) * up_TI, layer.down)

    def _norm(self, hidden_TE: Tensor, weight_E: Tensor) -> Tensor:
        wide_TE = hidden_TE.float()
        scaled_TE = wide_TE * torch.rsqrt(wide_TE.pow(2).mean(-1, keepdim=True) + self.epsilon)
        return weight_E * scaled_TE.to(hidden_TE.dtype)

    def _logits(self, hidden_NE: Tensor) -> Tensor:
        return self._product(self._norm(hidden_NE, self.final_norm), self.head)

    def _attend_rows(self, query_NAD: Tensor, prefix_P2HD: Tensor, own_NS2HD: Tensor, mask_NS: Tensor) -> Tensor:
        """One query a row over the prefix and the row's own positions; [N, A * D]."""
        rows = query_NAD.shape[0]
        group = self.queries // self.heads
        query_NHGD = query_NAD.view(rows, self.heads, group, self.width)
        own_NHGD, own_NHG = _flash(query_NHGD, *_keys_values(own_NS2HD), mask_NS[:, None, None])
        if prefix_P2HD.shape[0]:
            query_1HTD = query_NHGD.transpose(0, 1).reshape(1, self.heads, rows * group, self.width)
            shared_1HTD, shared_1HT = _flash(query_1HTD, *_keys_values(prefix_P2HD[None]))
            shared_NHGD = shared_1HTD.view(self.heads, rows, group, self.width).transpose(0, 1)
            own_NHGD = _join(own_NHGD, own_NHG, shared_NHGD, shared_1HT.view(self.heads, rows, group).transpose(0, 1))
        return own_NHGD.reshape(rows, -1)

    def _attend_sequences(
        self,
        query_NSAD: Tensor,
        prefix_P2HD: Tensor,
        past: tuple[Tensor, Tensor] | None,
        own_NS2HD: Tensor,
        sight_N1SS: Tensor | None,
    ) -> Tensor:
        """Attention of whole sequences over the prefix, each one's past and themselves; [N, S, A, D].

        ``past`` is a layer's keys and values [N, P, 2, H, D] and the mask [N, P] of what is there. Of
        themselves they see what ``sight_N1SS`` leaves, and what stands before where it is None.
        """
        rows, length = query_NSAD.shape[:2]
        group = self.queries // self.heads
        query_NASD = query_NSAD.transpose(1, 2)
        keys_NASD, values_NASD = (part.repeat_interleave(group, 1) for part in _keys_values(own_NS2HD))
        own_NASD, own_NAS = _flash(query_NASD, keys_NASD, values_NASD, sight_N1SS, causal=sight_N1SS is None)
        if past is not None:
            past_NP2HD, mask_NP = past
            query_NHTD = query_NASD.reshape(rows, self.heads, group * length, -1)
            past_NHTD, past_NHT = _flash(query_NHTD, *_keys_values(past_NP2HD), mask_NP[:, None, None])
            past_NAS = past_NHT.reshape(own_NAS.shape).contiguous()
            own_NASD = _join(own_NASD, own_NAS, past_NHTD.reshape(own_NASD.shape), past_NAS)
            own_NAS = torch.logaddexp(own_NAS.contiguous(), past_NAS)
        if prefix_P2HD.shape[0]:
            shape = (1, self.heads, group * rows * length, self.width)
            query_1HTD = query_NASD.reshape(rows, self.heads, group * length, -1).transpose(0, 1).reshape(shape)
            shared_1HTD, shared_1HT = _flash(query_1HTD, *_keys_values(prefix_P2HD[None]))
            split = (self.heads, rows, group * length)
            shared_NASD = shared_1HTD.view(*split, -1).transpose(0, 1).reshape(own_NASD.shape)
            own_NASD = _join(
                own_NASD, own_NAS, shared_NASD, shared_1HT.view(split).transpose(0, 1).reshape(own_NAS.shape)
            )
        return own_NASD.transpose(1, 2)


def product(input_TE: Tensor, weight_OE: Tensor, step: int = TOKENS_STEP) -> Tensor:
    """``input @ weight.T`` in passes of a multiple of ``step`` tokens (see the module's first words)."""
    tokens = input_TE.shape[0]
    lacking = -tokens % step
    padded_TE = pad(input_TE, (0, 0, 0, lacking)) if lacking else input_TE
    if padded_TE.shape[0] <= TOKENS_MOST:
        return linear(padded_TE, weight_OE)[:tokens]
    return torch.cat([linear(part, weight_OE) for part in torch.split(padded_TE, TOKENS_MOST)])[:tokens]


def _layer(layer: Any) -> _Layer:
    attention, mlp = layer.self_attn, layer.mlp
    return _Layer(
        input_norm=layer.input_layernorm.weight,
        qkv=_lay_together(attention.q_proj, attention.k_proj, attention.v_proj),
        output=attention.o_proj.weight,
        mlp_norm=layer.post_attention_layernorm.weight,
        gate_up=_lay_together(mlp.gate_proj, mlp.up_proj),
        down=mlp.down_proj.weight,
    )


def _lay_together(*modules: Any) -> Tensor:
    """One tensor holding the weights in order; the modules then use views of it, so memory is spent once."""
    together = torch.cat([module.weight.detach() for module in modules])
    start = 0
    for module in modules:
        rows = module.weight.shape[0]
        module.weight = torch.nn.Parameter(together[start : start + rows], requires_grad=False)
        start += rows
    return together


def _lay_side_by_side(pasts: Sequence[Tensor]) -> _Past:
    lengths = [past.shape[1] for past in pasts]
    longest = max(lengths) + -max(lengths) % SEQUENCE_STEP
    cache = torch.stack([pad(past, (0, 0, 0, 0, 0, 0, 0, longest - past.shape[1])) for past in pasts], 1)
    length_N = torch.tensor(lengths)
    mask_NP = torch.zeros(len(pasts), longest, dtype=cache.dtype)
    return _Past(cache, length_N, mask_NP.masked_fill(torch.arange(longest) >= length_N[:, None], -torch.inf))


def _keys_values(cache_NS2HD: Tensor) -> tuple[Tensor, Tensor]:
    return cache_NS2HD[:, :, 0].transpose(1, 2), cache_NS2HD[:, :, 1].transpose(1, 2)


def _flash(
    query: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None = None, causal: bool = False
) -> tuple[Tensor, Tensor]:
    """Attention output, and the log of each query's softmax denominator (float32)."""
    output, log_sum = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, keys, values, is_causal=causal, attn_mask=mask
    )
    return output, log_sum


def _join(left: Tensor, left_log_sum: Tensor, right: Tensor, right_log_sum: Tensor) -> Tensor:
    """Attention over two sets of keys from attention over each, weighted by their softmax masses.

    Everything is laid out alike and in whole vectors: torch rounds a strided or left-over
    element otherwise, which would let the number of rows show in the last bit.
    """
    mass = (right_log_sum - left_log_sum)[..., None].expand(left.shape).contiguous()
    wide_left, wide_right = left.float().contiguous(), right.float().contiguous()
    return torch.lerp(wide_left, wide_right, torch.sigmoid(mass)).to(left.dtype)
