"""Attest an adapter that somebody else's server has loaded, by what the server says of the trainer's probe.

A server gives log-probabilities, which are logits less a number that all tokens share.
Compared are therefore figures about their mean over the probe's tokens. What is allowed is
measured: how far the server's bare base is from the trainer's own base is its noise floor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from loop.core.base import Base
from loop.core.pair import Adapter
from loop.engines.attest import (
    FRESH_TOLERANCE,
    ROUNDING_FACTOR,
    ROUNDING_SLACK,
    TOLERANCE,
    adapter_folder,
    check_values,
    failed,
    read_adapter,
    read_probe,
)
from loop.ports import Attestation, Blobs

# A server rounds as it likes; a base further off than bfloat16 explains is another model.
BASE_TOLERANCE = TOLERANCE[torch.bfloat16]
# Of the change that the trainer saw, what must show: a stale or absent adapter shows none of it.
SHOWN_SHARE = 0.5

Following = Callable[[Sequence[int], Sequence[int]], Sequence[float]]


def attest_served(
    base: Base, blobs: Blobs, adapter: Adapter, with_adapter: Following, without: Following
) -> Attestation:
    """Compare the served adapter and the served base with the trainer's record; AttestationFailed on any doubt.

    ``with_adapter`` and ``without`` give, under each, the log-probabilities of some tokens as
    the next one after a prompt.
    """
    tree = adapter_folder(base, blobs, adapter)
    stored, _ = read_adapter(adapter, tree)
    check_values(adapter, stored)
    probe = read_probe(adapter, tree)
    asked = (probe.prompt[0].tolist(), probe.tokens.tolist())
    served, plain = (_about_mean(following(*asked)) for following in (with_adapter, without))
    trained, untrained = (_about_mean(logits.tolist()) for logits in (probe.logits, probe.base_logits))
    floor, found = _distance(plain, untrained), _distance(served, trained)
    allowed = ROUNDING_FACTOR * floor + ROUNDING_SLACK
    change = trained - untrained
    share = float((served - plain) @ change / (change @ change).clamp_min(1e-12))
    if not floor <= BASE_TOLERANCE:
        raise failed(adapter, f"the served base's probe is {floor:.3g} from the trainer's base, so it is another model")
    if not found <= allowed:
        raise failed(adapter, f"its served probe is {found:.3g} from the trainer's (allowed {allowed:.3g})")
    if adapter.parent is not None and _distance(trained, untrained) <= FRESH_TOLERANCE:
        raise failed(adapter, "it has a parent but answers exactly as the base does")
    if adapter.parent is not None and not share >= SHOWN_SHARE:
        raise failed(
            adapter, f"the server shows {share:.0%} of the change its trainer saw, beside noise of {floor:.2g}"
        )
    return Attestation(
        adapter=adapter.digest,
        blob=adapter.blob,
        modules=sum("lora_A" in key for key in stored),
        probe_difference=found,
        base_difference=_distance(served, plain),
        ok=True,
        text=f"served probe within {found:.2g} of the trainer's, {_distance(served, plain):.2g} from the served base, "
        f"whose own noise is {floor:.2g}",
    )


def _about_mean(values: Sequence[float]) -> Tensor:
    found = torch.tensor(values, dtype=torch.float64)
    return found - found.mean()


def _distance(left: Tensor, right: Tensor) -> float:
    return float((left - right).abs().max())
