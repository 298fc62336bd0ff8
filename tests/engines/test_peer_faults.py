"""Faults that cost others weeks, injected into the embedded engine; those of loading are in test_attest too."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file

from loop.core.base import Base
from loop.core.episode import Episode, Split
from loop.core.errors import AttestationFailed
from loop.core.pair import Adapter, Pair
from loop.engines.transformers import TransformersEngine
from loop.engines.weights import load_base, serve
from loop.pipeline.rollouts import PlayJob, play
from loop.store.blobs import FsBlobs
from tests import fakes
from tests.engines.test_transformers import token_logprobs
from tests.engines.tiny import answers, reference_model, request, save_adapter

ENGINE = TransformersEngine(dtype="float32", threads=1)
WEIGHTS = "adapter_model.safetensors"


def revisions(base: Base, blobs: FsBlobs, folder: Path) -> list[Adapter]:
    """Two revisions of one specialist, under one label."""
    first = save_adapter(base, blobs, folder / "first", spread=0.2, seed=1)
    return [first, save_adapter(base, blobs, folder / "second", spread=0.2, seed=2, parent=first.digest)]


def test_1_weights_that_are_the_bare_base_s_are_not_served(base: Base, blobs: FsBlobs, tmp_path: Path) -> None:
    """verl#7495: the sync shipped the frozen base alone, and it looked like staleness."""

    def bare(folder: Path) -> None:
        tensors = load_file(str(folder / WEIGHTS))
        save_file({key: t * 0 if "lora_B" in key else t for key, t in tensors.items()}, str(folder / WEIGHTS))

    adapter = save_adapter(base, blobs, tmp_path, spread=0.2, edit=bare)
    with pytest.raises(AttestationFailed, match="from the trainer's"):
        answers(ENGINE, base, blobs, [request("two?", adapter=adapter)])


def test_2_each_turn_records_the_revision_that_the_plan_names_and_its_words_are_that_revision_s(
    base: Base, blobs: FsBlobs, tmp_path: Path
) -> None:
    """ART#661, #651: rollouts stayed on the first adapter."""
    made = revisions(base, blobs, tmp_path)
    prompt = fakes.harness().prompt("L0").revise(label="L1")
    rules = fakes.harness()
    rules = rules.revise(prompts=(*rules.prompts, prompt), routing=rules.routing.revise(labels=("L0", "L1")))
    pairs = tuple(Pair(base=base, adapters=(adapter,), harness=rules) for adapter in made)
    environment = fakes.TwoTurns(answered_by="L1")
    for pair, adapter in zip((*pairs, pairs[0]), (*made, made[0]), strict=True):
        job = PlayJob(
            engine=ENGINE,
            blobs=blobs,
            environments=(environment,),
            contract=fakes.contract(),
            pairs=(pair,),
            tasks=environment.tasks(fakes.contract(), Split.TRAIN, 2, 5, (1,)),
            samples=1,
            temperature=1.0,
            seed=1,
        )
        model = PeftModel.from_pretrained(reference_model(base, blobs), str(blobs.get_tree(adapter.blob))).eval()
        for episode in play(job).episodes:
            _check_turns(episode, adapter, model)


def _check_turns(episode: Episode, adapter: Adapter, model: torch.nn.Module) -> None:
    replies = [turn for turn in episode.turns if turn.role == "assistant"]
    assert len(replies) == 2 and [hop.adapter for hop in episode.hops] == [adapter.digest] * 2
    for turn in replies:
        assert turn.adapter == adapter.digest
        assert turn.logprobs == pytest.approx(token_logprobs(model, turn.prompt_ids, turn.token_ids), abs=1e-3)


def test_3_a_new_revision_meets_nothing_that_the_old_one_computed(base: Base, blobs: FsBlobs, tmp_path: Path) -> None:
    """vllm#42125, #30931: loaded again under the same name it hit the old prefix cache."""
    first, second = revisions(base, blobs, tmp_path)
    assert first.label == second.label
    order = (first, second, first)
    found = [answers(ENGINE, base, blobs, [request("two?", adapter=adapter)])[0][0] for adapter in order]
    assert found[0] == found[2] and found[0].logprobs != found[1].logprobs
    for completion, adapter in zip(found, order, strict=True):
        model = PeftModel.from_pretrained(reference_model(base, blobs), str(blobs.get_tree(adapter.blob))).eval()
        expected = token_logprobs(model, completion.prompt_ids, completion.token_ids)
        assert completion.logprobs == pytest.approx(expected, abs=1e-3)


def test_16_the_resident_base_keeps_every_bit_while_adapters_come_and_go(
    base: Base, blobs: FsBlobs, tmp_path: Path
) -> None:
    """trl#6688: merging into it and out of it again drifts in bfloat16."""
    loaded = load_base(base, blobs, torch.bfloat16)
    before = {name: tensor.clone() for name, tensor in loaded.model.state_dict().items()}
    for adapter in (*revisions(base, blobs, tmp_path), *revisions(base, blobs, tmp_path / "again")):
        serve(loaded, base, blobs, adapter, copies=1)
        assert list(loaded.copies) == [adapter.digest]
    assert all(torch.equal(tensor, before[name]) for name, tensor in loaded.model.state_dict().items())


def test_17_keys_that_bind_to_nothing_are_named(base: Base, blobs: FsBlobs, tmp_path: Path) -> None:
    """peft#1678, #2115: a random adapter and a warning."""

    def renamed(folder: Path) -> None:
        tensors = load_file(str(folder / WEIGHTS))
        save_file({key.replace("self_attn", "attention"): t for key, t in tensors.items()}, str(folder / WEIGHTS))

    adapter = save_adapter(base, blobs, tmp_path, spread=0.2, edit=renamed)
    with pytest.raises(AttestationFailed, match=r"keys do not match: .*attention.* bind to nothing"):
        answers(ENGINE, base, blobs, [request("two?", adapter=adapter)])
