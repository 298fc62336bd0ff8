"""A training does what was planned, once, and leaves the base alone, also across kill -9."""

from __future__ import annotations

import logging
import multiprocessing
import pickle
import random
import signal
import time
from collections import Counter
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from loop.core.base import Base
from loop.core.errors import UserError
from loop.core.pair import Adapter
from loop.core.training_set import TrainingProfile, TrainingSet
from loop.ports import Trained
from loop.store.blobs import FsBlobs
from loop.trainers.batches import plan_batches, row_id
from loop.trainers.checkpoints import checkpoint_path
from tests.trainers.tiny import PROFILE, TRAINER, tiny_base, tiny_job, tiny_rows, train_tiny, write_training

ROWS = TrainingSet(label="L1", rows=tiny_rows())


@pytest.fixture
def blobs(tmp_path: Path) -> FsBlobs:
    return FsBlobs(url=str(tmp_path / "blobs"))


@pytest.fixture
def base(blobs: FsBlobs, tmp_path: Path) -> Base:
    return tiny_base(blobs, tmp_path / "base")


@pytest.fixture
def parent(base: Base, blobs: FsBlobs) -> Adapter:
    return TRAINER.fresh(base, blobs, "L1", "tools", 3, PROFILE)


def test_the_report_is_that_of_the_plan(tmp_path: Path) -> None:
    trained = train_tiny(tmp_path, tmp_path / "scratch")
    planned = [row_id(ROWS.rows[index]) for batch in plan_batches(ROWS.rows, PROFILE, 5) for index in batch]
    assert list(trained.rows_trained) == planned
    assert trained.steps_done == trained.steps_planned == len(trained.curve.losses) == 10
    lengths = {row_id(row): (len(row.prompt_ids), len(row.response_ids)) for row in ROWS.rows}
    assert trained.response_tokens == sum(lengths[name][1] for name in planned)
    assert trained.trained_tokens == sum(sum(lengths[name]) for name in planned) == trained.budget.trained_tokens
    assert trained.peak_bytes > 0
    assert trained.tokens_per_second > 0
    assert trained.adapter.licence == "Apache-2.0 AND MIT"


def test_rows_seen_again_are_learnt(tmp_path: Path) -> None:
    losses = train_tiny(tmp_path, tmp_path / "s", PROFILE.revise(steps=120)).curve.losses
    assert losses[-1] < losses[0] / 2


def test_the_base_is_the_same_afterwards(base: Base, blobs: FsBlobs, parent: Adapter, tmp_path: Path) -> None:
    TRAINER.train(tiny_job(base, parent, ROWS), parent, base, blobs, tmp_path / "s", ROWS)
    again = FsBlobs(url=str(tmp_path / "copy"))
    assert again.put_tree(blobs.get_tree(base.weights_digest)) == base.weights_digest


def test_the_recipe_is_adamw_after_clipping(base: Base, blobs: FsBlobs, parent: Adapter, tmp_path: Path) -> None:
    """By hand: from B = 0 only B has a gradient g, and AdamW's first step is -rate g / (|g| + eps),

    so the values of B move by the rate, whatever the factor of the clipping, and A stays.
    """
    profile = PROFILE.revise(steps=1, warmup_ratio=0.0, learning_rate=1e-3, clip_norm=1e-3)
    start = TRAINER.fresh(base, blobs, "L1", "tools", 3, profile)
    trained = TRAINER.train(tiny_job(base, start, ROWS, profile), start, base, blobs, tmp_path / "s", ROWS)
    before = load_file(blobs.get_tree(start.blob) / "adapter_model.safetensors")
    after = load_file(blobs.get_tree(trained.adapter.blob) / "adapter_model.safetensors")
    assert trained.curve.grad_norms[0] > profile.clip_norm
    for key in before:
        moved = (after[key] - before[key]).abs()
        assert float(moved.max()) == (0.0 if "lora_A" in key else pytest.approx(1e-3, rel=1e-2))


def test_gradients_are_clipped_to_the_profiles_norm(tmp_path: Path) -> None:
    """A norm far below AdamW's eps of 1e-8 leaves a step of almost nothing: rate x norm / eps at most."""
    largest = []
    for name, norm in (("tight", 1e-12), ("loose", 1.0)):
        home = tmp_path / name
        trained = train_tiny(home, home / "scratch", PROFILE.revise(steps=3, clip_norm=norm))
        file = FsBlobs(url=str(home / "blobs")).get_tree(trained.adapter.blob) / "adapter_model.safetensors"
        largest.append(max(float(value.abs().max()) for key, value in load_file(file).items() if "lora_B" in key))
    assert largest[0] <= 3 * 1e-2 * 1e-12 / 1e-8
    assert largest[1] > 1e-3


def test_a_row_counts_by_its_weight(base: Base, blobs: FsBlobs, parent: Adapter, tmp_path: Path) -> None:
    heavy = TrainingSet(
        label="L1", rows=tuple(row.revise(weight=1.0 + 9.0 * (i == 0)) for i, row in enumerate(tiny_rows()))
    )
    plain = TrainingSet(label="L1", rows=tuple(row.revise(weight=1.0) for row in tiny_rows()))
    found = [
        TRAINER.train(tiny_job(base, parent, rows), parent, base, blobs, tmp_path / rows.short, rows).curve
        for rows in (heavy, plain)
    ]
    assert found[0].losses != found[1].losses


