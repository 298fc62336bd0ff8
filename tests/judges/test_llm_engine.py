"""The judge on real tokens: the project's own engine behind the HTTP API, on a tiny model with random weights."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import pytest

from loop.core.base import Base
from loop.core.episode import Completion, Request
from loop.core.pair import Message, Sampling
from loop.engines.prepare import prepare_base
from loop.engines.transformers import TransformersEngine
from loop.store.blobs import FsBlobs
from tests.engines.tiny import answers, save_tiny
from tests.judges.endpoint import Said, completion, serve
from tests.judges.judged import CLEAR, KIND, conversation, judge_at, judged_contract
from tests.judges.test_llm import HALF

CONTRACT = judged_contract(samples=2)
# All that a grammar of the schema may say here: the engine scores each whole and draws one.
GRADES = tuple(
    json.dumps({"quote": quote, "reason": reason, "score": score})
    for quote, reason, score in (("", "It is cold.", 0.0), ("", "It is partly so.", 0.5), ("here", "It is warm.", 1.0))
)


@pytest.fixture(scope="module")
def blobs(tmp_path_factory: pytest.TempPathFactory) -> FsBlobs:
    return FsBlobs(url=str(tmp_path_factory.mktemp("blobs")))


@pytest.fixture(scope="module")
def base(blobs: FsBlobs, tmp_path_factory: pytest.TempPathFactory) -> Base:
    """A tiny base that is wide enough for a judge's prompt in bytes."""
    folder = save_tiny(tmp_path_factory.mktemp("tiny"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 8192}))
    return prepare_base(str(folder), blobs, "", Path(tmp_path_factory.mktemp("cache")))


class Served:
    """A chat-completions API over the engine; a JSON schema constrains the answer to ``GRADES``."""

    def __init__(self, base: Base, blobs: FsBlobs) -> None:
        self.base, self.blobs, self.lock = base, blobs, Lock()
        self.engine = TransformersEngine()
        self.given: list[tuple[dict[str, Any], Completion]] = []

    def __call__(self, number: int, body: dict[str, Any]) -> Said:
        request = Request(
            messages=tuple(Message(**message) for message in body["messages"]),
            adapter=None,
            sampling=Sampling(temperature=body["temperature"], max_tokens=body["max_tokens"]),
            seed=body["seed"],
            choices=GRADES if "response_format" in body else (),
        )
        with self.lock:
            (found,), _ = answers(self.engine, self.base, self.blobs, [request])
            self.given.append((body, found))
        return completion(found.text, finish="length" if found.finish == "length" else "stop")


def chosen(served: Served, criterion: str) -> Sequence[float]:
    """The scores that the engine's tokens spell for one criterion."""
    text = {KIND: "is kind", CLEAR: "is clear"}[criterion]
    tokens = [found.token_ids for body, found in served.given if text in body["messages"][1]["content"]]
    # The tokenizer is byte-level: token 3 is the first of the sorted alphabet, after three special ones.
    from tokenizers import pre_tokenizers

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    texts = ["".join(letters[token - 3] for token in ids if token > 2).replace("\u0120", " ") for ids in tokens]
    return [float(json.loads(text)["score"]) for text in texts]


def test_a_judges_mean_is_that_of_the_grades_whose_tokens_the_engine_drew(base: Base, blobs: FsBlobs) -> None:
    script = Served(base, blobs)
    with serve(script) as server:
        judge = judge_at(server.url, timeout=300, temperature=1.0)
        (row,) = judge.judge_many(CONTRACT, [conversation("I hear you.")], HALF)
    found = {verdict.criterion: verdict for verdict in row}
    assert all(answer.finish == "choice" and answer.prompt_ids for _, answer in script.given)
    for criterion in (KIND, CLEAR):
        scores = chosen(script, criterion)
        assert len(scores) == 2 and found[criterion].value == pytest.approx(sum(scores) / 2)
        assert found[criterion].calls == 2


def test_free_babble_of_the_same_model_decides_nothing(base: Base, blobs: FsBlobs) -> None:
    script = Served(base, blobs)
    with serve(script) as server:
        endpoint = judge_at(server.url).endpoints[0].revise(structured=False)
        judge = judge_at(server.url, timeout=300, max_tokens=24).revise(endpoints=(endpoint,))
        (row,) = judge.judge_many(CONTRACT, [conversation("I hear you.")], HALF)
    found = {verdict.criterion: verdict for verdict in row}
    assert found[KIND].value is None and "malformed" in found[KIND].evidence
    assert len(script.given) == found[KIND].calls + found[CLEAR].calls == 4
