"""Identity is content: what moves a digest and what does not."""

from __future__ import annotations

import hashlib
import pickle

import pytest
from pydantic import ValidationError

from loop.core.budget import Budget
from loop.core.noun import Noun, digest_of, seed_from
from loop.core.pair import Message, Sampling


def test_the_digest_is_sha256_of_canonical_json_by_hand() -> None:
    expected = hashlib.sha256(b'{"_":"Sampling","temperature":0.5}').hexdigest()
    assert Sampling(temperature=0.5, max_tokens=64).digest == expected


def test_a_new_field_with_a_default_keeps_old_digests() -> None:
    class Old(Noun):
        x: int

    class New(Noun):
        x: int
        y: int = 3

    New.__name__ = "Old"
    assert Old(x=1).digest == New(x=1).digest != New(x=1, y=4).digest


def test_wall_seconds_are_facts_and_not_identity() -> None:
    assert Budget(generated_tokens=5, wall_seconds=1.0).digest == Budget(generated_tokens=5).digest


def test_class_name_order_and_nesting_are_part_of_the_digest() -> None:
    one, two = Message(role="user", content="a"), Message(role="user", content="b")
    assert digest_of([one, two]) != digest_of([two, one])
    assert digest_of({"b": 1, "a": 2}) == digest_of({"a": 2, "b": 1})


def test_nouns_are_frozen_strict_and_survive_pickle() -> None:
    noun = Sampling(temperature=0.2)
    with pytest.raises(ValidationError):
        noun.temperature = 0.3  # type: ignore[misc]
    with pytest.raises(ValidationError):
        Sampling(warmth=1)  # type: ignore[call-arg]
    with pytest.raises(ValidationError):
        noun.revise(top_p=2.0)
    assert pickle.loads(pickle.dumps(noun)).digest == noun.digest


def test_seeds_differ_by_every_part_and_stay_below_63_bits() -> None:
    seeds = {seed_from("a", 1), seed_from("a", 2), seed_from("b", 1), seed_from("a", 1, 0)}
    assert len(seeds) == 4 and all(0 <= seed < 2**63 for seed in seeds)
