"""Tests of the code's own shape: sizes, imports, data files."""
