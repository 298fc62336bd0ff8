"""Who answers a turn: what the router is shown, what it decided, the bank it is judged by, and the findings."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import count, islice
from random import Random

from pydantic import Field, field_validator, model_validator

from loop.core.episode import Split
from loop.core.gate import Interval
from loop.core.noun import Noun, seed_from
from loop.core.pair import ABSTAIN as ABSTAIN

# A route must be cheap: with these bounds a context is at most about 300 tokens.
MESSAGE_CHARACTERS = 600
SUMMARY_CHARACTERS = 160
MOST_SUMMARIES = 2

Summary = tuple[str, str]
_SLOT = re.compile(r"\{([a-z_]+)([0-9]*)\}")


class RouteHow(StrEnum):
    """Why a label answers: the router chose it, or what took the router's place.

    ``pinned`` by the request, ``returned`` with a tool's result to who called it, ``fallback``
    below the threshold, ``abstained`` where the router named no specialist, ``overridden``
    where policy replaced what it chose.
    """

    ROUTED = "routed"
    PINNED = "pinned"
    RETURNED = "returned"
    FALLBACK = "fallback"
    ABSTAINED = "abstained"
    OVERRIDDEN = "overridden"


class Route(Noun):
    """Who answers and why; probabilities are the router's own, by label and ``abstain``.

    ``first`` is what the router itself named: empty where it was not asked, or where its
    reply was no label. ``probability`` is that choice's, 0 where there is none.
    """

    label: str
    how: RouteHow
    probability: float = Field(default=0.0, ge=0, le=1)
    probabilities: dict[str, float] = {}
    first: str = ""


class RouteContext(Noun):
    """What the router sees of a turn: the message, who answered before, the last summaries.

    Bounded by construction: a long message keeps its beginning and its end, where the wish
    mostly stands; of the summaries (label, text) the newest are kept, each cut.
    """

    message: str
    previous: str = ""
    summaries: tuple[Summary, ...] = ()

    @field_validator("message")
    @classmethod
    def _both_ends(cls, message: str) -> str:
        if len(message) <= MESSAGE_CHARACTERS:
            return message
        half = MESSAGE_CHARACTERS // 2
        return f"{message[: half - 3]}...{message[-half:]}"

    @field_validator("summaries")
    @classmethod
    def _newest(cls, summaries: tuple[Summary, ...]) -> tuple[Summary, ...]:
        return tuple((label, text[:SUMMARY_CHARACTERS]) for label, text in summaries[-MOST_SUMMARIES:])

    @property
    def text(self) -> str:
        """Its words, for duplicate and overlap checks."""
        return "\n".join([*(text for _, text in self.summaries), self.message])


class RouteKind(StrEnum):
    """What a case tries."""

    PLAIN = "plain"
    FOLLOW_UP = "follow_up"
    BOUNDARY = "boundary"
    SEVERAL = "several"
    LANGUAGE = "language"
    INJECTION = "injection"


class RouteCase(Noun):
    """A routing case: the first of ``wanted`` is the best label; any of them is right."""

    id: str
    kind: RouteKind
    context: RouteContext
    wanted: tuple[str, ...] = Field(min_length=1)

    @property
    def label(self) -> str:
        """The class that the case belongs to."""
        return self.wanted[0]

    @property
    def cluster(self) -> str:
        """The group of like cases that it was written in."""
        return self.id.split(".")[0]


class RouteGroup(Noun):
    """Messages of one kind that want the same labels after the same turns; ``{slots}`` are filled from pools."""

    kind: RouteKind
    wanted: tuple[str, ...] = Field(min_length=1)
    previous: str = ""
    summaries: tuple[Summary, ...] = ()
    messages: tuple[str, ...] = Field(min_length=1)


class RouteBank(Noun):
    """Routing cases of one split, as groups of messages; ``digest_of_folder`` pins both banks of its version."""

    split: Split
    digest_of_folder: str = ""
    pools: dict[str, tuple[str, ...]] = {}
    groups: tuple[RouteGroup, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _slots_are_known(self) -> RouteBank:
        if self.pools:
            texts = [text for group in self.groups for text in (*group.messages, *(s for _, s in group.summaries))]
            unknown = sorted({name for text in texts for name, _ in _SLOT.findall(text)} - set(self.pools))
            if unknown:
                raise ValueError(f"slots without a pool: {unknown}")
        return self

    def draw(self, wanted: int, seed: int) -> tuple[RouteCase, ...]:
        """Up to ``wanted`` different cases, in turn from each class and within it from each kind.

        Fewer where the bank has no more: a bank without pools has one case a message.
        """
        cells: dict[str, dict[RouteKind, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
        for place, group in enumerate(self.groups):
            cells[group.wanted[0]][group.kind] += [(place, index) for index in range(len(group.messages))]
        classes = [
            _in_turn([self._filled(places, seed) for _, places in sorted(kinds.items())])
            for _, kinds in sorted(cells.items())
        ]
        return tuple(islice(_in_turn(classes), wanted))

    @property
    def cases(self) -> tuple[RouteCase, ...]:
        """Every case of a bank without pools, or each template of one with pools filled once."""
        return self.draw(sum(len(group.messages) for group in self.groups), 0)

    def _filled(self, places: Sequence[tuple[int, int]], seed: int) -> Iterator[RouteCase]:
        order = list(places)
        Random(seed_from("routes", seed, *places[0])).shuffle(order)
        met: set[RouteContext] = set()
        for lap in count():
            before = len(met)
            for place, index in order:
                case = self._case(place, index, seed, lap)
                if case.context not in met:
                    met.add(case.context)
                    yield case
            if len(met) == before:
                return

    def _case(self, place: int, index: int, seed: int, lap: int) -> RouteCase:
        group = self.groups[place]
        fill = _Fill(self.pools, Random(seed_from("slots", seed, place, index, lap)))
        context = RouteContext(
            message=fill(group.messages[index]),
            previous=group.previous,
            summaries=tuple((label, fill(text)) for label, text in group.summaries),
        )
        name = f"{group.kind}/{group.wanted[0]}/{place:02d}.{index}{f'.{lap}' if self.pools else ''}"
        return RouteCase(id=name, kind=group.kind, context=context, wanted=group.wanted)


class _Fill:
    """Fills the slots of one case: a name has one value in it, ``name2`` another of the same pool."""

    def __init__(self, pools: dict[str, tuple[str, ...]], draw: Random) -> None:
        self.pools, self.draw = pools, draw
        self.chosen: dict[str, str] = {}

    def __call__(self, text: str) -> str:
        return _SLOT.sub(self._value, text) if self.pools else text

    def _value(self, found: re.Match[str]) -> str:
        name = found.group(0)
        if name not in self.chosen:
            pool = self.pools[found.group(1)]
            left = [value for value in pool if value not in self.chosen.values()]
            self.chosen[name] = self.draw.choice(left or pool)
        return self.chosen[name]


def _in_turn(streams: Iterable[Iterator[RouteCase]]) -> Iterator[RouteCase]:
    live = list(streams)
    while live:
        for stream in tuple(live):
            case = next(stream, None)
            if case is None:
                live.remove(stream)
            else:
                yield case


class AbstentionPoint(Noun):
    """Letting the router answer only from ``threshold`` on: the share it answers, and how often rightly (per cent)."""

    threshold: float
    coverage: float
    accuracy: float


class RoutingReport(Noun):
    """What a router did on a bank; shares are per cent, intervals Wilson's.

    ``compliance`` counts replies that were a registered label or ``abstain``. ``accuracy`` is
    of the label that answers, after policy; ``labels`` is it by the class wanted, ``kinds`` by
    kind. ``confusion`` counts by class wanted and label that answered. ``in_distribution`` is
    the accuracy on fresh cases of the training bank's templates, which says little of others.
    """

    cases: int
    compliance: float
    accuracy: Interval
    labels: dict[str, Interval] = {}
    kinds: dict[str, Interval] = {}
    confusion: dict[str, dict[str, int]] = {}
    how: dict[str, int] = {}
    curve: tuple[AbstentionPoint, ...] = ()
    in_distribution: Interval | None = None


class RoutingExam(Noun):
    """Parent's and child's routers on the same sealed cases; ``gain`` is paired, in points of accuracy.

    ``regret`` is what the child's routes lose against the right specialist on the exam's own
    cases, in contract points; None where specialists were not tried in each other's place.
    """

    parent: RoutingReport
    child: RoutingReport
    gain: Interval | None = None
    regret: Interval | None = None
