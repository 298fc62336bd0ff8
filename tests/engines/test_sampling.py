"""Drawing tokens, checked against numpy in float64 and against counts by hand."""

from __future__ import annotations

import numpy as np
import torch
from scipy.stats import chisquare

from loop.engines.sampling import draw, uniforms


def _draw(logits: torch.Tensor, temperature: float, top_p: float, luck: torch.Tensor) -> tuple[torch.Tensor, ...]:
    rows = logits.shape[0]
    return draw(logits, torch.full((rows,), temperature).double(), torch.full((rows,), top_p).double(), luck)


def test_greedy_takes_the_largest_and_reports_its_log_softmax() -> None:
    logits = torch.randn(5, 1000, generator=torch.Generator().manual_seed(0)) * 4
    token, logprob = _draw(logits, 0.0, 1.0, torch.zeros(5).double())
    wide = logits.double().numpy()
    expected = wide - np.log(np.exp(wide).sum(-1, keepdims=True))
    assert token.tolist() == wide.argmax(-1).tolist()
    np.testing.assert_allclose(logprob.numpy(), expected.max(-1), atol=1e-5)


def test_a_draw_inverts_the_cumulative_distribution_at_the_temperature() -> None:
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(200, 777, generator=generator) * 3
    luck = torch.rand(200, generator=generator, dtype=torch.float64)
    token, logprob = _draw(logits, 0.7, 1.0, luck)
    wide = logits.double().numpy() / 0.7
    probability = np.exp(wide - wide.max(-1, keepdims=True))
    probability /= probability.sum(-1, keepdims=True)
    expected = [
        int(np.searchsorted(np.cumsum(p), u, side="right")) for p, u in zip(probability, luck.tolist(), strict=True)
    ]
    # Rounding may move a draw that falls on a boundary; one in two hundred would be a fault.
    assert sum(a != b for a, b in zip(token.tolist(), expected, strict=True)) == 0
    np.testing.assert_allclose(logprob.numpy(), np.log(probability[np.arange(200), token.numpy()]), atol=1e-4)


def test_draws_have_the_distribution_they_claim() -> None:
    probability = torch.tensor([0.5, 0.25, 0.125, 0.125])
    count = 4000
    token, _ = _draw(probability.log().expand(count, 4), 1.0, 1.0, uniforms(seed=3, count=count))
    counts = np.bincount(token.numpy(), minlength=4)
    assert chisquare(counts, probability.numpy() * count).pvalue > 0.001


def test_the_nucleus_keeps_the_fewest_tokens_that_reach_its_mass() -> None:
    # Masses 0.5, 0.3, 0.15, 0.05: 0.7 needs the first two, whose shares become 5/8 and 3/8.
    logits = torch.tensor([[0.15, 0.5, 0.05, 0.3]]).log().expand(1000, 4)
    token, logprob = _draw(logits, 1.0, 0.7, uniforms(seed=1, count=1000))
    assert set(token.tolist()) == {1, 3}
    np.testing.assert_allclose(logprob[token == 1].exp().numpy(), 5 / 8, rtol=1e-5)
    np.testing.assert_allclose(logprob[token == 3].exp().numpy(), 3 / 8, rtol=1e-5)


def test_the_extremes_of_luck_never_draw_an_impossible_token() -> None:
    logits = torch.full((2, 300), -torch.inf)
    logits[:, [40, 250]] = 0.0
    token, _ = _draw(logits, 1.0, 1.0, torch.tensor([0.0, 1 - 2**-53], dtype=torch.float64))
    assert token.tolist() == [40, 250]


def test_a_rows_draw_is_the_same_beside_other_rows() -> None:
    generator = torch.Generator().manual_seed(2)
    logits, luck = torch.randn(64, 500, generator=generator), torch.rand(64, generator=generator).double()
    together, _ = _draw(logits, 0.9, 0.9, luck)
    alone = [int(_draw(logits[i : i + 1], 0.9, 0.9, luck[i : i + 1])[0]) for i in range(64)]
    assert together.tolist() == alone


def test_the_number_of_a_position_does_not_depend_on_how_many_are_drawn() -> None:
    assert uniforms(9, 40)[:7].tolist() == uniforms(9, 7).tolist()
    assert uniforms(9, 7).tolist() != uniforms(10, 7).tolist()
