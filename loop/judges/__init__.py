"""Judges turn episodes into verdicts; ``rules`` needs no language model."""
