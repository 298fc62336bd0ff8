"""Routes on a real engine: whatever a random model likes, a registered label comes back; beginnings are shared."""

from __future__ import annotations

from loop.core.base import Base
from loop.core.episode import Split
from loop.core.pair import ABSTAIN, Pair
from loop.core.routing import RouteBank, RouteGroup, RouteKind
from loop.engines.transformers import TransformersEngine
from loop.pipeline.routes import RouteJob, ask_routes, decided
from loop.store.blobs import FsBlobs
from tests.pipeline.test_routing import harness

WORDS = ("hello", "what time is it", "draw a\nhouse", "x" * 40)


def job(base: Base, blobs: FsBlobs, samples: int, temperature: float, taught: bool) -> RouteJob:
    groups = tuple(RouteGroup(kind=RouteKind.PLAIN, wanted=(label,), messages=WORDS) for label in ("L0", "L1"))
    cases = RouteBank(split=Split.TRAIN, groups=groups).cases
    pair = Pair(base=base, adapters=(), harness=harness())
    return RouteJob(
        engine=TransformersEngine(dtype="float32"),
        blobs=blobs,
        pairs=(pair,),
        cases=cases,
        split=Split.TRAIN,
        samples=samples,
        temperature=temperature,
        seed=3,
        taught=taught,
    )


def test_every_reply_is_a_label_with_its_probability_and_the_beginning_is_computed_once(
    base: Base, blobs: FsBlobs
) -> None:
    asked = job(base, blobs, 1, 0.0, False)
    shard = ask_routes(asked)
    routes = [route for _, route in decided(asked.cases, shard.episodes, asked.pairs[0].digest)]
    assert {route.first for route in routes} <= {"L0", "L1", ABSTAIN} and len(routes) == 8
    for route in routes:
        assert sum(route.probabilities.values()) > 0.999
        assert route.probability == max(route.probabilities.values())
    cached = sorted(episode.usage.cached_tokens for episode in shard.episodes)
    assert cached[0] == 0 and min(cached[1:]) > len("system") + len("L0: test\nL1: test")
    assert ask_routes(asked).digest == shard.digest


def test_what_the_router_never_names_is_taught_with_the_label_s_own_tokens(base: Base, blobs: FsBlobs) -> None:
    shard = ask_routes(job(base, blobs, 1, 0.0, True))
    rights: dict[str, list[bool]] = {}
    for episode in shard.episodes:
        rights.setdefault(str(episode.record.slots["case"]), []).append(bool(episode.record.world["right"]))
    # Greedily a message gets one label, and both are wanted of it in turn: one case of the two is taught.
    assert len(rights) == 8 and sum(found == [False, True] for found in rights.values()) >= 4
    assert all(any(found) for found in rights.values())
    tokens: dict[str, set[tuple[int, ...]]] = {}
    for episode in shard.episodes:
        tokens.setdefault(episode.turns[-1].content, set()).add(episode.turns[-1].token_ids)
    assert {"L0", "L1"} <= set(tokens) and all(len(found) == 1 for found in tokens.values())
