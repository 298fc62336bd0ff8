"""Tests of loop.tracking."""
