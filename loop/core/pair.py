"""What a generation is made of: a base with its adapters, and a harness."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, JsonValue, model_validator

from loop.core.base import Base
from loop.core.noun import Noun
from loop.core.session import SessionRules

Role = Literal["system", "user", "assistant", "tool"]

# What a router says when no registered label fits; it is never a label itself.
ABSTAIN = "abstain"


class Message(Noun):
    """One message of a conversation, as the chat template takes it."""

    role: Role
    content: str


class Adapter(Noun):
    """An adapter revision: immutable; training makes another one with this as its parent.

    ``stored_values`` counts the numbers on disk; ``blob`` is the digest of a PEFT folder
    (adapter_config.json, adapter_model.safetensors). ``parent`` is the digest of the
    revision it was trained from; None marks a fresh adapter, which equals the base.
    """

    label: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,31}$")
    role: str
    owner: str = "local"
    licence: str = "unknown"
    base_digest: str
    rank: int = Field(gt=0)
    alpha: float = Field(gt=0)
    dropout: float = Field(default=0.0, ge=0, lt=1)
    targets: tuple[str, ...]
    dtype: str = "float32"
    stored_values: int = Field(gt=0)
    blob: str
    parent: str | None = None


class Sampling(Noun):
    """How tokens are drawn; temperature 0 is greedy. ``max_tokens`` is per reply."""

    temperature: float = Field(default=0.0, ge=0)
    top_p: float = Field(default=1.0, gt=0, le=1)
    max_tokens: int = Field(default=64, gt=0)
    stop: tuple[str, ...] = ()


class Prompt(Noun):
    """What one specialist is given before a conversation starts.

    ``exemplars`` are few-shot conversations shown as earlier turns; their number is the
    shot count. ``licence`` covers the exemplar text.
    """

    label: str
    role: str
    system: str
    exemplars: tuple[tuple[Message, ...], ...] = ()
    sampling: Sampling = Sampling()
    licence: str = "unknown"

    def messages(self) -> tuple[Message, ...]:
        """The system message followed by the exemplars' turns."""
        shots = tuple(message for exemplar in self.exemplars for message in exemplar)
        return (Message(role="system", content=self.system), *shots)


class RouteExemplar(Noun):
    """A decision shown to the router: a message, who answered before, the last summaries (label, text), the label."""

    message: str
    label: str
    previous: str = ""
    summaries: tuple[tuple[str, str], ...] = ()


class Routing(Noun):
    """How a turn is given to a specialist; ``fallback`` answers below ``threshold``.

    ``labels`` is the registry: any number of specialists, of any owner. ``descriptions`` says
    in one line what each is for and takes the place of ``{labels}`` in ``prompt``; a label
    without one is described by its prompt's role. ``router`` is the label whose adapter
    decides, by default the fallback's.
    """

    prompt: str
    labels: tuple[str, ...]
    fallback: str
    threshold: float = 0.0
    max_tokens: int = 24
    router: str = ""
    descriptions: dict[str, str] = {}
    exemplars: tuple[RouteExemplar, ...] = ()

    @model_validator(mode="after")
    def _only_registered_labels(self) -> Routing:
        if ABSTAIN in self.labels or len(set(self.labels)) != len(self.labels):
            raise ValueError(f"labels are all different and none is {ABSTAIN!r}, found {list(self.labels)}")
        shown = {exemplar.label for exemplar in self.exemplars} - {ABSTAIN}
        strangers = sorted((set(self.descriptions) | shown) - set(self.labels))
        if strangers:
            raise ValueError(f"descriptions or exemplars of labels that are not registered: {strangers}")
        return self


class Hook(Noun):
    """A stop gate: a named built-in check that runs when an episode wants to end."""

    name: str
    on: Literal["turn_end", "episode_end"]
    check: Literal["valid_json", "nonempty_reply"]


class Harness(Noun):
    """A parsed Harness Context Protocol document: all that makes the runtime but weights.

    ``no_ai`` names fields that never reach a model; ``secrets`` holds references only
    (``env:NAME`` or ``file:PATH``), never a value.
    """

    schema_version: int = Field(ge=1)
    name: str
    parent: str | None = None
    prompts: tuple[Prompt, ...]
    routing: Routing
    tools: tuple[str, ...] = ()
    policies: dict[str, JsonValue] = {}
    skills: tuple[str, ...] = ()
    mcp: tuple[str, ...] = ()
    hooks: tuple[Hook, ...] = ()
    substrates: dict[str, str] = {}
    session: SessionRules = SessionRules()
    no_ai: tuple[str, ...] = ()
    secrets: dict[str, str] = {}

    @model_validator(mode="after")
    def _labels_are_known(self) -> Harness:
        labels = [prompt.label for prompt in self.prompts]
        if len(set(labels)) != len(labels):
            raise ValueError(f"each label has one prompt, found {labels}")
        named = (*self.routing.labels, self.routing.fallback, self.routing.router or self.routing.fallback)
        unknown = sorted(set(named) - set(labels))
        if unknown:
            raise ValueError(f"routing names labels without a prompt: {', '.join(unknown)}")
        bad = [key for key, value in self.secrets.items() if not value.startswith(("env:", "file:"))]
        if bad:
            raise ValueError(f"secrets are references (env:NAME or file:PATH), not values: {bad}")
        return self

    def prompt(self, label: str) -> Prompt:
        """The prompt of a label; KeyError when the harness has none."""
        for prompt in self.prompts:
            if prompt.label == label:
                return prompt
        raise KeyError(label)


class Pair(Noun):
    """Base + adapters + harness: what is run, examined and improved."""

    base: Base
    adapters: tuple[Adapter, ...]
    harness: Harness

    @model_validator(mode="after")
    def _one_base_and_one_adapter_a_label(self) -> Pair:
        labels = [adapter.label for adapter in self.adapters]
        if len(set(labels)) != len(labels):
            raise ValueError(f"each label has one adapter, found {labels}")
        strangers = [a.label for a in self.adapters if a.base_digest != self.base.weights_digest]
        if strangers:
            raise ValueError(f"adapters made for another base: {strangers}")
        return self

    def adapter(self, label: str) -> Adapter | None:
        """The adapter of a label, or None when the bare base answers for it."""
        return next((a for a in self.adapters if a.label == label), None)
