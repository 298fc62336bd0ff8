"""A turn that goes to another adapter: the engine's handoff against merging and reloading.

Each round asks two adapters in turn for one reply of a fixed prompt. ``same`` asks one adapter
again and again: what a reply takes without any handoff. ``handoff`` alternates on the engine,
whose copies are loaded. ``merge and reload`` is what a server with one model does instead: load
the base from its safetensors, merge the adapter, answer. Everything in one process, with the same
threads and type; the table shows medians of the seconds to a whole reply.

    python -m benchmarks.handoff --help
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from peft import PeftModel
from transformers.utils import logging

from benchmarks.engine import ADAPTER, TASKS, conversation
from loop.core.base import Base
from loop.core.episode import Completion, Request
from loop.core.pair import Adapter, Sampling
from loop.engines.prepare import prepare_base
from loop.engines.transformers import TransformersEngine, resolve_dtype
from loop.engines.weights import load_module
from loop.settings import Settings
from loop.store.blobs import FsBlobs
from loop.trainers.lora import LoraTrainer


def ask(engine: TransformersEngine, base: Base, blobs: FsBlobs, adapter: Adapter, tokens: int) -> float:
    """Seconds until the engine's reply is whole."""

    def nothing(_: int, __: Completion) -> Sequence[tuple[int, Request]]:
        return ()

    sampling = Sampling(temperature=0.0, max_tokens=tokens)
    request = Request(messages=conversation(TASKS[0]), adapter=adapter, sampling=sampling, seed=0)
    started = time.perf_counter()
    engine.generate(base, blobs, [(0, request)], nothing)
    return time.perf_counter() - started


def merge_and_reload(base: Base, blobs: FsBlobs, adapter: Adapter, prompt: Sequence[int], tokens: int) -> float:
    """Seconds to load the base, merge the adapter into it and answer with ``generate``."""
    started = time.perf_counter()
    model = load_module(blobs.get_tree(base.weights_digest), resolve_dtype("auto"))
    merged = PeftModel.from_pretrained(model, str(blobs.get_tree(adapter.blob))).merge_and_unload()  # type: ignore[arg-type, operator]
    ids = torch.tensor([prompt])
    with torch.inference_mode():
        merged.generate(input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=tokens)
    return time.perf_counter() - started


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, default=Settings().home, help="where the base model is kept")
    parser.add_argument("--tokens", type=int, default=16, help="most tokens of each reply")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    logging.disable_progress_bar()
    torch.set_num_threads(options.threads)
    settings = Settings()
    blobs = FsBlobs(url=str((options.home / "blobs").absolute()))
    base = prepare_base(settings.base, blobs, settings.base_sha256, options.home)
    adapters = [
        LoraTrainer().fresh(base, blobs, label, "answers", seed, ADAPTER) for seed, label in enumerate(("L1", "L2"))
    ]
    engine = TransformersEngine(threads=options.threads)
    prompt = engine.render(base, blobs, conversation(TASKS[0]))
    for adapter in adapters:
        ask(engine, base, blobs, adapter, options.tokens)
    calls: dict[str, Callable[[int], float]] = {
        "same": lambda _: ask(engine, base, blobs, adapters[0], options.tokens),
        "handoff": lambda turn: ask(engine, base, blobs, adapters[(turn + 1) % 2], options.tokens),
        "merge and reload": lambda turn: merge_and_reload(base, blobs, adapters[turn % 2], prompt, options.tokens),
    }
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(options.rounds):
        for name, call in calls.items():
            seconds[name].append(call(turn))
    handoff = statistics.median(seconds["handoff"])
    print(f"{base.id}: a prompt of {len(prompt)} tokens, {options.tokens} new, {options.threads} threads")
    print(f"{'':20}{'seconds':>10}{'of a handoff':>14}")
    for name, found in seconds.items():
        print(f"{name:20}{statistics.median(found):10.3f}{statistics.median(found) / handoff:14.2f}")


if __name__ == "__main__":
    main()
