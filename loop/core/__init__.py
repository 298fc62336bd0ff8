"""Frozen nouns and pure functions; this package imports nothing of ours and only pydantic."""
