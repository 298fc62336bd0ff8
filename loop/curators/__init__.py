"""Curators: what to learn from, of all that was experienced and scored."""
