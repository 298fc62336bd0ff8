"""The LoRA trainer: a frozen base, PEFT modules, float32 master weights, resumable to the bit."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from loop.core.base import Base
from loop.core.budget import Budget
from loop.core.errors import UserError
from loop.core.noun import Noun
from loop.core.pair import Adapter
from loop.core.training_set import Curve, Row, TrainingJob, TrainingProfile, TrainingSet
from loop.ports import Blobs, Trained
from loop.trainers.adapters import (
    Values,
    adapter_parameters,
    attach,
    bind,
    frozen_digest,
    load_model,
    read_values,
    redraw,
    store_adapter,
)
from loop.trainers.batches import plan_batches, row_id
from loop.trainers.checkpoints import TrainingState, load_checkpoint, save_checkpoint
from loop.trainers.forward import lay_out, require_replay, response_logits, shares_prefix
from loop.trainers.losses import sft_loss
from loop.trainers.schedule import learning_rate

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}


class LoraTrainer(Noun):
    """Supervised LoRA training on exact token ids; only response tokens are in the loss.

    ``device`` is a torch device, or ``auto``: the first CUDA device, else the CPU.
    """

    device: str = "auto"

    def fresh(
        self, base: Base, blobs: Blobs, label: str, role: str, job_seed: int, profile: TrainingProfile
    ) -> Adapter:
        """A fresh adapter: A drawn from ``job_seed``, B = 0, so that it answers as the base does.

        Raises UserError when the profile's targets are not in the base, TornBlob.
        """
        with _threads(profile.threads), _seeded(job_seed):
            peft_model = attach(load_model(base, blobs, torch.float32, torch.device("cpu")), profile)
            redraw(peft_model, job_seed)
            values = {key: parameter.detach().clone() for key, parameter in adapter_parameters(peft_model).items()}
            blob = store_adapter(base, blobs, profile, values, self._device())
        return _adapter(base, profile, values, blob, label=label, role=role, licence=base.licence, parent=None)

    def train(
        self, job: TrainingJob, parent: Adapter, base: Base, blobs: Blobs, scratch: Path, training_set: TrainingSet
    ) -> Trained:
        """Continue from ``parent`` on the training set, or from this job's checkpoint in ``scratch``.

        Raises ValueError when the parts are not the job's, when an adapter key does not
        bind or a row is longer than the context, RuntimeError when steps are missing or
        the base's weights moved, UserError for a profile that does not fit, TornBlob.
        """
        _check_parts(job, parent, base, training_set)
        started = time.monotonic()
        with _threads(job.profile.threads), _seeded(job.seed):
            lesson = _Lesson(job, training_set.rows, base, blobs, scratch, self._device())
            lesson.start(read_values(parent, blobs))
            lesson.run()
            state = lesson.finish()
            blob = store_adapter(base, blobs, job.profile, state.values, lesson.device)
        licence = _licence(parent.licence, job.licence, *(row.licence for row in training_set.rows))
        adapter = _adapter(
            base, job.profile, state.values, blob, label=job.label, role=job.role, licence=licence, parent=parent
        )
        return _report(adapter, lesson, state, time.monotonic() - started)

    def _device(self) -> torch.device:
        if self.device != "auto":
            return torch.device(self.device)
        return torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")


class _Lesson:
    """One training in progress: the model, the masters, the optimiser and the plan of batches."""

    def __init__(
        self, job: TrainingJob, rows: Sequence[Row], base: Base, blobs: Blobs, scratch: Path, device: torch.device
    ) -> None:
        self.job, self.rows, self.scratch, self.device = job, rows, scratch, device
        self.profile = job.profile
        self.batches = plan_batches(rows, job.profile, job.seed)
        dtype = compute_dtype(job.profile, device)
        self.setting = f"torch {torch.__version__}, {device.type}, {dtype}, {job.profile.threads} threads"
        self.model = attach(load_model(base, blobs, dtype, device), job.profile).train()
        self.causal: Any = self.model.get_base_model()
        if not job.profile.prompt_gradient:
            require_replay(self.causal, job.profile.name)
        self.share_prefix = shares_prefix(self.causal)
        self.base_before = frozen_digest(self.model)
        self.parameters = adapter_parameters(self.model)
        self.masters: Values = {}
        self.state: TrainingState

    def start(self, values: Values) -> None:
        """Take the parent's values, or those of this job's checkpoint."""
        bind(self.model, values)
        found = load_checkpoint(self.scratch, self.job.digest, self.setting)
        if found is not None:
            bind(self.model, found.values)
            values = found.values
        self.masters = {key: values[key].clone().to(self.device) for key in self.parameters}
        self.optimizer = torch.optim.AdamW(
            list(self.masters.values()), lr=0.0, weight_decay=self.profile.weight_decay, fused=True
        )
        if found is None:
            found = TrainingState(values={}, optimizer={}, random_state=torch.get_rng_state())
        else:
            self.optimizer.load_state_dict(found.optimizer)
            torch.set_rng_state(found.random_state)
        self.state = found

    def run(self) -> None:
        """The steps that are left, with a checkpoint every ``checkpoint_steps``."""
        for step in range(self.state.step, len(self.batches)):
            started = time.monotonic()
            self._step(step)
            self.state.seconds += time.monotonic() - started
            if self.state.step % self.profile.checkpoint_steps == 0 or self.state.step == len(self.batches):
                self._fill()
                save_checkpoint(self.scratch, self.job.digest, self.setting, self.state)

    def finish(self) -> TrainingState:
        """The final state; RuntimeError when steps are missing or the base's weights moved."""
        done, planned = len(self.state.losses), len(self.batches)
        if not done == self.state.step == planned:
            raise RuntimeError(f"training of {self.job.label} did {done} steps of {planned}")
        if frozen_digest(self.model) != self.base_before:
            raise RuntimeError(f"training of {self.job.label} changed the base's weights; the adapter is discarded")
        self._fill()
        return self.state

    def _step(self, step: int) -> None:
        rows = [self.rows[index] for index in self.batches[step]]
        batch = lay_out(rows, self.device, share_prefix=self.share_prefix)
        logits = response_logits(self.causal, batch, prompt_gradient=self.profile.prompt_gradient)
        loss = sft_loss(logits, batch.targets, batch.weights)
        loss.backward()  # type: ignore[no-untyped-call]
        for key, parameter in self.parameters.items():
            gradient = parameter.grad
            self.masters[key].grad = torch.zeros_like(self.masters[key]) if gradient is None else gradient.float()
            parameter.grad = None
        norm = torch.nn.utils.clip_grad_norm_(list(self.masters.values()), self.profile.clip_norm)
        if not bool(torch.isfinite(loss)) or not bool(torch.isfinite(norm)):
            raise RuntimeError(f"training of {self.job.label} diverged at step {step}: lower the learning rate")
        rate = learning_rate(self.profile, step, len(self.batches))
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        for key, parameter in self.parameters.items():
            parameter.data.copy_(self.masters[key])
        self.state.losses.append(float(loss.detach()))
        self.state.learning_rates.append(rate)
        self.state.grad_norms.append(float(norm))
        self.state.rows.extend(row_id(row) for row in rows)
        self.state.step = step + 1

    def _fill(self) -> None:
        self.state.values = {key: value.detach().cpu().clone() for key, value in self.masters.items()}
        self.state.optimizer = self.optimizer.state_dict()
        self.state.random_state = torch.get_rng_state()


