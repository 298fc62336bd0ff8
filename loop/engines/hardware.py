"""What this machine computes with, as far as it can move a model's answers."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from pathlib import Path

import torch

from loop.core.manifest import Hardware

# Variables by which torch, oneDNN, MKL and CUDA choose kernels; none holds a path or a name.
SWITCHES = (
    "ATEN_CPU_CAPABILITY", "CUBLAS_WORKSPACE_CONFIG", "DNNL_MAX_CPU_ISA", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS",
    "NVIDIA_TF32_OVERRIDE", "ONEDNN_DEFAULT_FPMATH_MODE", "ONEDNN_MAX_CPU_ISA", "OMP_NUM_THREADS",
)  # fmt: skip


def hardware() -> Hardware:
    """The processor with the features torch uses, its cores, the GPUs, and how kernels are chosen."""
    capabilities = torch.cpu.get_capabilities()
    return Hardware(
        cpu=_processor(),
        features=tuple(sorted(name for name, present in capabilities.items() if present is True)),
        cores=os.cpu_count() or 1,
        gpus=tuple(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())),
        kernels=torch.backends.cpu.get_cpu_capability(),
        switches={name: os.environ[name] for name in SWITCHES if name in os.environ},
    )


def _processor() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
