"""Fingerprints of the holdout and the checks against them."""

from __future__ import annotations

import hashlib

from loop.core.training_set import Fingerprints
from loop.curators.decontaminate import copied, fingerprint, overlap
from tests.curators.rows import BagOfWords, row

EMBEDDER = BagOfWords()
SECRET = "look up the stock of the bag and tell me"


def test_grams_are_64_bit_blake2b_of_eight_words() -> None:
    prints = fingerprint([SECRET], EMBEDDER)
    expected = {
        int(hashlib.blake2b(gram, digest_size=8).hexdigest(), 16)
        for gram in (
            b"look up the stock of the bag and",
            b"up the stock of the bag and tell",
            b"the stock of the bag and tell me",
        )
    }
    assert prints.grams == expected
    assert prints.n == 8


def test_no_text_of_the_holdout_is_in_its_fingerprints() -> None:
    stored = fingerprint([SECRET], EMBEDDER).model_dump_json()
    assert "stock" not in stored


def test_eight_shared_words_are_a_copy_and_seven_are_not() -> None:
    prints = fingerprint([SECRET], EMBEDDER)
    assert copied(row("t", request="please LOOK up the stock, of the bag and go"), prints)
    assert not copied(row("t", request="please look up the stock of the bag or go"), prints)


def test_a_reworded_request_is_found_by_its_embedding() -> None:
    prints = fingerprint([SECRET], EMBEDDER)
    shuffled = row("t", request="tell me and the bag of stock the up look")
    assert overlap([shuffled], prints) == (False,)
    assert overlap([shuffled], prints, EMBEDDER, 0.95) == (True,)
    assert overlap([row("u", request="bake bread")], prints, EMBEDDER, 0.95) == (False,)


def test_no_holdout_means_no_overlap() -> None:
    assert fingerprint([], EMBEDDER) == Fingerprints()
    assert overlap([row("t")], Fingerprints(), EMBEDDER, 0.95) == (False,)
