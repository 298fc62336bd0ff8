"""The state of a training on disk, so that a killed run goes on exactly where it was."""

from __future__ import annotations

import hashlib
import io
import logging
import os
import pickle
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

log = logging.getLogger(__name__)

DIGEST_BYTES = 32


@dataclass
class TrainingState:
    """All that the next step depends on, and what has been seen so far.

    ``values`` are the float32 master weights under PEFT's keys; ``random_state`` is
    torch's generator (dropout); ``seconds`` is the time spent on the finished steps.
    """

    values: dict[str, Tensor]
    optimizer: dict[str, Any]
    random_state: Tensor
    step: int = 0
    seconds: float = 0.0
    losses: list[float] = field(default_factory=list)
    learning_rates: list[float] = field(default_factory=list)
    grad_norms: list[float] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)


def checkpoint_path(scratch: Path, job: str) -> Path:
    """Where the state of a job lies in its scratch folder."""
    return scratch / f"{job}.checkpoint"


def save_checkpoint(scratch: Path, job: str, setting: str, state: TrainingState) -> None:
    """Write the state durably: temporary name, fsync, rename, fsync of the folder.

    ``setting`` says what the arithmetic depends on beside the job (library version,
    device, dtype); a state of another setting cannot be continued bit for bit.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    payload = io.BytesIO()
    torch.save({"job": job, "setting": setting, "state": asdict(state)}, payload)
    body = payload.getvalue()
    target = checkpoint_path(scratch, job)
    temporary = target.with_suffix(".writing")
    with temporary.open("wb") as file:
        file.write(hashlib.sha256(body).digest())
        file.write(body)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, target)
    folder = os.open(scratch, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def load_checkpoint(scratch: Path, job: str, setting: str) -> TrainingState | None:
    """The state of this job under this setting, or None.

    A torn file, one of another job or of another setting is ignored with a warning.
    """
    path = checkpoint_path(scratch, job)
    if not path.is_file():
        return None
    stored = path.read_bytes()
    body = stored[DIGEST_BYTES:]
    if hashlib.sha256(body).digest() != stored[:DIGEST_BYTES]:
        log.warning("checkpoint %s is torn: ignored, the training starts again", path)
        return None
    try:
        fields = torch.load(io.BytesIO(body), weights_only=True)
        state = TrainingState(**fields["state"])
    except (pickle.UnpicklingError, RuntimeError, KeyError, TypeError) as error:
        log.warning("checkpoint %s cannot be read (%s): ignored, the training starts again", path, error)
        return None
    if (fields["job"], fields["setting"]) != (job, setting):
        log.warning("checkpoint %s is of another job or machine setting: ignored, the training starts again", path)
        return None
    return state
