"""The transformers engine against plain transformers, PEFT and float64 sums."""

from __future__ import annotations

import math
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel

from loop.core.base import Base
from loop.core.episode import Completion, Request
from loop.core.pair import Message
from loop.engines.noise import noise_floor
from loop.engines.transformers import TransformersEngine
from loop.store.blobs import FsBlobs
from tests.engines.tiny import answers, reference_model, request, save_adapter, tiny_base

ENGINE = TransformersEngine(dtype="float32", threads=1)
TEXTS = ["two?", "a longer question, with more words?", "x", "two plus two?"]


def generated(model: Any, completion: Completion, count: int) -> list[int]:
    """Greedy tokens of transformers' own generate after the completion's prompt."""
    ids = torch.tensor([completion.prompt_ids])
    found = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False)
    tokens: list[int] = found[0, ids.shape[1] :].tolist()
    return tokens


def token_logprobs(model: Any, prompt: Sequence[int], tokens: Sequence[int], temperature: float = 1.0) -> list[float]:
    """Float64 log-softmax of the model's logits at each token, in one pass without a cache."""
    with torch.inference_mode():
        logits = model(torch.tensor([[*prompt, *tokens]])).logits[0, len(prompt) - 1 : -1].double()
    table = torch.log_softmax(logits / temperature, -1)
    return [float(table[place, token]) for place, token in enumerate(tokens)]


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_greedy_tokens_are_those_of_transformers_generate(kind: str, blobs: FsBlobs, tmp_path: Path) -> None:
    base = tiny_base(tmp_path, blobs, kind)
    model = reference_model(base, blobs)
    found, _ = answers(ENGINE, base, blobs, [request(text, max_tokens=20) for text in TEXTS])
    for completion in found:
        assert list(completion.token_ids) == generated(model, completion, 20)


def test_prompts_are_exactly_the_chat_templates(base: Base, blobs: FsBlobs) -> None:
    messages = (Message(role="user", content="two?"),)
    (completion,), _ = answers(ENGINE, base, blobs, [request("two?").revise(messages=messages)])
    letters = "user\ntwo?"
    special = {"end": 2, "start": 1}
    ids = ENGINE.render(base, blobs, messages)
    assert completion.prompt_ids == ids
    assert (ids[0], ids.count(special["start"]), ids.count(special["end"])) == (special["start"], 2, 1)
    assert len(ids) == 3 + len(letters) + len("\n") + len("assistant\n")


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_log_probabilities_are_those_of_the_sampling_distribution(
    temperature: float, base: Base, blobs: FsBlobs
) -> None:
    found, _ = answers(ENGINE, base, blobs, [request(text, temperature=temperature, seed=5) for text in TEXTS])
    model = reference_model(base, blobs)
    for completion in found:
        expected = token_logprobs(model, completion.prompt_ids, completion.token_ids, temperature or 1.0)
        assert completion.logprobs == pytest.approx(expected, abs=2e-4)


def test_samples_that_share_a_prefill_equal_samples_alone(base: Base, blobs: FsBlobs) -> None:
    requests = [request("two?", temperature=1.0, seed=seed) for seed in range(6)]
    together, report = answers(ENGINE, base, blobs, requests)
    alone = [answers(ENGINE, base, blobs, [one])[0][0] for one in requests]
    assert [c.token_ids for c in together] == [c.token_ids for c in alone]
    assert len({c.token_ids for c in together}) > 1
    # Five of the six prompts are shared whole, and the first pays for everything.
    assert report.cached_tokens == 5 * len(together[0].prompt_ids)
    assert report.prompt_tokens == 6 * len(together[0].prompt_ids)


def test_a_request_does_not_depend_on_its_neighbours(base: Base, blobs: FsBlobs) -> None:
    requests = [
        request(text, temperature=0.9, seed=seed, max_tokens=5 + 3 * seed) for text in TEXTS for seed in range(3)
    ]
    found = noise_floor(ENGINE, base, blobs, requests)
    assert (found.changed_tokens, found.changed_replies) == (0.0, 0.0)
    assert found.logprob < 1e-4


def test_fewer_rows_than_requests_change_nothing(base: Base, blobs: FsBlobs) -> None:
    requests = [request(text, temperature=0.9, seed=seed) for text in TEXTS for seed in range(5)]
    many, _ = answers(ENGINE, base, blobs, requests)
    few, _ = answers(ENGINE.revise(max_rows=3, prompt_chunk=16), base, blobs, requests)
    assert [c.token_ids for c in many] == [c.token_ids for c in few]
    for left, right in zip(many, few, strict=True):
        assert left.logprobs == pytest.approx(right.logprobs, abs=1e-4)


