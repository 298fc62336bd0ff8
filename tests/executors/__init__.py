"""Tests of loop.executors."""
