from __future__ import annotations

import io
import json
import math

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loop.core.budget import Budget
from loop.core.contract import Half, Pole
from loop.core.episode import Episode, EpisodeShard, Failure, Record, Split, Task, ToolCall, Turn, Usage
from loop.core.generation import Generation
from loop.core.noun import Noun
from loop.core.score import CaseScore, ScoreShard, Verdict
from loop.core.training_set import Curve, Fingerprints, Row, TrainingSet
from loop.ports import Trained
from loop.store.parquet import decode, encode
from tests.store import children, lineage

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
floats = st.floats(allow_nan=False)
tokens = st.lists(st.integers(0, 2**31 - 1), max_size=5).map(tuple)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | floats | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
documents = st.dictionaries(texts, json_values, max_size=3)
tasks = st.builds(
    Task,
    environment=texts,
    case=texts,
    split=st.sampled_from(Split),
    seed=st.integers(0, 2**70),
    level=st.integers(1, 9),
)
turns = st.builds(
    Turn,
    role=st.sampled_from(["system", "user", "assistant", "tool"]),
    content=texts,
    label=texts,
    adapter=st.none() | texts,
    prompt_ids=tokens,
    token_ids=tokens,
    logprobs=st.lists(st.floats(), max_size=4).map(tuple),
    finish=texts,
)
calls = st.builds(
    ToolCall,
    turn=st.integers(1, 9),
    name=texts,
    arguments=documents,
    ok=st.none() | st.booleans(),
    result=documents,
)
failures = st.none() | st.builds(Failure, boundary=texts, message=texts)
episodes = st.builds(
    Episode,
    task=tasks,
    pair=texts,
    sample=st.integers(0, 99),
    seed=st.integers(),
    turns=st.lists(turns, max_size=3).map(tuple),
    record=st.builds(Record, slots=documents, world=documents, calls=st.lists(calls, max_size=2).map(tuple)),
    usage=st.builds(Usage, prompt_tokens=st.integers(0, 10**6)),
    failure=failures,
    seconds=st.floats(0, 1e6),
)
units = st.floats(0, 1)
verdicts = st.builds(
    Verdict,
    criterion=texts,
    axiom=texts,
    pole=st.sampled_from(Pole),
    weight=floats,
    veto=st.booleans(),
    half=st.sampled_from(Half),
    value=st.none() | units,
    evidence=texts,
    judge=texts,
)
case_scores = st.builds(
    CaseScore,
    episode=texts,
    task=tasks,
    sample=st.integers(0, 99),
    score=st.none() | floats,
    passed=st.none() | st.booleans(),
    axioms=st.dictionaries(texts, units, max_size=2),
    verdicts=st.lists(verdicts, max_size=3).map(tuple),
    failure=failures,
)
some_tokens = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5).map(tuple)
rows = st.builds(
    Row,
    episode=texts,
    task=texts,
    split=st.just(Split.TRAIN),
    environment=texts,
    case=texts,
    level=st.integers(1, 9),
    turn=st.integers(0, 9),
    generation=st.integers(0, 99),
    licence=texts,
    weight=st.floats(0, exclude_min=True, allow_nan=False),
    score=floats,
    prompt_ids=some_tokens,
    response_ids=some_tokens,
    text=texts,
    request=texts,
)
nouns = st.one_of(
    st.builds(EpisodeShard, episodes=st.lists(episodes, max_size=3).map(tuple)),
    st.builds(
        ScoreShard,
        contract=texts,
        half=st.sampled_from(Half),
        scores=st.lists(case_scores, max_size=3).map(tuple),
    ),
    st.builds(
        TrainingSet,
        label=texts,
        rows=st.lists(rows, max_size=3).map(tuple),
        dropped=st.dictionaries(texts, st.integers(), max_size=2),
    ),
)


@settings(max_examples=150, deadline=None)
@given(nouns)
def test_every_shard_and_training_set_reads_back_as_it_was(noun: Noun) -> None:
    data = encode(noun)
    back = decode(type(noun), data)
    # repr: tells apart 1 and 1.0, and the order of keys; NaN equals itself there.
    assert repr(back) == repr(noun)
    assert back.digest == noun.digest
    assert encode(back) == data


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.0, 5e-324, 1 / 3, 1e308])
def test_log_probabilities_are_exact_to_the_bit(value: float) -> None:
    turn = Turn(role="assistant", content="", logprobs=(value,))
    shard = EpisodeShard(
        episodes=(
            Episode(task=lineage.task(), pair="p", sample=0, seed=0, turns=(turn,), record=Record(), seconds=0.25),
        )
    )
    back = decode(EpisodeShard, encode(shard)).episodes[0]
    assert back.turns[0].logprobs[0].hex() == value.hex()
    assert back.seconds == 0.25


def test_equal_nouns_give_equal_bytes_in_another_process() -> None:
    script = (
        "import hashlib; from tests.store import lineage; from loop.store.parquet import encode;"
        "print(hashlib.sha256(encode(lineage.shard(0, 20))).hexdigest())"
    )
    first, second = children.python(script), children.python(script)
    assert first.code == 0, first.error
    assert first.out == second.out


def test_the_file_is_plain_zstd_parquet_that_any_reader_can_filter() -> None:
    shard = EpisodeShard(episodes=(lineage.episode(0), lineage.episode(1, broken=True)))
    file = pq.ParquetFile(io.BytesIO(encode(shard)))
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"
    table = file.read().to_pydict()
    assert table["environment"] == ["tools", "tools"] and table["case"] == ["calendar/0", "calendar/1"]
    assert table["digest"] == [episode.digest for episode in shard.episodes]
    assert table["boundary"] == [None, "engine"]
    assert table["turns"][0][1]["token_ids"] == [4, 5, 49_151]
    assert json.loads(table["rest"][0])["record"]["world"] == {"b": [1, None], "a": {}}


def test_bytes_of_another_kind_are_refused() -> None:
    for kind, noun in ((ScoreShard, lineage.shard()), (Curve, Budget()), (Budget, lineage.plan())):
        with pytest.raises(ValueError, match="expected the"):
            decode(kind, encode(noun))


def test_other_nouns_are_json_with_order_sets_and_facts_kept() -> None:
    trained = Trained(
        adapter=lineage.adapter(),
        curve=Curve(losses=(1.0, math.nan, math.inf), learning_rates=(1e-3,), grad_norms=(-0.0,)),
        steps_planned=2,
        steps_done=2,
        trained_tokens=9,
        response_tokens=4,
        rows_trained=("b", "a"),
        budget=Budget(wall_seconds=3.5, trained_tokens=9),
        peak_bytes=7,
        tokens_per_second=1.5,
    )
    prints = Fingerprints(grams=frozenset({3, 2**63, 1}), embeddings=((0.5, -0.25),))
    child: Generation = lineage.child(lineage.root())
    for noun in (trained, prints, lineage.plan(), child, lineage.contract()):
        data = encode(noun)
        back = decode(type(noun), data)
        assert repr(back) == repr(noun) and back.digest == noun.digest
        assert isinstance(json.loads(data), dict)
    assert encode(Fingerprints(grams=frozenset({1, 3, 2**63}), embeddings=((0.5, -0.25),))) == encode(prints)