def test_what_ran_before_in_the_process_changes_nothing(base: Base, blobs: FsBlobs) -> None:
    engine = TransformersEngine(dtype="bfloat16", threads=1)
    requests = [request(text, temperature=0.9, seed=3) for text in TEXTS]
    first, _ = answers(engine, base, blobs, requests)
    answers(engine, base, blobs, [request("something else?", temperature=1.0, seed=1)])
    second, _ = answers(engine, base, blobs, requests)
    assert first == second


def test_follow_requests_join_and_are_answered_once(base: Base, blobs: FsBlobs) -> None:
    finished: list[int] = []

    def follow(key: int, completion: Completion) -> Sequence[tuple[int, Request]]:
        finished.append(key)
        if key >= 20:
            return ()
        told = (Message(role="assistant", content=completion.text or "-"), Message(role="user", content="and?"))
        before = request(TEXTS[key % 4]).messages if key < 10 else request("later?").messages
        return [(key + 10, request("x").revise(messages=before + told))]

    report = ENGINE.generate(base, blobs, [(key, request(TEXTS[key])) for key in range(4)], follow)
    assert sorted(finished) == [0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23]
    assert report.generated_tokens > 0


def _conversations(engine: TransformersEngine, base: Base, blobs: FsBlobs, texts: Sequence[str]) -> list[Completion]:
    """The third replies of conversations that are played side by side, and what was computed for them."""
    last: dict[int, Completion] = {}
    asked = {key: request(text, seed=key, temperature=0.9, max_tokens=24).messages for key, text in enumerate(texts)}

    def follow(key: int, completion: Completion) -> Sequence[tuple[int, Request]]:
        last[key] = completion
        if len(asked[key]) >= 5:
            return ()
        told = (Message(role="assistant", content=completion.text), Message(role="user", content="and then?"))
        asked[key] += told
        return [(key, request("x", seed=key, temperature=0.9, max_tokens=24).revise(messages=asked[key]))]

    first = [(key, request(text, seed=key, temperature=0.9, max_tokens=24)) for key, text in enumerate(texts)]
    engine.generate(base, blobs, first, follow)
    return [last[key] for key in range(len(texts))]


def test_a_conversation_that_goes_on_computes_only_what_is_new(base: Base, blobs: FsBlobs) -> None:
    for completion in _conversations(ENGINE, base, blobs, TEXTS):
        whole = token_logprobs(reference_model(base, blobs), completion.prompt_ids, completion.token_ids, 0.9)
        assert list(completion.logprobs) == pytest.approx(whole, abs=1e-3)
        assert len(completion.prompt_ids) / 2 < completion.cached_tokens < len(completion.prompt_ids)


def test_a_conversation_does_not_depend_on_those_beside_it(base: Base, blobs: FsBlobs) -> None:
    for dtype, rows in (("bfloat16", 128), ("float32", 2)):
        engine = TransformersEngine(dtype=dtype, threads=1, max_rows=rows)
        together = _conversations(engine, base, blobs, TEXTS)
        assert together[:2] == _conversations(engine, base, blobs, TEXTS[:2])


def test_a_reply_ends_at_the_end_token_the_stop_string_or_the_budget(base: Base, blobs: FsBlobs) -> None:
    requests = [request(text, temperature=1.0, seed=seed, max_tokens=40) for text in TEXTS for seed in range(12)]
    found, _ = answers(ENGINE, base, blobs, requests)
    assert {c.finish for c in found} == {"stop", "length"}
    for completion in found:
        assert (completion.token_ids[-1] == 2) == (completion.finish == "stop")
        assert completion.token_ids.count(2) == (completion.finish == "stop")
        assert len(completion.token_ids) == 40 or completion.finish == "stop"
    place, stop = next(
        (i, letter)
        for i, c in enumerate(found)
        for letter in c.text[3:]
        if letter.isascii() and letter not in c.text[:3]
    )
    (cut,), _ = answers(ENGINE, base, blobs, [request_with_stop(requests[place], stop)])
    assert cut.text == found[place].text[: found[place].text.index(stop)]
    assert (cut.finish, cut.token_ids) == ("stop", found[place].token_ids[: len(cut.token_ids)])
    assert len(cut.token_ids) < 40


def request_with_stop(one: Request, stop: str) -> Request:
    """The same request with a stop string."""
    return one.revise(sampling=one.sampling.revise(stop=(stop,)))


