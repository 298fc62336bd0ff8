"""The ledger: sums by hand, and figures of a run that move no digest."""

from __future__ import annotations

from loop.core.budget import Budget
from loop.core.hop import Hop, HopRecord, HopSum, ledger

RECORDS = (
    HopRecord(hop=Hop.ANSWER, label="L1", prompt_tokens=50, cached_tokens=40, generated_tokens=9, seconds=2.0),
    HopRecord(hop=Hop.ROUTE, label="L0", prompt_tokens=30, cached_tokens=20, generated_tokens=2, seconds=0.5),
    HopRecord(hop=Hop.ANSWER, label="L2", prompt_tokens=70, generated_tokens=1, seconds=1.25),
)


def test_records_are_summed_by_their_kind_in_the_order_of_a_turn() -> None:
    assert list(ledger(RECORDS).items()) == [
        (Hop.ROUTE, HopSum(hops=1, prompt_tokens=30, cached_tokens=20, generated_tokens=2, seconds=0.5)),
        (Hop.ANSWER, HopSum(hops=2, prompt_tokens=120, cached_tokens=40, generated_tokens=10, seconds=3.25)),
    ]


def test_budgets_add_and_take_away_their_ledgers() -> None:
    first, both = Budget(trials=1, hops=ledger(RECORDS[:1])), Budget(trials=3, hops=ledger(RECORDS))
    rest = both.minus(first)
    assert (rest.trials, rest.hops) == (2, ledger(RECORDS[1:]))
    assert first.plus(rest) == both and both.minus(both) == Budget()
    assert Budget.model_validate_json(both.model_dump_json()) == both


def test_the_ledger_moves_no_digest() -> None:
    assert Budget(trials=1, hops=ledger(RECORDS)).digest == Budget(trials=1).digest
