"""Explorers: searches for the successor's harness."""
