"""What a generation is for within a user's turn."""

from __future__ import annotations

from enum import StrEnum


class Hop(StrEnum):
    """Route, answer, summary; only the answer is shown to the user."""

    ROUTE = "route"
    ANSWER = "answer"
    SUMMARY = "summary"
