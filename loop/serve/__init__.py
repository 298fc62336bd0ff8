"""Serving people: one runtime, one engine, many conversations at once."""
