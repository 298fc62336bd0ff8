"""A tiny random Llama, rows for it, and one training of it: small enough for a test's second."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from loop.core.base import Base
from loop.core.episode import Split
from loop.core.pair import Adapter
from loop.core.training_set import Row, TrainingJob, TrainingProfile, TrainingSet
from loop.ports import Trained
from loop.store.blobs import FsBlobs
from loop.trainers.lora import LoraTrainer

TRAINER = LoraTrainer(device="cpu")
PROFILE = TrainingProfile(
    name="tiny",
    rank=4,
    alpha=8,
    targets=("q_proj", "v_proj", "down_proj"),
    learning_rate=1e-2,
    batch_rows=3,
    steps=10,
    checkpoint_steps=2,
    threads=1,
    dtype="float32",
)
VOCABULARY = 512


def tiny_config() -> LlamaConfig:
    """Two layers, hidden 64, grouped-query attention, like the embedded base but small."""
    return LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        initializer_range=0.1,
    )


def tiny_model(dtype: torch.dtype = torch.float32) -> Any:
    """The same random model each time."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return LlamaForCausalLM(tiny_config()).to(dtype)


def tiny_base(blobs: FsBlobs, folder: Path) -> Base:
    """The tiny model as a stored base."""
    tiny_model().save_pretrained(folder)
    return Base(
        id="tiny-llama",
        family="llama",
        weights_digest=blobs.put_tree(folder),
        context_length=256,
        parameters=1,
        licence="MIT",
    )


def tiny_rows(count: int = 14, seed: int = 0) -> tuple[Row, ...]:
    """Rows with a common prompt start of 10 tokens and tails and responses of many lengths."""
    draw = random.Random(seed)
    start = tuple(draw.randrange(3, VOCABULARY) for _ in range(10))
    return tuple(
        Row(
            episode=f"episode{index}",
            task=f"task{index}",
            split=Split.TRAIN,
            environment="tools",
            case="calendar",
            level=1,
            turn=0,
            generation=0,
            licence="Apache-2.0",
            weight=1.0 + (index % 3),
            score=100.0,
            prompt_ids=start + tuple(draw.randrange(3, VOCABULARY) for _ in range(draw.randint(1, 7))),
            response_ids=tuple(draw.randrange(3, VOCABULARY) for _ in range(draw.randint(1, 9))),
            text="",
        )
        for index in range(count)
    )


def tiny_job(base: Base, parent: Adapter, rows: TrainingSet, profile: TrainingProfile = PROFILE) -> TrainingJob:
    """The job that trains the parent on the rows."""
    return TrainingJob(
        label="L1",
        role="tools",
        base=base.digest,
        parent=parent.digest,
        training_set=rows.digest,
        profile=profile,
        seed=5,
        licence=base.licence,
    )


def train_tiny(home: Path, scratch: Path, profile: TrainingProfile = PROFILE) -> Trained:
    """Base, fresh adapter and training under ``home``: the same each time."""
    blobs = FsBlobs(url=str(home / "blobs"))
    base = tiny_base(blobs, home / "base")
    parent = TRAINER.fresh(base, blobs, "L1", "tools", 3, profile)
    rows = TrainingSet(label="L1", rows=tiny_rows())
    return TRAINER.train(tiny_job(base, parent, rows, profile), parent, base, blobs, scratch, rows)


def write_training(home: Path, scratch: Path, profile: TrainingProfile, report: Path) -> None:
    """Train in a process of its own and leave the report as JSON."""
    report.write_text(train_tiny(home, scratch, profile).model_dump_json())
