"""Engines: models that answer requests, each behind the ``Engine`` port."""
