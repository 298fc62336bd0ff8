"""One model's forward passes over a shared prefix and rows of their own, whatever its kind.

Shapes: L layers, R rows, H key-value heads, S own positions, P prefix positions, D head
width, V vocabulary, N live rows. A position's keys and values stand side by side, so that
one copy writes both: caches are [L, rows, positions, 2, H, D].
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from transformers import Cache
from transformers.cache_utils import CacheLayerMixin

from loop.engines.branches import Beginning, lay, sight


@dataclass(frozen=True)
class Prefix:
    """Keys and values that every row of a lane begins with: [L, P, 2, H, D] (P may be 0)."""

    cache: Tensor

    @property
    def length(self) -> int:
        """Tokens in the prefix."""
        return int(self.cache.shape[1])


class Forward(Protocol):
    """What decoding needs of a model.

    ``rounds_alike`` asks that a row's numbers do not depend on how many are beside it, where that
    costs time; it may be changed between passes.
    """

    rounds_alike: bool

    def empty(self, rows: int, positions: int) -> Tensor:
        """Room for keys and values, [L, rows, positions, 2, H, D]."""
        ...

    def prefix(self, tokens: Sequence[int]) -> Prefix:
        """Keys and values of the tokens, computed in one pass of one row."""
        ...

    def extend(
        self,
        prefix: Prefix,
        sequences: Sequence[Sequence[int]],
        pasts: Sequence[Tensor] = (),
        begun: Sequence[Sequence[Beginning]] = (),
    ) -> tuple[Tensor, Tensor]:
        """Run several continuations of the prefix side by side, each of one token or more.

        ``pasts`` are the keys and values [L, P, 2, H, D] of what already stands between the
        prefix and each sequence: none, or one of P >= 1 positions for every sequence.
        ``begun`` are beginnings of what may follow each sequence, run in the same pass as branches
        that do not see one another (see ``lay``): none, or a list, maybe empty, for every sequence.
        Returns the logits [N + B, V] after each one's last token, followed by those after each of
        its B_i beginnings, and the keys and values of the sequences [L, N, S, 2, H, D]; what
        stands on the right of each sequence there is nobody's.
        """
        ...

    def step(self, prefix: Prefix, rows: Tensor, lengths_N: Tensor, token_N: Tensor) -> Tensor:
        """Append one token to each of the first N rows and return the next logits [N, V].

        ``rows`` is [L, R, S, 2, H, D] with N <= R; the token of row i is written at
        position ``lengths_N[i]`` of the row, which the caller advances afterwards.
        """
        ...


class _PrefixedLayer(CacheLayerMixin):  # type: ignore[misc]  # untyped in the library
    """A layer that writes into the rows in place and shows prefix and rows as one sequence."""

    def __init__(self, prefix_P2HD: Tensor, rows_NS2HD: Tensor, position_NQ: Tensor) -> None:
        super().__init__()
        self.prefix, self.rows, self.position = prefix_P2HD, rows_NS2HD, position_NQ
        self.is_initialized = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing: the room is there from the start."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write keys and values [N, H, Q, D] at their positions; return [N, H, P + S, D] of each."""
        row_N1 = torch.arange(key_states.shape[0], device=key_states.device)[:, None]
        both = []
        for kind, states in enumerate((key_states, value_states)):
            self.rows[row_N1, self.position, kind] = states.transpose(1, 2)
            prefix_NPHD = self.prefix[None, :, kind].expand(self.rows.shape[0], -1, -1, -1)
            both.append(torch.cat((prefix_NPHD, self.rows[:, :, kind]), dim=1).transpose(1, 2))
        return both[0], both[1]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Key length and offset, as transformers asks for."""
        return self.get_max_length(), 0

    def get_seq_length(self) -> int:
        """Positions before this pass; only used where positions are not given, and they are."""
        return int(self.prefix.shape[0])

    def get_max_length(self) -> int:
        """Prefix and room together."""
        return int(self.prefix.shape[0] + self.rows.shape[1])


class ModuleForward:
    """Any decoder of transformers with ordinary attention layers, through its own forward."""

    def __init__(self, model: torch.nn.Module) -> None:
        config: Any = model.config
        text = config.get_text_config(decoder=True)
        kinds = set(getattr(text, "layer_types", None) or ["full_attention"])
        if kinds != {"full_attention"}:
            raise ValueError(
                f"the transformers engine serves models with full attention in every layer, this one has "
                f"{sorted(kinds)}: use the vllm engine"
            )
        self.model = model
        self.layers = int(text.num_hidden_layers)
        self.heads = int(getattr(text, "num_key_value_heads", None) or text.num_attention_heads)
        self.width = int(getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads)
        # transformers 5.24 calls ``cache`` what earlier versions call ``past_key_values``.
        self.cache_name = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
        parameter = next(model.parameters())
        self.dtype, self.device = parameter.dtype, parameter.device
        self.rounds_alike = True

    def empty(self, rows: int, positions: int) -> Tensor:
        """See Forward."""
        shape = (self.layers, rows, positions, 2, self.heads, self.width)
        return torch.zeros(shape, dtype=self.dtype, device=self.device)

    def prefix(self, tokens: Sequence[int]) -> Prefix:
        """See Forward."""
        nothing = Prefix(self.empty(1, 0)[:, 0])
        if not tokens:
            return nothing
        _, rows = self.extend(nothing, [tokens])
        return Prefix(rows[:, 0, : len(tokens)].contiguous())

    def extend(
        self,
        prefix: Prefix,
        sequences: Sequence[Sequence[int]],
        pasts: Sequence[Tensor] = (),
        begun: Sequence[Sequence[Beginning]] = (),
    ) -> tuple[Tensor, Tensor]:
        """See Forward."""
        branches = begun or [()] * len(sequences)
        laid = [lay(sequence, mine) for sequence, mine in zip(sequences, branches, strict=True)]
        longest = max(len(row.tokens) for row in laid)
        before = [past.shape[1] for past in pasts] or [0] * len(laid)
        rows = self.empty(len(laid), max(before) + longest)
        for row, past in enumerate(pasts):
            rows[:, row, : before[row]] = past
        before_N1 = torch.tensor(before)[:, None]
        at = _At(
            token_NQ=torch.tensor([_filled(row.tokens, longest) for row in laid]),
            place_NQ=before_N1 + torch.arange(longest),
            position_NQ=before_N1 + torch.tensor([_filled(row.positions, longest) for row in laid]),
            sees_NQS=torch.stack(
                [
                    _sees(start, sight(len(sequence), mine, longest), rows.shape[2])
                    for start, sequence, mine in zip(before, sequences, branches, strict=True)
                ]
            ),
        )
        kept_U = torch.tensor(sorted({place for row in laid for place in row.wanted}))
        logits_NUV = self._run(prefix, rows, at, kept_U)
        own = torch.stack([rows[:, row, start : start + longest] for row, start in enumerate(before)], 1)
        wanted = [logits_NUV[i, torch.searchsorted(kept_U, torch.tensor(row.wanted))] for i, row in enumerate(laid)]
        return torch.cat(wanted), own

    def step(self, prefix: Prefix, rows: Tensor, lengths_N: Tensor, token_N: Tensor) -> Tensor:
        """See Forward."""
        used = int(lengths_N.max()) + 1
        live = rows[:, : len(token_N), :used]
        place_NQ = lengths_N[:, None]
        at = _At(token_N[:, None], place_NQ, place_NQ, torch.arange(used) <= place_NQ[..., None])
        return self._run(prefix, live, at, torch.tensor([0]))[:, 0]

    def _run(self, prefix: Prefix, rows: Tensor, at: _At, kept_U: Tensor) -> Tensor:
        place_NQ = at.place_NQ.to(self.device)
        cache = Cache(
            layers=[_PrefixedLayer(prefix.cache[layer], rows[layer], place_NQ) for layer in range(self.layers)]
        )
        # A query sees the whole prefix beside what it sees of its own row.
        mask_NQK = torch.nn.functional.pad(at.sees_NQS.to(self.device), (prefix.length, 0), value=True)
        with torch.inference_mode():
            output = self.model(
                input_ids=at.token_NQ.to(self.device),
                attention_mask=mask_NQK[:, None],
                position_ids=at.position_NQ.to(self.device) + prefix.length,
                use_cache=True,
                logits_to_keep=kept_U.to(self.device),
                **{self.cache_name: cache},
            )
        logits: Tensor = output.logits
        return logits


class _At(NamedTuple):
    """Tokens of a pass: where in their rows they are written, their positions, and what of the row each sees."""

    token_NQ: Tensor
    place_NQ: Tensor
    position_NQ: Tensor
    sees_NQS: Tensor


def _filled(numbers: Sequence[int], length: int) -> list[int]:
    return [*numbers, *[0] * (length - len(numbers))]


def _sees(before: int, sight_QQ: Tensor, size: int) -> Tensor:
    """What queries see of a row of ``size`` positions, [Q, size]: all before theirs, and of theirs what they may."""
    after = size - before - sight_QQ.shape[1]
    return torch.nn.functional.pad(torch.nn.functional.pad(sight_QQ, (before, 0), value=True), (0, after), value=False)
