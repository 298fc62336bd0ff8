"""The Mixture-of-LoRA runtime: who answers a turn."""
