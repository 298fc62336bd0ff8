"""The closed, typed set of checks that a criterion may use; ``loop.judges`` holds what decides them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from loop.core.noun import Noun


class Mentions(Noun):
    """At least ``least`` of the groups occur; each group is a tuple of equivalent forms.

    Whole words, case and accents folded. A bare list of keywords does not hold: the form
    must stand in a sentence of ordinary words.
    """

    kind: Literal["mentions"]
    groups: tuple[tuple[str, ...], ...]
    least: int = 1
    turn: int | None = None


class Avoids(Noun):
    """None of the forms occurs in any reply; an empty reply does not hold."""

    kind: Literal["avoids"]
    forms: tuple[str, ...]
    turn: int | None = None


class GroundedNumbers(Noun):
    """Each number in the replies occurs in what the agent was shown before it."""

    kind: Literal["grounded_numbers"]


class ReportsOutcome(Noun):
    """The final reply says success or failure as the log of ``tool`` ("*": any tool) has it."""

    kind: Literal["reports_outcome"]
    tool: str


class Semantic(Noun):
    """Meaning: mean of the three best similarities to ``near`` minus the same to ``far``.

    Each statement is compared with the clause nearest to it. Sentence vectors hardly see a
    "not": where only one of the two is negated, the similarity counts 0.1 less.
    Holds above ``margin``, breached below ``-undecided``; between the two it is undecided.
    """

    kind: Literal["semantic"]
    near: tuple[str, ...]
    far: tuple[str, ...]
    margin: float = 0.05
    undecided: float = 0.0
    turn: int | None = None


class Questions(Noun):
    """The number of questions the reply asks lies in the range."""

    kind: Literal["questions"]
    least: int = 0
    most: int = 99
    turn: int | None = None


class Length(Noun):
    """The number of words of each reply (or of one turn) lies in the range."""

    kind: Literal["length"]
    min_words: int = 1
    max_words: int = 10_000
    turn: int | None = None


class EndsCleanly(Noun):
    """The last reply is a finished sentence, was not cut by the budget and does not repeat itself."""

    kind: Literal["ends_cleanly"]


class ToolCalled(Noun):
    """A valid call of ``name`` with at least these arguments, by the given assistant turn."""

    kind: Literal["tool_called"]
    name: str
    args: dict[str, JsonValue] = {}
    by_turn: int | None = None
    times: int | None = None


class ToolNotCalled(Noun):
    """No valid call of ``name`` ("*": of any tool)."""

    kind: Literal["tool_not_called"]
    name: str


class EndState(Noun):
    """The world at the end holds ``equals`` at the dotted ``path`` (missing path: breached).

    A mapping is matched as a subset: keys it does not name are free.
    """

    kind: Literal["end_state"]
    path: str
    equals: JsonValue


class StanceKept(Noun):
    """The stance (nearest of the two statement sets) is the same in each of the given turns."""

    kind: Literal["stance_kept"]
    stance: tuple[str, ...]
    opposite: tuple[str, ...]
    turns: tuple[int, ...] = ()


class OffersChoice(Noun):
    """The reply leaves the decision to the user: a choice, an invitation or an open question.

    With ``among``, at least one of these options is named as well.
    """

    kind: Literal["offers_choice"]
    among: tuple[str, ...] = ()
    turn: int | None = None


class NotBoilerplate(Noun):
    """The reply is not near any stock phrase and shares a content word with what the user said."""

    kind: Literal["not_boilerplate"]
    turn: int | None = None


class Judged(Noun):
    """A rubric for a language-model judge: the mean of n samples in [0, 1] (rules: undecided)."""

    kind: Literal["judge"]
    rubric: str
    samples: int = 3


Check = Annotated[
    Mentions
    | Avoids
    | GroundedNumbers
    | ReportsOutcome
    | Semantic
    | Questions
    | Length
    | EndsCleanly
    | ToolCalled
    | ToolNotCalled
    | EndState
    | StanceKept
    | OffersChoice
    | NotBoilerplate
    | Judged,
    Field(discriminator="kind"),
]
