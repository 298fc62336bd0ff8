"""Tests of the store, on SQLite and on a real PostgreSQL server."""
