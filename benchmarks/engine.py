"""The engine against ``transformers.generate``: tokens a second at 8 samples a prompt, and the noise floor.

Both sample the same prompts at the same temperature, the same number of tokens each (no
reply may end early), in one process with the same threads and type. ``generate`` gets all
prompts as one padded batch with ``num_return_sequences``. Loading is not counted.

    python -m benchmarks.engine --help
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM
from transformers.utils import logging

from loop.core.base import Base
from loop.core.episode import Completion, Request
from loop.core.pair import Adapter, Message, Sampling
from loop.core.training_set import TrainingProfile
from loop.engines.noise import noise_floor
from loop.engines.prepare import prepare_base
from loop.engines.transformers import TransformersEngine
from loop.engines.weights import load_base
from loop.settings import Settings
from loop.store.blobs import FsBlobs
from loop.trainers.lora import LoraTrainer

BAR = 2.5
SAMPLES = 8
TEMPERATURE = 0.9
SYSTEM = (
    'You turn a request into one JSON tool call {"tool": name, "args": {...}} and say nothing else. '
    "Tools: add_event(title, day, hour), find_contact(name), cancel_order(id), convert(value, from, to)."
)
SHOTS = (
    (
        "Put lunch with Ana on Monday at 12.",
        '{"tool": "add_event", "args": {"title": "lunch", "day": "Mon", "hour": 12}}',
    ),
    ("What is Omar's number?", '{"tool": "find_contact", "args": {"name": "Omar"}}'),
    ("How many km are 5 miles?", '{"tool": "convert", "args": {"value": 5, "from": "mi", "to": "km"}}'),
)
ADAPTER = TrainingProfile(
    name="benchmark",
    rank=16,
    alpha=32,
    targets=("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
    learning_rate=1e-4,
    batch_rows=4,
)
TASKS = (
    "Cancel order 4471, please.",
    "Add a dentist visit on Friday at 9.",
    "I need the phone number of Priya.",
    "Convert 30 Celsius to Fahrenheit.",
    "Please book the gym for Sunday at 18.",
    "Stop order 90210 before it ships.",
)


class Timing(NamedTuple):
    """One row of the table: tokens a second of both, over the same generated tokens."""

    name: str
    generate: float
    engine: float

    @property
    def ratio(self) -> float:
        """How many times faster the engine is."""
        return self.engine / self.generate


def conversation(task: str) -> tuple[Message, ...]:
    """The system message, three exemplars, and the task."""
    shots = [m for q, a in SHOTS for m in (Message(role="user", content=q), Message(role="assistant", content=a))]
    return (Message(role="system", content=SYSTEM), *shots, Message(role="user", content=task))


def requests(adapter: Adapter | None, tokens: int, samples: int = SAMPLES) -> list[Request]:
    """Each task ``samples`` times, each with its own seed."""
    sampling = Sampling(temperature=TEMPERATURE, max_tokens=tokens)
    return [
        Request(messages=conversation(task), adapter=adapter, sampling=sampling, seed=1000 * place + sample)
        for place, task in enumerate(TASKS)
        for sample in range(samples)
    ]


def time_engine(engine: TransformersEngine, base: Base, blobs: FsBlobs, asked: Sequence[Request]) -> float:
    """Tokens a second of one call."""
    counted = [0]

    def count(_: int, completion: Completion) -> Sequence[tuple[int, Request]]:
        counted[0] += len(completion.token_ids)
        return ()

    started = time.perf_counter()
    engine.generate(base, blobs, list(enumerate(asked)), count)
    seconds = time.perf_counter() - started
    assert counted[0] == sum(request.sampling.max_tokens for request in asked), "no reply may end early"
    return counted[0] / seconds


def time_generate(model: Any, prompts: Sequence[tuple[int, ...]], tokens: int) -> float:
    """Tokens a second of ``generate`` over one left-padded batch."""
    longest = max(map(len, prompts))
    ids = torch.tensor([[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts])
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    started = time.perf_counter()
    with torch.inference_mode():
        found = model.generate(
            input_ids=ids,
            attention_mask=mask,
            do_sample=True,
            temperature=TEMPERATURE,
            top_k=0,
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            num_return_sequences=SAMPLES,
        )
    seconds = time.perf_counter() - started
    return int(found.shape[0] * (found.shape[1] - longest)) / seconds


def compare(engine: TransformersEngine, base: Base, blobs: FsBlobs, adapter: Adapter | None, options: Any) -> Timing:
    """The medians of ``repeats`` runs of each, taken in turn after a warm-up on other prompts."""
    dtype = getattr(torch, engine.dtype)
    model = AutoModelForCausalLM.from_pretrained(str(blobs.get_tree(base.weights_digest)), dtype=dtype).eval()
    if adapter is not None:
        model = PeftModel.from_pretrained(model, str(blobs.get_tree(adapter.blob))).eval()
    # Nothing ends a reply here, so that lengths are equal (generate is told by min_new_tokens).
    loaded = load_base(base, blobs, dtype)
    loaded.tokens = replace(loaded.tokens, ends=frozenset())
    asked = requests(adapter, options.tokens)
    prompts = [engine.render(base, blobs, conversation(task)) for task in TASKS]
    hello = Request(
        messages=(Message(role="user", content="Hello"),), adapter=adapter, sampling=Sampling(max_tokens=2), seed=0
    )
    time_engine(engine, base, blobs, [hello])
    time_generate(model, prompts[:1], 2)
    runs: dict[str, list[float]] = {"generate": [], "engine": []}
    calls: dict[str, Callable[[], float]] = {
        "generate": lambda: time_generate(model, prompts, options.tokens),
        "engine": lambda: time_engine(engine, base, blobs, asked),
    }
    for _ in range(options.repeats):
        for name, call in calls.items():
            loaded.served.prefixes.clear()
            runs[name].append(call())
    name = f"{engine.dtype}, {'adapter' if adapter else 'base'}"
    return Timing(name, statistics.median(runs["generate"]), statistics.median(runs["engine"]))


def main() -> int:
    """Print the table and return 1 when the bar is missed in bfloat16 without an adapter."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, default=Settings().home, help="where the base model is kept")
    parser.add_argument("--tokens", type=int, default=48, help="tokens of each reply")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dtypes", nargs="+", default=["bfloat16", "float32"])
    parser.add_argument("--noise", type=int, default=2, help="samples a task for the noise floor; 0 leaves it out")
    options = parser.parse_args()
    logging.disable_progress_bar()
    torch.set_num_threads(options.threads)
    settings = Settings()
    blobs = FsBlobs(url=str((options.home / "blobs").absolute()))
    base = prepare_base(settings.base, blobs, settings.base_sha256, options.home)
    adapter = LoraTrainer().fresh(base, blobs, "L1", "tools", 1, ADAPTER)
    print(f"{base.id}: {len(TASKS)} prompts x {SAMPLES} samples x {options.tokens} tokens, {options.threads} threads")
    print(f"{'':24}{'generate':>12}{'engine':>12}{'ratio':>8}")
    timings = []
    for dtype in options.dtypes:
        engine = TransformersEngine(dtype=dtype, threads=options.threads)
        for chosen in (None, adapter):
            timing = compare(engine, base, blobs, chosen, options)
            timings.append(timing)
            print(f"{timing.name:24}{timing.generate:8.1f} t/s{timing.engine:8.1f} t/s{timing.ratio:8.2f}", flush=True)
        if options.noise:
            floor = noise_floor(engine, base, blobs, requests(None, options.tokens, options.noise))
            print(
                f"{dtype + ', noise floor':24}largest |log-probability difference| {floor.logprob:.2g} nats, "
                f"changed tokens {floor.changed_tokens:.2%} of {floor.tokens}",
                flush=True,
            )
    missed = timings[0].ratio < BAR
    print(f"bar: {BAR} x in {timings[0].name}: {'missed' if missed else 'met'}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
