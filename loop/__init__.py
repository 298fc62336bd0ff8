"""macaron-loop: grow a generation of LoRA specialists and a harness, and prove the gain."""

import os

__version__ = "0.1.0"

# OpenMP's threads spin at barriers by default; on a busy machine that made a training step
# ten times slower. It must be set before torch is first imported, hence here.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# The libraries' own bars would tear the table of stages.
os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
