"""Which requests are decoded together: small groups share a lane where they share most of their beginning."""

from __future__ import annotations

from loop.engines.schedule import merged


def _groups(*leads: str, size: int = 8) -> dict[tuple[int, ...], list[int]]:
    return {tuple(map(ord, lead)): [0] * size for lead in leads}


def test_leads_that_share_most_of_their_beginning_share_a_lane() -> None:
    lanes = merged(_groups("exemplars|note a", "exemplars|note b", "exemplars|"))
    assert [("".join(map(chr, lead)), len(members)) for lead, members in lanes] == [("exemplars|", 3)]


def test_leads_that_differ_early_keep_lanes_of_their_own() -> None:
    lanes = merged(_groups("s tools first, then talk", "s talk first, then tools"))
    assert sorted("".join(map(chr, lead)) for lead, _ in lanes) == [
        "s talk first, then tools",
        "s tools first, then talk",
    ]


def test_a_large_group_has_a_lane_of_its_own_and_every_lead_is_in_exactly_one() -> None:
    groups = _groups("exemplars|a", "exemplars|b") | _groups("exemplars|c", size=64)
    lanes = merged(groups)
    assert (tuple(map(ord, "exemplars|c")), [tuple(map(ord, "exemplars|c"))]) in lanes
    assert sorted(member for _, members in lanes for member in members) == sorted(groups)


def test_the_order_of_the_requests_and_not_of_the_alphabet_decides_the_order_of_lanes() -> None:
    lanes = merged(_groups("zebra and more", "apple and more"))
    assert [chr(lead[0]) for lead, _ in lanes] == ["z", "a"]
