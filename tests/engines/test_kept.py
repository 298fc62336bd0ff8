"""Keys and values between calls: the tree against a plain list, and the engine with and without it."""

from __future__ import annotations

from collections.abc import Sequence
from os.path import commonprefix
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from loop.core.base import Base
from loop.core.episode import Completion, Request
from loop.core.pair import Adapter, Message
from loop.engines.kept import Kept
from loop.engines.llama import LlamaForward
from loop.engines.transformers import TransformersEngine
from loop.store.blobs import FsBlobs
from tests.engines.tiny import Ears, answers, request, save_adapter

ENGINE = TransformersEngine(dtype="float32", threads=1)
SEQUENCES = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8).map(tuple), min_size=1, max_size=12)


def cache(tokens: Sequence[int]) -> Tensor:
    """Of each position a number that only its whole beginning makes, as keys and values [1, P, 2, 1, 1]."""
    numbers = [float(int("".join(str(token + 1) for token in tokens[: place + 1]))) for place in range(len(tokens))]
    return torch.tensor(numbers, dtype=torch.float64)[None, :, None, None, None].expand(1, -1, 2, 1, 1)


@settings(deadline=None, max_examples=60)
@given(SEQUENCES, st.integers(0, 8))
def test_the_longest_known_beginning_is_found_with_its_own_values(added: list[tuple[int, ...]], cut: int) -> None:
    kept = Kept(most=1 << 20)
    for place, tokens in enumerate(added):
        kept.add("a", tokens, cache(tokens)[:, :cut], cache(tokens)[:, cut:])
        for asked in added:
            length = max(len(commonprefix([asked, one])) for one in added[: place + 1])
            found = kept.find("a", asked)
            assert kept.length("a", asked) == length
            assert (found is None and length == 0) or torch.equal(found, cache(asked[:length]))
    assert kept.find("b", added[0]) is None
    beginnings = {tokens[:length] for tokens in added for length in range(1, len(tokens) + 1)}
    assert kept.held == len(beginnings) * 2 * 8
    kept.drop("a")
    assert kept.held == 0 and kept.length("a", added[0]) == 0


@settings(deadline=None, max_examples=60)
@given(SEQUENCES)
def test_the_bound_holds_and_what_was_used_last_stays(added: list[tuple[int, ...]]) -> None:
    kept = Kept(most=10 * 2 * 8)
    for tokens in added:
        kept.add(None, tokens, cache(tokens))
        assert kept.held <= kept.most and kept.length(None, tokens) == len(tokens)


def test_the_least_recently_used_leaves_first() -> None:
    kept = Kept(most=6 * 2 * 8)
    kept.add(None, (0, 1), cache((0, 1)))
    kept.add(None, (1, 1), cache((1, 1)))
    kept.find(None, (0, 1))
    kept.add(None, (2, 1, 1), cache((2, 1, 1)))
    assert [kept.length(None, tokens) for tokens in ((0, 1), (1, 1), (2, 1, 1))] == [2, 0, 3]


def conversation(base: Base, blobs: FsBlobs, engine: TransformersEngine, listens: bool) -> list[Completion]:
    """Two specialists in turn, each turn a call of its own; the first is met again with what the other did."""
    messages, found = request("one?").messages[:-1], []
    for text in ("two?", "and three?", "four now?"):
        messages += (Message(role="user", content=text),)
        ears = Ears()
        asked = request("x", max_tokens=10).revise(messages=messages)
        engine.generate(base, blobs, [(0, asked)], ears.follow, ears.hear if listens else None)
        messages += (Message(role="assistant", content=ears.found[0].text),)
        found.append(ears.found[0])
    return found


def test_what_was_said_is_not_computed_again_and_the_words_are_the_same(base: Base, blobs: FsBlobs) -> None:
    plain = conversation(base, blobs, ENGINE, listens=False)
    first, again = (conversation(base, blobs, ENGINE, listens=True) for _ in range(2))
    assert [one.cached_tokens for one in plain] == [0, 0, 0]
    for place, (cold, live, warm) in enumerate(zip(plain, first, again, strict=True)):
        assert cold.token_ids == live.token_ids == warm.token_ids
        torch.testing.assert_close(torch.tensor(live.logprobs), torch.tensor(cold.logprobs), atol=1e-4, rtol=0)
        # All of the second time but the last message, whose last token is run for its logits.
        assert warm.cached_tokens == len(warm.prompt_ids) - 1
        # The first time all up to the earlier reply, whose last token was drawn and never run.
        earlier = first[place - 1] if place else None
        if earlier is not None:
            held = (*earlier.prompt_ids, *earlier.token_ids[:-1])
            assert live.cached_tokens == len(commonprefix([held, live.prompt_ids]))


