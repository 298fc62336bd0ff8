"""What happened when a pair met a task, kept so that it can be scored again later."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar

from pydantic import Field, JsonValue

from loop.core.hop import Hop, HopRecord
from loop.core.noun import Noun, seed_from
from loop.core.pair import Adapter, Message, Role, Sampling


class Split(StrEnum):
    """Which bank a task comes from; only the examine stage meets ``holdout``."""

    TRAIN = "train"
    HOLDOUT = "holdout"


class Task(Noun):
    """A procedural task: the environment makes its content from these keys alone.

    ``case`` names a family of an environment, or ``scenario/persona``; it is
    with the level the cluster of the bootstrap. ``level`` is the rung of a ladder, from 1.
    """

    environment: str
    case: str
    split: Split
    seed: int = Field(ge=0)
    level: int = Field(default=1, ge=1)

    @property
    def group(self) -> str:
        """The part scores are averaged by first: the scenario, or the environment itself."""
        return self.case.split("/")[0] if "/" in self.case else self.environment

    @property
    def cluster(self) -> str:
        """The unit that the bootstrap resamples: scenario x persona, or family x level."""
        return f"{self.environment}/{self.case}/{self.level}"


class Ask(Noun):
    """What a turn wants from the engine next; ``label`` is the specialist that answers."""

    messages: tuple[Message, ...]
    label: str
    sampling: Sampling
    choices: tuple[str, ...] = ()
    hop: Hop = Hop.ANSWER


class Request(Noun):
    """One generation request; equal requests give equal tokens, whatever they run beside.

    Requests whose ``messages`` and ``adapter`` are equal share one prefill.
    """

    messages: tuple[Message, ...]
    adapter: Adapter | None
    sampling: Sampling
    seed: int = Field(ge=0)
    choices: tuple[str, ...] = ()


class Completion(Noun):
    """What an engine returns: tokens with the log-probability each was drawn with.

    ``prompt_ids`` and ``token_ids`` are exact (no re-tokenisation anywhere later);
    ``token_ids`` includes the end token when the reply ended by it. For a constrained
    choice ``text`` is one of the choices and ``probabilities`` holds one value each.
    """

    text: str
    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    finish: str = Field(pattern="^(stop|length|choice)$")
    cached_tokens: int = 0
    probabilities: tuple[float, ...] = ()


class ToolCall(Noun):
    """A tool call as the environment saw it, with the result it gave; the agent cannot write it.

    ``turn`` counts assistant replies from 1. ``ok`` is None for a call that never ran
    because it was malformed; then ``result`` says why.
    """

    turn: int
    name: str
    arguments: dict[str, JsonValue] = {}
    ok: bool | None
    result: dict[str, JsonValue] = {}


class Turn(Noun):
    """One turn of an episode; an assistant turn carries its tokens and its adapter's digest.

    Routes and summaries are turns too, told by their ``hop``: the user sees the answers alone.
    """

    role: Role
    content: str
    label: str = ""
    adapter: str | None = None
    prompt_ids: tuple[int, ...] = ()
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    finish: str = ""
    hop: Hop = Hop.ANSWER


class Failure(Noun):
    """Infrastructure broke: which boundary, and what it said. Never a reward of zero."""

    boundary: str
    message: str


class Record(Noun):
    """What the environment knows to be true about the episode: the judge's only facts.

    Written by trusted environment code, never by the agent. ``slots`` are the drawn
    values of the case (they fill ``{name}`` in the contract's criteria), ``world`` is the
    end state, ``calls`` the tool log in order.
    """

    slots: dict[str, JsonValue] = {}
    world: dict[str, JsonValue] = {}
    calls: tuple[ToolCall, ...] = ()


class Outcome(Noun):
    """How a rollout ended: the conversation without tokens, and the environment's record."""

    record: Record
    failure: Failure | None = None


class Usage(Noun):
    """Tokens of an episode: fresh prompt tokens are those that were not shared or cached."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0


class Episode(Noun):
    """A task, who met it (pair digest), the turns, the record, or the failure that ended it.

    ``hops`` is the ledger: a line for each assistant turn, in order.
    """

    undigested: ClassVar[frozenset[str]] = frozenset({"seconds", "hops"})

    task: Task
    pair: str
    sample: int = Field(ge=0)
    seed: int
    turns: tuple[Turn, ...]
    record: Record
    usage: Usage = Usage()
    failure: Failure | None = None
    seconds: float = 0.0
    hops: tuple[HopRecord, ...] = ()

    @property
    def replies(self) -> tuple[str, ...]:
        """The assistant's answers, in order."""
        return tuple(turn.content for turn in self.turns if turn.role == "assistant" and turn.hop is Hop.ANSWER)


class EpisodeShard(Noun):
    """The episodes of one recorded step, kept in order; stored as one Parquet file."""

    episodes: tuple[Episode, ...]


def episode_seed(run_seed: int, task: Task, sample: int) -> int:
    """The seed of one episode: the same for parent and child, so that they meet alike luck."""
    return seed_from("episode", run_seed, task.digest, sample)
