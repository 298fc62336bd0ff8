"""What every engine owes the loop: the same tokens for the same request, whoever serves the weights."""

from __future__ import annotations

import math
import pickle
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from peft import PeftModel

from loop.core.base import Base
from loop.core.episode import Completion, Request
from loop.core.errors import AttestationFailed
from loop.core.pair import Message
from loop.ports import Engine
from loop.store.blobs import FsBlobs
from tests.engines.test_transformers import generated, ids_of, request_with_stop, token_logprobs
from tests.engines.tiny import TARGETS, Ears, answers, reference_model, request, save_adapter

TEXTS = ("two?", "a longer question, with more words?")


def told_of(completion: Completion) -> tuple[object, ...]:
    """All that is told of a reply but the numbers of its tokens."""
    return completion.text, completion.prompt_ids, completion.token_ids, completion.finish


def test_greedy_tokens_are_those_of_transformers_generate(engine: Engine, base: Base, blobs: FsBlobs) -> None:
    model = reference_model(base, blobs)
    found, report = answers(engine, base, blobs, [request(text) for text in TEXTS])
    for completion in found:
        assert list(completion.token_ids) == generated(model, completion, 12)
    assert report.generated_tokens == sum(len(completion.token_ids) for completion in found)
    assert report.prompt_tokens == sum(len(completion.prompt_ids) for completion in found)
    assert report.seconds > 0 and report.failures == {}


def test_prompts_are_exactly_the_chat_templates(engine: Engine, base: Base, blobs: FsBlobs) -> None:
    asked = request("two?", max_tokens=1)
    (completion,), _ = answers(engine, base, blobs, [asked])
    # The template by hand, over the byte-level alphabet: 1 starts a message, 2 ends it.
    turns = [(message.role, message.content) for message in asked.messages]
    count = sum(2 + len(f"{role}\n{content}") + len("\n") for role, content in turns) + 1 + len("assistant\n")
    assert completion.prompt_ids == engine.render(base, blobs, asked.messages)
    assert len(completion.prompt_ids) == count
    assert (completion.prompt_ids.count(1), completion.prompt_ids.count(2)) == (len(turns) + 1, len(turns))


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_log_probabilities_are_those_of_the_sampling_distribution(
    temperature: float, engine: Engine, base: Base, blobs: FsBlobs
) -> None:
    found, _ = answers(engine, base, blobs, [request(text, temperature=temperature, seed=5) for text in TEXTS])
    model = reference_model(base, blobs)
    for completion in found:
        expected = token_logprobs(model, completion.prompt_ids, completion.token_ids, temperature or 1.0)
        assert completion.logprobs == pytest.approx(expected, abs=2e-4)


def test_luck_belongs_to_the_seed_alone(engine: Engine, base: Base, blobs: FsBlobs) -> None:
    requests = [request("two?", temperature=1.0, top_p=0.9, seed=seed) for seed in (1, 2, 3, 1)]
    found, _ = answers(engine, base, blobs, requests)
    (alone,), _ = answers(engine, base, blobs, requests[:1])
    assert found[0].token_ids == found[3].token_ids == alone.token_ids
    assert len({completion.token_ids for completion in found}) > 1


def test_a_reply_ends_at_the_end_token_the_stop_string_or_the_budget(
    engine: Engine, base: Base, blobs: FsBlobs
) -> None:
    # Enough seeds that some end early, by the tiny models' own luck.
    requests = [request("two?", temperature=1.0, seed=seed, max_tokens=24) for seed in range(64)]
    found, _ = answers(engine, base, blobs, requests)
    assert {completion.finish for completion in found} == {"stop", "length"}
    for completion in found:
        assert (completion.token_ids[-1] == 2) == (completion.finish == "stop")
    place, stop = next(
        (i, letter)
        for i, c in enumerate(found)
        for letter in c.text[3:]
        if letter.isascii() and letter not in c.text[:3]
    )
    (cut,), _ = answers(engine, base, blobs, [request_with_stop(requests[place], stop)])
    assert cut.text == found[place].text[: found[place].text.index(stop)]
    assert (cut.finish, cut.token_ids) == ("stop", found[place].token_ids[: len(cut.token_ids)])


def test_follow_requests_join_and_are_answered_once(engine: Engine, base: Base, blobs: FsBlobs) -> None:
    finished: list[int] = []

    def follow(key: int, completion: Completion) -> Sequence[tuple[int, Request]]:
        finished.append(key)
        if key >= 20:
            return ()
        told = (Message(role="assistant", content=completion.text or "-"), Message(role="user", content="and?"))
        return [(key + 10, request("x", max_tokens=4).revise(messages=request("two?").messages + told))]

    engine.generate(base, blobs, [(key, request(TEXTS[key], max_tokens=4)) for key in range(2)], follow)
    assert sorted(finished) == [0, 1, 10, 11, 20, 21]


def test_what_is_told_of_a_growing_reply_is_a_beginning_of_it(engine: Engine, base: Base, blobs: FsBlobs) -> None:
    """Random bytes make many characters that come in several tokens, or are none at all."""
    plain = [request("two?", temperature=1.0, seed=seed, max_tokens=24) for seed in range(8)]
    whole, _ = answers(engine, base, blobs, plain)
    stops = [completion.text[6:9] for completion in whole]
    asked = [request_with_stop(one, stop) for one, stop in zip(plain, stops, strict=True) if len(stop) == 3]
    ears = Ears()
    report = engine.generate(base, blobs, list(enumerate(asked)), ears.follow, ears.hear)
    assert report.failures == {} and len(ears.found) == len(asked) > 4
    alone, _ = answers(engine, base, blobs, asked)
    # Somebody waits, so an engine may trade the last bits of a number for time: never a token.
    assert [told_of(ears.found[key]) for key in range(len(asked))] == [told_of(completion) for completion in alone]
    for key, completion in enumerate(alone):
        assert ears.found[key].logprobs == pytest.approx(completion.logprobs, abs=1e-4)
    for key, completion in ears.found.items():
        told = ears.told[key]
        assert told[0] == "" and all(later.startswith(earlier) for earlier, later in pairwise(told))
        assert completion.text.startswith(told[-1]) and completion.finish == "stop"
    assert any(len(ears.told[key][-1]) == len(completion.text) > 2 for key, completion in ears.found.items())