def test_the_prompt_of_a_choice_is_not_computed_again(base: Base, blobs: FsBlobs) -> None:
    engine = TransformersEngine(threads=1, kept_bytes=1 << 24)
    asked = request("which one is it?").revise(choices=("one", "two"))
    longer = asked.revise(messages=(*asked.messages[:-1], Message(role="user", content="which one is it? say so")))
    found = []
    for each in (asked, longer, asked):
        ears = Ears()
        engine.generate(base, blobs, [(0, each)], ears.follow, ears.hear)
        found.append(ears.found[0])
    plain, _ = answers(engine, base, blobs, [longer])
    held = commonprefix([found[0].prompt_ids, found[1].prompt_ids])
    assert [one.cached_tokens for one in found[1:]] == [len(held), len(found[0].prompt_ids) - 1]
    assert found[1].text == plain[0].text
    assert found[1].probabilities == pytest.approx(plain[0].probabilities, abs=1e-3)


def test_a_waited_for_choice_takes_one_pass_and_says_what_two_say(
    base: Base, blobs: FsBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two choices of one prompt among it: only one's options can stand in that prompt's pass."""
    passes: list[int] = []
    extend = LlamaForward.extend

    def counted(self: LlamaForward, prefix: Any, sequences: Any, *rest: Any) -> Any:
        passes.append(len(sequences))
        return extend(self, prefix, sequences, *rest)

    monkeypatch.setattr(LlamaForward, "extend", counted)
    asked = request("which one is it?").revise(choices=("one", "once", "two"))
    other = asked.revise(choices=("two", "three"))
    plain, _ = answers(ENGINE, base, blobs, [asked, other])

    def listened(*requests: Request) -> list[Completion]:
        passes.clear()
        ears = Ears()
        engine = ENGINE.revise(kept_bytes=(1 << 24) + len(requests))
        engine.generate(base, blobs, list(enumerate(requests)), ears.follow, ears.hear)
        return [ears.found[place] for place in range(len(requests))]

    alone = listened(asked)
    assert passes == [1]
    for found, expected in zip([*alone, *listened(asked, other)], [plain[0], *plain], strict=True):
        assert found.text == expected.text and found.token_ids == expected.token_ids
        assert found.logprobs == pytest.approx(expected.logprobs, abs=1e-4)
        assert found.probabilities == pytest.approx(expected.probabilities, abs=1e-4)


def test_a_call_that_nobody_listens_to_neither_uses_nor_fills_it(base: Base, blobs: FsBlobs) -> None:
    engine = TransformersEngine(dtype="bfloat16", threads=1)
    before = conversation(base, blobs, engine, listens=False)
    conversation(base, blobs, engine, listens=True)
    assert conversation(base, blobs, engine, listens=False) == before


def test_without_room_a_call_that_somebody_listens_to_is_any_other(base: Base, blobs: FsBlobs) -> None:
    """Nothing is kept, so nothing may be traded for time: not a bit, and not in what is shared either."""
    engine = TransformersEngine(dtype="bfloat16", threads=1, kept_bytes=0)
    before = conversation(base, blobs, engine, listens=False)
    assert conversation(base, blobs, engine, listens=True) == before
    assert conversation(base, blobs, engine, listens=False) == before


def test_each_adapter_has_its_own_and_loses_it_when_it_is_unloaded(base: Base, blobs: FsBlobs, tmp_path: Path) -> None:
    """Peer fault 3: the same prompt under another revision must not meet the old one's keys and values."""
    made = [save_adapter(base, blobs, tmp_path / str(seed), spread=0.2, seed=seed) for seed in range(3)]
    engine = ENGINE.revise(copies=2)
    plain, _ = answers(engine, base, blobs, [_asked(adapter) for adapter in made])

    def listened(adapter: Adapter) -> Completion:
        ears = Ears()
        engine.generate(base, blobs, [(0, _asked(adapter))], ears.follow, ears.hear)
        return ears.found[0]

    found = [listened(adapter) for adapter in (*made, made[2], made[0])]
    assert [one.token_ids for one in found] == [plain[place].token_ids for place in (0, 1, 2, 2, 0)]
    assert [one.cached_tokens > 0 for one in found] == [False, False, False, True, False]


def _asked(adapter: Adapter) -> Request:
    return request("does each keep to itself?", adapter=adapter, temperature=0.7, seed=4)
