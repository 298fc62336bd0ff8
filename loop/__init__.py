"""macaron-loop: grow a generation of LoRA specialists and a harness, and prove the gain."""

__version__ = "0.1.0"
