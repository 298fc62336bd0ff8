"""Route a turn: what the router is asked, and what its reply decides. Pure, so that every caller decides alike."""

from __future__ import annotations

import math

from loop.core.episode import Ask, Completion
from loop.core.errors import UserError
from loop.core.pair import Harness, Message, Sampling
from loop.core.routing import ABSTAIN, Route, RouteContext, RouteHow


def route_labels(harness: Harness) -> tuple[str, ...]:
    """What the router may say: the registered labels, and ``abstain``."""
    return (*harness.routing.labels, ABSTAIN)


def route_ask(harness: Harness, context: RouteContext) -> Ask:
    """The question to the router, greedy and constrained to ``route_labels``.

    All but its last message depends on the harness alone, so that an engine computes that
    beginning once; the context is one user message.
    """
    routing = harness.routing
    messages = [Message(role="system", content=instruction(harness))]
    for shown in routing.exemplars:
        seen = RouteContext(message=shown.message, previous=shown.previous, summaries=shown.summaries)
        messages += [Message(role="user", content=render(seen)), Message(role="assistant", content=shown.label)]
    messages.append(Message(role="user", content=render(context)))
    sampling = Sampling(temperature=0.0, max_tokens=routing.max_tokens)
    return Ask(
        messages=tuple(messages),
        label=routing.router or routing.fallback,
        sampling=sampling,
        choices=route_labels(harness),
    )


def instruction(harness: Harness) -> str:
    """The routing prompt with ``{labels}`` as one line a label; a prompt without that place stays as it is."""
    lines = [f"{label}: {description(harness, label)}" for label in harness.routing.labels]
    return harness.routing.prompt.strip().replace("{labels}", "\n".join(lines))


def description(harness: Harness, label: str) -> str:
    """What a label is for: its registered description, else its prompt's role."""
    return harness.routing.descriptions.get(label) or harness.prompt(label).role


def render(context: RouteContext) -> str:
    """A context as one line a part: no line break of a user or a summary can pass for another part."""
    lines = [f"{label} answered: {_flat(text)}" for label, text in context.summaries]
    if context.previous:
        lines.append(f"Last: {context.previous}")
    return "\n".join([*lines, f"Message: {_flat(context.message)}"])


def _flat(text: str) -> str:
    return " ".join(text.split())


def decide(harness: Harness, completion: Completion, pin: str = "") -> Route:
    """Who answers, from the router's reply; a reply that is no label is an abstention, never an error.

    ``pin`` answers whatever the router said. UserError for a pin that is not registered.
    """
    chosen = completion.text.strip()
    first = chosen if chosen in route_labels(harness) else ""
    probabilities = _probabilities(harness, completion)
    probability = probabilities.get(first, _drawn_with(completion)) if first else 0.0
    label, how = first, RouteHow.ROUTED
    if pin:
        label, how = settled(harness, pin, RouteHow.PINNED).label, RouteHow.PINNED
    elif first in ("", ABSTAIN):
        label, how = harness.routing.fallback, RouteHow.ABSTAINED
    elif probability < harness.routing.threshold:
        label, how = harness.routing.fallback, RouteHow.FALLBACK
    return Route(label=label, how=how, probability=probability, probabilities=probabilities, first=first)


def settled(harness: Harness, label: str, how: RouteHow) -> Route:
    """A route that needs no router: a pinned label, or the one that a tool's result returns to.

    UserError when the label is not registered.
    """
    if label not in harness.routing.labels:
        known = ", ".join(harness.routing.labels)
        raise UserError(f"no specialist is registered as {label!r}; choose one of: {known}")
    return Route(label=label, how=how)


def overridden(harness: Harness, route: Route, label: str) -> Route:
    """The same decision with another label by policy; what the router named stays on record. UserError as above."""
    return route.revise(label=settled(harness, label, RouteHow.OVERRIDDEN).label, how=RouteHow.OVERRIDDEN)


def _probabilities(harness: Harness, completion: Completion) -> dict[str, float]:
    """By label; empty where the engine gave none, since a made-up one would pass a threshold."""
    labels = route_labels(harness)
    if len(completion.probabilities) != len(labels):
        return {}
    return {label: min(1.0, max(0.0, p)) for label, p in zip(labels, completion.probabilities, strict=True)}


def _drawn_with(completion: Completion) -> float:
    """The probability of the whole reply where an engine cannot constrain it: that of its tokens."""
    return min(1.0, math.exp(math.fsum(completion.logprobs))) if completion.logprobs else 0.0