def test_choice_probabilities_are_those_scored_by_hand(base: Base, blobs: FsBlobs) -> None:
    choices = ("yes", "yes please", "no")
    one = request("well?", choices=choices)
    (chosen,), _ = answers(ENGINE, base, blobs, [one])
    model = reference_model(base, blobs)
    tokens = {choice: [*ids_of(base, blobs, choice), 2] for choice in choices}
    totals = [math.fsum(token_logprobs(model, chosen.prompt_ids, tokens[choice])) for choice in choices]
    expected = [math.exp(total) / math.fsum(map(math.exp, totals)) for total in totals]
    assert chosen.probabilities == pytest.approx(expected, rel=1e-3)
    best = choices[expected.index(max(expected))]
    assert (chosen.text, chosen.finish, list(chosen.token_ids)) == (best, "choice", tokens[best])
    assert chosen.logprobs == pytest.approx(token_logprobs(model, chosen.prompt_ids, tokens[best]), abs=2e-4)


def ids_of(base: Base, blobs: FsBlobs, text: str) -> list[int]:
    """Token ids of plain text, found between the template's own tokens."""
    empty, full = (ENGINE.render(base, blobs, (Message(role="user", content=content),)) for content in ("", text))
    start = next(i for i, (a, b) in enumerate(zip(empty, full, strict=False)) if a != b)
    return list(full[start : start + len(full) - len(empty)])


def test_choices_are_drawn_by_the_seed_with_their_probabilities(base: Base, blobs: FsBlobs) -> None:
    requests = [request("well?", choices=("a", "b"), temperature=1.0, seed=seed) for seed in range(200)]
    found, _ = answers(ENGINE, base, blobs, requests)
    share = sum(c.text == "a" for c in found) / 200
    expected = found[0].probabilities[0]
    # Four standard deviations of a share of 200 draws.
    assert abs(share - expected) < 4 * math.sqrt(expected * (1 - expected) / 200) + 1e-9
    again, _ = answers(ENGINE, base, blobs, requests[:5])
    assert [c.text for c in again] == [c.text for c in found[:5]]


def test_each_request_is_answered_by_its_own_adapter(base: Base, blobs: FsBlobs, tmp_path: Path) -> None:
    adapters = [save_adapter(base, blobs, tmp_path / str(seed), spread=0.2, seed=seed) for seed in range(2)]
    requests = [request(text, adapter=adapter, max_tokens=16) for text in TEXTS for adapter in (None, *adapters)]
    found, _ = answers(ENGINE, base, blobs, requests)
    for place, one in enumerate(requests):
        model = reference_model(base, blobs)
        if one.adapter is not None:
            model = PeftModel.from_pretrained(model, str(blobs.get_tree(one.adapter.blob))).eval()
        completion = found[place]
        assert completion.logprobs == pytest.approx(
            token_logprobs(model, completion.prompt_ids, completion.token_ids), abs=1e-3
        )
    assert len({found[i].logprobs for i in range(3)}) == 3


def test_serving_adapters_leaves_the_base_as_it_was(base: Base, blobs: FsBlobs, tmp_path: Path) -> None:
    before, _ = answers(ENGINE, base, blobs, [request("two?")])
    for seed in range(5):
        adapter = save_adapter(base, blobs, tmp_path / str(seed), spread=0.2, seed=seed)
        answers(ENGINE.revise(copies=2), base, blobs, [request("two?", adapter=adapter)])
    after, _ = answers(ENGINE, base, blobs, [request("two?")])
    assert before == after


def test_a_prompt_beyond_the_context_is_cut_by_length(base: Base, blobs: FsBlobs) -> None:
    (over, near), _ = answers(ENGINE, base, blobs, [request("x" * 600), request("y" * 424, max_tokens=64)])
    assert (over.text, over.token_ids, over.finish) == ("", (), "length")
    assert len(near.prompt_ids) < 512
    assert len(near.prompt_ids) + len(near.token_ids) <= 512


def test_an_engine_is_a_value() -> None:
    assert pickle.loads(pickle.dumps(ENGINE)) == ENGINE
    assert ENGINE.digest == TransformersEngine(dtype="float32", threads=1).digest


@pytest.mark.model
def test_the_embedded_model_answers_as_transformers_does(embedded: tuple[Base, FsBlobs]) -> None:
    base, blobs = embedded
    model = reference_model(base, blobs)
    found, _ = answers(ENGINE, base, blobs, [request(text, max_tokens=16) for text in ("two?", "Capital of France?")])
    for completion in found:
        assert list(completion.token_ids) == generated(model, completion, 16)
        expected = token_logprobs(model, completion.prompt_ids, completion.token_ids)
        assert completion.logprobs == pytest.approx(expected, abs=1e-3)