def test_a_training_killed_at_any_moment_ends_with_the_same_bits_and_curve(tmp_path: Path) -> None:
    """kill -9 again and again; each resume takes up the stored step, none is repeated or left out."""
    profile = PROFILE.revise(steps=60, checkpoint_steps=3, dropout=0.1)
    expected = train_tiny(tmp_path / "whole", tmp_path / "whole" / "scratch", profile)
    home, scratch = tmp_path / "killed", tmp_path / "killed" / "scratch"
    draw, kills, report = random.Random(0), 0, tmp_path / "report.json"
    for _ in range(5):
        process = _start(home, scratch, profile, report)
        if _new_checkpoint(scratch, process):
            time.sleep(draw.uniform(0.0, 0.03))
            process.kill()
        process.join()
        kills += process.exitcode == -signal.SIGKILL
    final = _start(home, scratch, profile, report)
    final.join()
    assert final.exitcode == 0
    resumed = Trained.model_validate_json(report.read_text())
    assert kills >= 1
    assert resumed.curve == expected.curve
    assert resumed.adapter == expected.adapter
    assert Counter(resumed.rows_trained) == Counter(expected.rows_trained)
    assert resumed.digest == expected.digest


@pytest.mark.parametrize("damage", ["torn", "foreign", "empty"])
def test_a_checkpoint_that_is_torn_or_not_this_jobs_is_ignored_with_a_warning(
    damage: str, base: Base, blobs: FsBlobs, parent: Adapter, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job, scratch = tiny_job(base, parent, ROWS), tmp_path / "scratch"
    expected = TRAINER.train(job, parent, base, blobs, scratch, ROWS)
    path = checkpoint_path(scratch, job.digest)
    if damage == "foreign":
        other = job.revise(seed=6)
        TRAINER.train(other, parent, base, blobs, scratch, ROWS)
        checkpoint_path(scratch, other.digest).replace(path)
    else:
        path.write_bytes(path.read_bytes()[: 5000 if damage == "torn" else 0])
    with caplog.at_level(logging.WARNING):
        assert TRAINER.train(job, parent, base, blobs, scratch, ROWS).digest == expected.digest
    assert "ignored, the training starts again" in caplog.text


def test_a_finished_checkpoint_trains_nothing_more_and_reports_the_same(
    base: Base, blobs: FsBlobs, parent: Adapter, tmp_path: Path
) -> None:
    job = tiny_job(base, parent, ROWS)
    first = TRAINER.train(job, parent, base, blobs, tmp_path / "s", ROWS)
    assert TRAINER.train(job, parent, base, blobs, tmp_path / "s", ROWS).digest == first.digest


def test_the_next_generation_goes_on_from_its_parents_weights(
    base: Base, blobs: FsBlobs, parent: Adapter, tmp_path: Path
) -> None:
    child = TRAINER.train(tiny_job(base, parent, ROWS), parent, base, blobs, tmp_path / "1", ROWS)
    grandchild = TRAINER.train(tiny_job(base, child.adapter, ROWS), child.adapter, base, blobs, tmp_path / "2", ROWS)
    assert grandchild.curve.losses[0] < child.curve.losses[0] - 0.3
    assert grandchild.adapter.parent == child.adapter.digest


@pytest.mark.parametrize("name", ["base", "parent", "training_set", "label"])
def test_parts_that_are_not_the_jobs_are_refused(
    name: str, base: Base, blobs: FsBlobs, parent: Adapter, tmp_path: Path
) -> None:
    job = tiny_job(base, parent, ROWS).revise(**{name: "x"})
    with pytest.raises(ValueError, match=name.replace("_", " ")):
        TRAINER.train(job, parent, base, blobs, tmp_path / "s", ROWS)


def test_another_shape_than_the_parents_is_a_user_error(
    base: Base, blobs: FsBlobs, parent: Adapter, tmp_path: Path
) -> None:
    job = tiny_job(base, parent, ROWS, PROFILE.revise(rank=8))
    with pytest.raises(UserError, match="has rank 4, alpha 8"):
        TRAINER.train(job, parent, base, blobs, tmp_path / "s", ROWS)


def test_a_row_longer_than_the_context_is_refused(base: Base, blobs: FsBlobs, parent: Adapter, tmp_path: Path) -> None:
    long = TrainingSet(label="L1", rows=(tiny_rows(1)[0].revise(prompt_ids=(5,) * 256),))
    with pytest.raises(ValueError, match="1 rows are longer than 256 tokens, first episode0:0"):
        TRAINER.train(tiny_job(base, parent, long), parent, base, blobs, tmp_path / "s", long)


def test_the_callers_threads_and_random_state_are_given_back(tmp_path: Path) -> None:
    threads = torch.get_num_threads()
    torch.manual_seed(7)
    expected = torch.get_rng_state()
    train_tiny(tmp_path, tmp_path / "s")
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), expected)


def test_the_plug_in_pickles() -> None:
    assert pickle.loads(pickle.dumps(TRAINER)) == TRAINER


def _start(home: Path, scratch: Path, profile: TrainingProfile, report: Path) -> BaseProcess:
    """A training in a process of its own; the server it is forked from has torch imported already."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.trainers.tiny"])
    process = context.Process(target=write_training, args=(home, scratch, profile, report), daemon=True)
    process.start()
    return process


def _new_checkpoint(scratch: Path, process: BaseProcess) -> bool:
    """Wait until the running process has stored a checkpoint of its own; False when it ended first."""
    before = _stored(scratch)
    while process.is_alive():
        if _stored(scratch) != before:
            return True
        time.sleep(0.002)
    return False


def _stored(scratch: Path) -> tuple[int, ...]:
    return tuple(file.stat().st_ino for file in scratch.glob("*.checkpoint"))
