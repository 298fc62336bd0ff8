"""Trainers: one specialist's adapter revision from its training set."""
