"""Score figures that others published, kept with where they come from and how they were measured."""

from __future__ import annotations

from pydantic import Field

from loop.core.noun import Noun


class Figure(Noun):
    """One published value; only figures of one protocol may ever stand in one ranking."""

    system: str
    metric: str
    value: float
    unit: str = ""
    protocol: str = Field(min_length=1)
    note: str = ""


class Figures(Noun):
    """Figures of one source, as imported: name, source, the values, and when (ISO 8601, UTC)."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")
    source: str = Field(min_length=1)
    figures: tuple[Figure, ...] = Field(min_length=1)
    imported: str = ""
