"""Contract v1 is complete, says where its parts come from, and its checks pass their own exam."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from loop.core.contract import Contract, Half, Pole
from loop.core.episode import Split
from loop.judges.rules import Rules
from loop.judges.verify import verify
from loop.library import load_contract

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "contracts" / "v1"

# The table of the contract's design: scenario, poles, provenance.
TABLE = {
    "emotional_support": ("catch the emotion", "advance understanding", "macaron-v1"),
    "tool_task": ("efficiency", "honesty", "macaron-v1"),
    "casual_chat": ("liveliness", "restraint", "this-project"),
    "advice": ("candour", "the user's ownership", "this-project"),
    "disagreement": ("holding a stance", "keeping the bond", "this-project"),
    "companionship": ("closeness", "independence", "this-project"),
    "exploration": ("an angle of its own", "openness", "this-project"),
}
AXIOMS = {
    "feeling_understood": "Feeling understood",
    "honest_counsel": "Honest counsel",
    "authentic_voice": "Authentic voice",
    "forward_movement": "Sense of forward movement",
    "calibrated_intimacy": "Calibrated intimacy",
    "growing_autonomy": "Growing autonomy",
}
KINDS = {
    "mentions",
    "avoids",
    "grounded_numbers",
    "reports_outcome",
    "semantic",
    "questions",
    "length",
    "ends_cleanly",
    "tool_called",
    "tool_not_called",
    "end_state",
    "stance_kept",
    "offers_choice",
    "not_boilerplate",
}


@pytest.fixture(scope="module")
def contract() -> Contract:
    return load_contract(ROOT, "v1")


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.toml")), ids=lambda path: path.name)
def test_every_file_is_valid_toml(path: Path) -> None:
    assert tomllib.loads(path.read_text(encoding="utf-8"))


def test_the_seven_scenarios_and_their_provenance_are_those_of_the_table(contract: Contract) -> None:
    conversations = [scenario for scenario in contract.scenarios if scenario.environment == "scenarios"]
    assert {s.id: (s.pole_a, s.pole_b, s.provenance) for s in conversations} == TABLE


def test_the_two_skills_are_this_projects_own(contract: Contract) -> None:
    skills = {s.environment: s.provenance for s in contract.scenarios if s.environment != "scenarios"}
    assert skills == {"tools": "this-project", "coding": "this-project"}


def test_the_axioms_have_public_names_and_our_definitions(contract: Contract) -> None:
    assert {axiom.id: axiom.name for axiom in contract.axioms} == AXIOMS
    assert {axiom.name_provenance for axiom in contract.axioms} == {"macaron-v1"}
    assert {axiom.definition_provenance for axiom in contract.axioms} == {"this-project"}


def test_the_scoring_rule_is_the_stated_one(contract: Contract) -> None:
    rule = contract.rule
    assert (rule.axioms_weight, rule.balance_weight, rule.living_need, rule.living_process) == (0.5, 0.5, 0.7, 0.3)


def test_every_kind_of_deterministic_check_is_used(contract: Contract) -> None:
    assert {c.check.kind for scenario in contract.scenarios for c in scenario.criteria} == KINDS


def test_each_half_of_each_scenario_measures_both_poles(contract: Contract) -> None:
    for scenario in contract.scenarios:
        assert 5 <= len(scenario.criteria) <= 9, scenario.id
        for half in Half:
            poles = {criterion.pole for criterion in scenario.criteria if criterion.half is half}
            assert {Pole.A, Pole.B} <= poles, (scenario.id, half)


def test_the_halves_share_no_check(contract: Contract) -> None:
    for scenario in contract.scenarios:
        halves = [{c.check.digest for c in scenario.criteria if c.half is half} for half in Half]
        assert not halves[0] & halves[1], scenario.id


def test_no_pole_of_a_half_rests_on_forbidden_or_listed_words_alone(contract: Contract) -> None:
    words = {"mentions", "avoids"}
    for scenario in contract.scenarios:
        for half in Half:
            for pole in (Pole.A, Pole.B):
                mine = [c for c in scenario.criteria if c.half is half and c.pole is pole]
                assert {c.check.kind for c in mine} - words, (scenario.id, half, pole)


def test_every_criterion_has_labelled_replies_and_an_empty_one_among_the_breaches(contract: Contract) -> None:
    for scenario in contract.scenarios:
        for criterion in scenario.criteria:
            mine = [entry for entry in scenario.labelled if entry.criterion == criterion.id]
            holds = sum(len(entry.holds) + len(entry.holds_facts) for entry in mine)
            breaches = [reply for entry in mine for reply in (*entry.breaches, *entry.breaches_facts)]
            assert holds >= 3 and len(breaches) >= 3, criterion.id
            texts = [reply for entry in mine for reply in entry.breaches]
            blank = any(not (reply if isinstance(reply, str) else "".join(reply)) for reply in texts)
            later = any(not isinstance(reply, str) and reply[-1] == "" for reply in texts)
            assert blank or later or not texts, criterion.id


def test_each_bank_has_six_personas_and_four_for_each_scenario(contract: Contract) -> None:
    for bank in contract.banks:
        assert len(bank.personas) >= 6
        for scenario in TABLE:
            assert sum(bool(persona.openings.get(scenario)) for persona in bank.personas) >= 4, scenario
        assert {persona.stage for persona in bank.personas} == {"first_contact", "acquainted", "close"}
        assert all(len(texts) >= 2 for persona in bank.personas for texts in persona.openings.values())


def test_long_companions_are_no_strangers(contract: Contract) -> None:
    for bank in contract.banks:
        assert not [p.id for p in bank.personas if p.stage == "first_contact" and "companionship" in p.openings]


def test_the_banks_share_no_persona_opening_or_pool_value(contract: Contract) -> None:
    train, holdout = contract.bank(Split.TRAIN), contract.bank(Split.HOLDOUT)
    assert train.pools.keys() == holdout.pools.keys()
    for name in train.pools:
        assert not {str(v).casefold() for v in train.pools[name]} & {str(v).casefold() for v in holdout.pools[name]}
    for part in ("id", "name"):
        assert not {getattr(p, part) for p in train.personas} & {getattr(p, part) for p in holdout.personas}
    one, other = (
        {text for persona in bank.personas for texts in persona.openings.values() for text in texts}
        for bank in (train, holdout)
    )
    assert not one & other


def test_the_exemplars_of_the_seed_prompt_are_in_no_bank(contract: Contract) -> None:
    path = ROOT / "harnesses" / "seed" / "prompts" / "L0.toml"
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    shown = " ".join(message["content"] for exemplar in document["exemplars"] for message in exemplar).casefold()
    for bank in contract.banks:
        values = [str(v).casefold() for pool in bank.pools.values() for v in pool if " " in str(v)]
        assert not [value for value in values if value in shown]
        assert not [persona.name for persona in bank.personas if persona.name.casefold() in shown]


@pytest.mark.model
def test_every_check_is_right_on_every_labelled_reply(contract: Contract) -> None:
    report = verify(contract, Rules())
    assert report.clean, "\n".join(report.lines())