def test_a_request_that_nobody_wants_any_more_is_given_up_alone(engine: Engine, base: Base, blobs: FsBlobs) -> None:
    asked = [request("two?", temperature=1.0, seed=seed, max_tokens=24) for seed in range(4)]
    whole, _ = answers(engine, base, blobs, asked)
    ears = Ears(lambda key, text: key == 1 or (key == 2 and len(text) > 1))
    report = engine.generate(base, blobs, list(enumerate(asked)), ears.follow, ears.hear)
    assert {key: failure.boundary for key, failure in report.failures.items()} == {1: "cancelled", 2: "cancelled"}
    # What an engine keeps from the first call it need not read again: that is counted, and changes no token.
    assert {key: found.token_ids for key, found in ears.found.items()} == {n: whole[n].token_ids for n in (0, 3)}
    assert ears.told[1] == [""] and whole[2].text.startswith(ears.told[2][-1])


def test_a_constrained_choice_is_not_told(engine: Engine, base: Base, blobs: FsBlobs) -> None:
    ears = Ears(lambda key, text: True)
    engine.generate(base, blobs, [(0, request("well?", choices=("yes", "no")))], ears.follow, ears.hear)
    assert ears.told == {} and ears.found[0].finish == "choice"


def test_choice_probabilities_are_those_scored_by_hand(engine: Engine, base: Base, blobs: FsBlobs) -> None:
    choices = ("yes", "yes please", "no")
    (chosen,), _ = answers(engine, base, blobs, [request("well?", choices=choices)])
    model = reference_model(base, blobs)
    tokens = {choice: [*ids_of(base, blobs, choice), 2] for choice in choices}
    totals = [math.fsum(token_logprobs(model, chosen.prompt_ids, tokens[choice])) for choice in choices]
    expected = [math.exp(total) / math.fsum(map(math.exp, totals)) for total in totals]
    best = choices[expected.index(max(expected))]
    assert (chosen.text, chosen.finish, list(chosen.token_ids)) == (best, "choice", tokens[best])
    assert chosen.probabilities == pytest.approx(expected, rel=1e-3)


def test_each_request_is_answered_by_its_own_adapter(
    engine: Engine, base: Base, blobs: FsBlobs, tmp_path: Path
) -> None:
    adapters = [save_adapter(base, blobs, tmp_path / str(seed), spread=0.2, seed=seed) for seed in range(2)]
    requests = [request("two?", adapter=adapter) for adapter in (None, *adapters)]
    found, _ = answers(engine, base, blobs, requests)
    for completion, one in zip(found, requests, strict=True):
        model = reference_model(base, blobs)
        if one.adapter is not None:
            model = PeftModel.from_pretrained(model, str(blobs.get_tree(one.adapter.blob))).eval()
        expected = token_logprobs(model, completion.prompt_ids, completion.token_ids)
        assert completion.logprobs == pytest.approx(expected, abs=1e-3)
    assert len({completion.logprobs for completion in found}) == 3


def test_attestation_compares_with_the_trainers_probe(
    engine: Engine, base: Base, blobs: FsBlobs, tmp_path: Path
) -> None:
    adapter = save_adapter(base, blobs, tmp_path / "trained")
    found = engine.attest(base, blobs, adapter)
    assert (found.ok, found.adapter, found.blob) == (True, adapter.digest, adapter.blob)
    assert found.modules == 3 * len(TARGETS)
    assert found.probe_difference < 1e-3 < found.base_difference
    fresh = save_adapter(base, blobs, tmp_path / "fresh", spread=0.0, parent=None)
    assert engine.attest(base, blobs, fresh).base_difference < 1e-4
    with pytest.raises(AttestationFailed, match="answers exactly as the base"):
        engine.attest(base, blobs, save_adapter(base, blobs, tmp_path / "equal", spread=0.0))


def test_a_prompt_beyond_the_context_is_cut_by_length(engine: Engine, base: Base, blobs: FsBlobs) -> None:
    (over, near), _ = answers(engine, base, blobs, [request("x" * 600), request("y" * 424, max_tokens=64)])
    assert (over.text, over.token_ids, over.finish) == ("", (), "length")
    assert len(near.prompt_ids) < 512
    assert len(near.prompt_ids) + len(near.token_ids) <= 512


def test_an_engine_is_a_value(engine: Engine) -> None:
    again = pickle.loads(pickle.dumps(engine))
    assert again == engine and again.digest == engine.digest  # type: ignore[attr-defined]


def test_the_tiny_model_tells_its_adapters_apart(base: Base, blobs: FsBlobs, tmp_path: Path) -> None:
    """What the tests above rest on: two random adapters move the logits by far more than any tolerance."""
    models = [reference_model(base, blobs)]
    for seed in range(2):
        adapter = save_adapter(base, blobs, tmp_path / str(seed), spread=0.2, seed=seed)
        models.append(PeftModel.from_pretrained(reference_model(base, blobs), str(blobs.get_tree(adapter.blob))).eval())
    with torch.inference_mode():
        logits = [model(torch.tensor([list(range(5, 29))])).logits[0, -1] for model in models]
    assert all(float((left - right).abs().max()) > 0.1 for left, right in zip(logits, logits[1:], strict=False))
