"""What a caller may choose of how an answer is drawn; what it leaves open stays as the harness has it."""

from __future__ import annotations

from pydantic import Field

from loop.core.noun import Noun
from loop.core.pair import Sampling

FRESH_AT = 0.7


class Drawing(Noun):
    """A caller's own choices; None keeps the specialist's. ``lap`` counts tries from 0, each drawn anew."""

    temperature: float | None = Field(default=None, ge=0)
    top_p: float | None = Field(default=None, gt=0, le=1)
    max_tokens: int | None = Field(default=None, gt=0)
    stop: tuple[str, ...] | None = None
    seed: int | None = None
    lap: int = Field(default=0, ge=0)

    def over(self, sampling: Sampling) -> Sampling:
        """The specialist's sampling with these choices; a later try is never greedy."""
        chosen = self.model_dump(include=set(Sampling.model_fields), exclude_none=True)
        made = sampling.revise(**chosen)
        return made.revise(temperature=max(made.temperature, FRESH_AT)) if self.lap else made

    @property
    def luck(self) -> tuple[object, ...]:
        """What the seed of a request depends on besides its messages; nothing where nothing was chosen."""
        return (() if self.seed is None else ("seed", self.seed)) + (("lap", self.lap) if self.lap else ())


AS_IT_STANDS = Drawing()
