"""The loop and the server read the same tokens: recorded conversations, said again to the server's turns.

Every recorded conversation of a collect stage is met twice without a model: once as the loop
plays it, once through the turns that people are served with, a conversation of its own in a
fresh store. What each asks of the engine is rendered to token ids; the replies are the recorded
ones, found by the ids of the prompt, so that a prompt that differs in one token finds none.

    macaron-loop run --generation 0
    python -m benchmarks.parity --home build/macaron --conversations 200
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlmodel import Session, col, select

from loop import plugins
from loop.app import open_contract, open_store
from loop.core.base import Base
from loop.core.conversation import Say
from loop.core.episode import Completion, Episode, EpisodeShard, Request
from loop.core.hop import Hop
from loop.core.pair import Pair
from loop.engines.transformers import TransformersEngine
from loop.mol.runtime import conversation
from loop.ports import Blobs, EngineReport, Environment, Follow
from loop.serve.hub import Hub
from loop.serve.turns import Turns
from loop.settings import Settings, load_settings
from loop.store.conversations import SqlConversations
from loop.store.database import reading
from loop.store.migrate import upgrade
from loop.store.sql import SqlStore
from loop.store.tables import StepRow

Prompt = tuple[int, ...]


@dataclass
class Recorded:
    """An engine that knows one conversation's replies by their prompts; ``asked`` is what it was asked."""

    replies: dict[Prompt, Completion]
    summary_prompt: str
    asked: Counter[Prompt] = field(default_factory=Counter)
    late: int = 0
    missed: int = 0
    text = TransformersEngine()

    def generate(
        self, base: Base, blobs: Blobs, requests: Sequence[tuple[int, Request]], follow: Follow, hear: Any = None
    ) -> EngineReport:
        """Answer by the record; a summary that the loop never needed is any text at all."""
        waiting = list(requests)
        while waiting:
            key, request = waiting.pop(0)
            prompt = self.text.render(base, blobs, request.messages)
            reply = self.replies.get(prompt)
            if reply is not None:
                self.asked[prompt] += 1
            else:
                is_summary = request.messages[-1].content == self.summary_prompt
                self.late += is_summary
                self.missed += not is_summary
                reply = Completion(text="-", prompt_ids=prompt, token_ids=(0,), logprobs=(0.0,), finish="stop")
            waiting.extend(follow(key, reply))
        return EngineReport()


def recorded(store: SqlStore, most: int) -> Iterator[tuple[Episode, Pair]]:
    """Conversations of the collect stages, those of several turns first, with the pair that met them."""
    pairs = {g.pair.digest: g.pair for family in store.families() for g in store.generations(family)}
    with reading(store.url) as session:
        names = _shards(session)
    found = [episode for name in names for episode in store.load(EpisodeShard, name).episodes]
    whole = [episode for episode in found if episode.failure is None and episode.pair in pairs]
    whole.sort(key=lambda episode: -len(episode.turns))
    yield from ((episode, pairs[episode.pair]) for episode in whole[:most])


def _shards(session: Session) -> Sequence[str]:
    query = select(StepRow.noun).where(StepRow.kind == "EpisodeShard", StepRow.stage == "collect")
    return session.exec(query.order_by(col(StepRow.key))).all()


def says(episode: Episode, pair: Pair, environment: Environment, contract: Any) -> list[Say]:
    """What was said to the agent, from the loop playing the episode again with its recorded replies."""
    said: list[Say] = []
    asking = conversation(pair.harness, environment.rollout(episode.task, pair.harness, contract), said.append)
    replies = [completion_of(turn) for turn in episode.turns if turn.role == "assistant"]
    next(asking)
    for number, reply in enumerate(replies, start=1):
        try:
            asking.send(reply)
        except StopIteration:
            assert number == len(replies), "the loop plays this episode otherwise than it was recorded"
    return said


def completion_of(turn: Any) -> Completion:
    """A recorded turn as the engine's completion."""
    return Completion(
        text=turn.content,
        prompt_ids=turn.prompt_ids,
        token_ids=turn.token_ids,
        logprobs=turn.logprobs,
        finish=turn.finish,
    )


async def serve(turns: Turns, owner: str, said: Sequence[Say]) -> None:
    """The conversation, turn by turn, each after the one before."""
    after = None
    for say in said:
        done = await turns.deliver(owner, say.messages, after=after, pin=say.label, tools=say.tools)
        await turns.settle()
        after = done.id


def compare(settings: Settings, most: int) -> tuple[Counter[str], int, int]:
    """Conversations by outcome, prompts compared, and summaries that only the server wrote."""
    store, contract = open_store(settings), open_contract(settings)
    environments = {spec.use: plugins.environment(spec) for spec in settings.environments}
    outcomes: Counter[str] = Counter()
    prompts = late = 0
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'parity.db'}"
        upgrade(url)
        for number, (episode, pair) in enumerate(recorded(store, most)):
            turns = [turn for turn in episode.turns if turn.role == "assistant"]
            engine = Recorded(
                {turn.prompt_ids: completion_of(turn) for turn in turns}, pair.harness.session.summary_prompt
            )
            hub = Hub(engine, pair.base, store.blobs)  # type: ignore[arg-type]
            said = says(episode, pair, environments[episode.task.environment], contract)
            asyncio.run(serve(Turns(pair, hub, SqlConversations(url)), f"owner{number}", said))
            hub.close()
            same = engine.missed == 0 and engine.asked == Counter(turn.prompt_ids for turn in turns)
            hops = {turn.hop for turn in turns}
            kind = f"{episode.task.environment}{', routed' if Hop.ROUTE in hops else ''}"
            outcomes[f"{kind}: {'same tokens' if same else 'DIFFERENT'}"] += 1
            prompts, late = prompts + len(turns), late + engine.late
    return outcomes, prompts, late


def main() -> int:
    """Print the outcomes; 1 when a conversation differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, default=Settings().home, help="where generations were grown")
    parser.add_argument("--config", type=Path, default=None)
    parser.add_argument("--conversations", type=int, default=200)
    options = parser.parse_args()
    settings = load_settings(options.config).model_copy(update={"home": options.home})
    outcomes, prompts, late = compare(settings, options.conversations)
    for name, count in sorted(outcomes.items()):
        print(f"{count:5}  {name}")
    print(f"{prompts} prompts compared; {late} summaries were written after a last turn, which the loop never needs")
    return int(any("DIFFERENT" in name for name in outcomes) or not outcomes)


if __name__ == "__main__":
    sys.exit(main())
