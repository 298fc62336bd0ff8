"""Serving what a policy record names, also after it moved: no request fails for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from loop.core.episode import Request
from loop.core.errors import LoopError
from loop.core.generation import Generation
from loop.core.pair import Message, Pair, Prompt
from loop.serve.turns import Turns

log = logging.getLogger(__name__)


@dataclass(eq=False)
class Champion:
    """The generation that ``turns`` serves; follows ``named``, which reads the policy record.

    A generation that is newly named is attested and warmed before it is served. Turns that began
    with the old one end with it. One that cannot be served is left alone, ``refused`` says why, and
    the old one goes on. A rollback is such a move too.
    """

    turns: Turns
    serving: Generation
    named: Callable[[], Generation | None]
    refused: str = ""
    _tried: str = ""

    async def follow(self, seconds: float = 5.0) -> None:
        """Look at the record again and again, so many seconds apart, until cancelled."""
        while True:
            await asyncio.sleep(seconds)
            try:
                await self.look()
            except Exception:
                log.exception("the policy record could not be read; serving generation %d goes on", self.serving.number)

    async def look(self) -> bool:
        """Serve what the record names now; whether that is another generation than before."""
        found = await asyncio.to_thread(self.named)
        if found is None or found.digest in (self.serving.digest, self._tried):
            return False
        try:
            await self.prepare(found.pair)
        except LoopError as error:
            self._tried, self.refused = found.digest, f"generation {found.number} is not served: {error}"
            log.error("%s", self.refused)
            return False
        self.turns.pair, self.serving = found.pair, found
        self._tried = self.refused = ""
        return True

    async def prepare(self, pair: Pair) -> None:
        """Attest each adapter and answer with it once, so that nobody waits for what is loaded first."""
        hub = self.turns.hub
        if pair.base != hub.base:
            raise LoopError("it has another base; start the server again to serve it")
        await asyncio.gather(*(asyncio.wrap_future(hub.attest(adapter)) for adapter in pair.adapters))
        asked = [hub.ask(_first(pair, prompt)) for prompt in pair.harness.prompts]
        await asyncio.gather(*map(asyncio.wrap_future, asked))


def _first(pair: Pair, prompt: Prompt) -> Request:
    """One token after a specialist's own beginning."""
    return Request(
        messages=(*prompt.messages(), Message(role="user", content="Hello")),
        adapter=pair.adapter(prompt.label),
        sampling=prompt.sampling.revise(max_tokens=1),
        seed=0,
    )
