"""What routing and summaries cost a user: seconds of each hop over mixed conversations, one user at a time.

Conversations change the subject at every turn: a request for a tool, a program, small talk,
in turn. Nothing is pinned, so each turn is routed, answered, and summed up after its reply.
``visible`` is what a user waits for beside the answer: the route, and any summary that the
next turn needs and that was not written yet. Summaries written after a reply, and making the router
ready for the next message, are off that path.
Each conversation begins with what the one before left in the engine, as on a server.

    python -m benchmarks.hops --help
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Generator, Sequence
from pathlib import Path

from loop.app import open_contract, open_harness
from loop.core.contract import Contract
from loop.core.conversation import HopRecord, Say, Timeline, Turned
from loop.core.episode import Ask, Completion, Request, Split
from loop.core.hop import Hop
from loop.core.noun import seed_from
from loop.core.pair import Harness, Pair
from loop.core.plan import Spec
from loop.engines.prepare import prepare_base
from loop.engines.transformers import TransformersEngine
from loop.mol.runtime import make_ready, sum_up, turn
from loop.plugins import environment
from loop.settings import Settings
from loop.store.blobs import FsBlobs

BAR = 0.12
SUBJECTS = ("tools", "coding", "scenarios")

Talk = tuple[list[tuple[HopRecord, ...]], list[tuple[HopRecord, ...]]]


def openings(contract: Contract, harness: Harness, turns: int) -> list[Say]:
    """``turns`` first messages, of tasks of each environment in turn, for anybody to answer."""
    drawn = {name: environment(Spec(use=name)) for name in SUBJECTS}
    tasks = {name: e.tasks(contract, Split.TRAIN, turns, 5, (1, 2)) for name, e in drawn.items()}
    said = []
    for index in range(turns):
        name = SUBJECTS[index % len(SUBJECTS)]
        first = next(drawn[name].rollout(tasks[name][index], harness, contract))
        said.append(first.revise(label="", tools=None))
    return said


def converse(harness: Harness, said: Sequence[Say]) -> Generator[Ask, Completion, Talk]:
    """Play the turns with their summaries; the ledgers of the turns, and of what followed each."""
    timeline, turns, after = Timeline(), [], []
    for each in said:
        turned: Turned = yield from turn(harness, timeline, each)
        turns.append(turned.hops)
        summed: Turned = yield from sum_up(harness, turned.timeline)
        ready = yield from make_ready(harness, summed.timeline)
        after.append((*summed.hops, *ready.hops))
        timeline = summed.timeline
    return turns, after


def play(engine: TransformersEngine, pair: Pair, blobs: FsBlobs, said: Sequence[Say], name: int) -> Talk:
    """One conversation alone on the engine, each hop a call that is listened to, as the server asks it."""
    asking = converse(pair.harness, said)
    ask, number = next(asking), 0
    while True:
        request = Request(
            messages=ask.messages,
            adapter=pair.adapter(ask.label),
            sampling=ask.sampling,
            seed=seed_from("hops", name, number),
            choices=ask.choices,
        )
        found: list[Completion] = []

        def follow(key: int, completion: Completion, found: list[Completion] = found) -> Sequence[tuple[int, Request]]:
            found.append(completion)
            return ()

        engine.generate(pair.base, blobs, [(0, request)], follow, lambda key, text: True)
        number += 1
        try:
            ask = asking.send(found[0])
        except StopIteration as end:
            talk: Talk = end.value
            return talk


def table(talks: Sequence[Talk]) -> float:
    """Print the hops; returns the visible share: seconds beside the answers by seconds of the answers."""
    hops: dict[str, list[HopRecord]] = defaultdict(list)
    for turns, after in talks:
        for record in (record for ledger in turns for record in ledger):
            hops[record.hop if record.hop is not Hop.SUMMARY else "summary, waited for"].append(record)
        for record in (record for ledger in after for record in ledger):
            hops[f"{record.hop}, after the reply"].append(record)
    print(f"{'hop':26}{'hops':>6}{'prompt':>9}{'cached':>9}{'made':>7}{'median':>10}{'total':>10}")
    for name, records in hops.items():
        seconds = [record.seconds for record in records]
        print(
            f"{name:26}{len(records):6}{sum(r.prompt_tokens for r in records):9,}"
            f"{sum(r.cached_tokens for r in records):9,}{sum(r.generated_tokens for r in records):7,}"
            f"{statistics.median(seconds):8.2f} s{sum(seconds):8.1f} s"
            if records
            else f"{name:26}{0:6}"
        )
    answers = sum(record.seconds for record in hops[Hop.ANSWER])
    beside = sum(r.seconds for name in (Hop.ROUTE, "summary, waited for") for r in hops[name])
    return beside / (answers + beside)


def main() -> int:
    """Print the table and return 1 when the bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, default=Settings().home, help="where the base model is kept")
    parser.add_argument("--conversations", type=int, default=16)
    parser.add_argument("--turns", type=int, default=3, help="of each conversation")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    settings = Settings()
    blobs = FsBlobs(url=str((options.home / "blobs").absolute()))
    base = prepare_base(settings.base, blobs, settings.base_sha256, options.home)
    pair = Pair(base=base, adapters=(), harness=open_harness(settings))
    engine = TransformersEngine(threads=options.threads)
    said = openings(open_contract(settings), pair.harness, options.conversations * options.turns)
    play(engine, pair, blobs, said[: options.turns], -1)  # loads, and computes the prompts' common beginnings
    started = time.perf_counter()
    talks = [
        play(engine, pair, blobs, said[start : start + options.turns], start)
        for start in range(0, len(said), options.turns)
    ]
    wall = time.perf_counter() - started
    print(f"{base.id}, generation 0: {len(said)} turns in {options.conversations} conversations, {wall:.0f} s")
    share = table(talks)
    print(f"route and summaries a user waits for: {share:.1%} of the turns' time (bar {BAR:.0%})")
    return int(share > BAR)


if __name__ == "__main__":
    sys.exit(main())