def compute_dtype(profile: TrainingProfile, device: torch.device) -> torch.dtype:
    """The profile's dtype, or float32 for bfloat16 on a CPU that only emulates it; UserError."""
    if profile.dtype not in DTYPES:
        raise UserError(f"profile {profile.name}: dtype {profile.dtype!r} is not one of {', '.join(sorted(DTYPES))}.")
    if device.type == "cpu" and profile.dtype == "bfloat16" and not torch.cpu.get_capabilities().get("avx512_bf16"):
        return torch.float32
    return DTYPES[profile.dtype]


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Compute with ``count`` threads: sums depend on how they are split, so it is part of the recipe."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Draw dropout from ``seed`` and give the caller's random state back afterwards."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield


def _check_parts(job: TrainingJob, parent: Adapter, base: Base, training_set: TrainingSet) -> None:
    pairs = {
        "parent adapter": (job.parent, parent.digest),
        "base": (job.base, base.digest),
        "parent's base": (base.weights_digest, parent.base_digest),
        "training set": (job.training_set, training_set.digest),
        "label": (job.label, training_set.label),
    }
    for name, (expected, found) in pairs.items():
        if expected != found:
            raise ValueError(f"training of {job.label}: expected {name} {expected[:12]}, found {found[:12]}")
    shape = (parent.rank, parent.alpha, sorted(parent.targets))
    wanted = (job.profile.rank, job.profile.alpha, sorted(_all_targets(job.profile)))
    if shape != wanted:
        raise UserError(
            f"adapter {parent.label} ({parent.short}) has rank {parent.rank}, alpha {parent.alpha:g} and targets "
            f"{', '.join(parent.targets)}, but profile {job.profile.name} asks for another shape: a lineage keeps "
            "the profile shape it began with; use that profile or start another family."
        )
    long = [row for row in training_set.rows if len(row.prompt_ids) + len(row.response_ids) > base.context_length]
    if long:
        raise ValueError(f"{len(long)} rows are longer than {base.context_length} tokens, first {row_id(long[0])}")


def _adapter(
    base: Base,
    profile: TrainingProfile,
    values: Values,
    blob: str,
    *,
    label: str,
    role: str,
    licence: str,
    parent: Adapter | None,
) -> Adapter:
    return Adapter(
        label=label,
        role=role,
        owner=parent.owner if parent else "local",
        licence=licence,
        base_digest=base.weights_digest,
        rank=profile.rank,
        alpha=profile.alpha,
        dropout=profile.dropout,
        targets=_all_targets(profile),
        stored_values=sum(value.numel() for value in values.values()),
        blob=blob,
        parent=parent.digest if parent else None,
    )


def _all_targets(profile: TrainingProfile) -> tuple[str, ...]:
    return profile.targets + profile.expert_parameters


def _licence(*licences: str) -> str:
    """An SPDX conjunction of every source's licence; unknown when any source's is."""
    parts = sorted({part for licence in licences for part in licence.split(" AND ")})
    return "unknown" if "unknown" in parts else " AND ".join(parts)


def _report(adapter: Adapter, lesson: _Lesson, state: TrainingState, seconds: float) -> Trained:
    rows = [lesson.rows[index] for batch in lesson.batches for index in batch]
    response = sum(len(row.response_ids) for row in rows)
    total = response + sum(len(row.prompt_ids) for row in rows)
    return Trained(
        adapter=adapter,
        curve=Curve(
            losses=tuple(state.losses),
            learning_rates=tuple(state.learning_rates),
            grad_norms=tuple(state.grad_norms),
        ),
        steps_planned=len(lesson.batches),
        steps_done=state.step,
        trained_tokens=total,
        response_tokens=response,
        rows_trained=tuple(state.rows),
        budget=Budget(trained_tokens=total, wall_seconds=seconds, device_seconds=state.seconds),
        peak_bytes=_peak_bytes(lesson.device),
        tokens_per_second=total / state.seconds if state.seconds else 0.0,
    )


def _peak_bytes(device: torch.device) -> int:
    """The device's peak allocation, or the process's peak resident size on a CPU."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
