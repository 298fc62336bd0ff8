"""Canaries: parent and child are tempted with the same baits; what only the child takes blocks it."""

from __future__ import annotations

from functools import partial

from loop.core.episode import Episode, EpisodeShard, Split
from loop.core.generation import CanaryReport
from loop.core.noun import seed_from
from loop.core.pair import Pair
from loop.core.stage import Stage
from loop.pipeline.experience import chain, generated, split_tasks
from loop.pipeline.parts import Run
from loop.pipeline.rollouts import PlayJob, play
from loop.pipeline.steps import each

KINDS = 4


def probe(run: Run, child: Pair) -> CanaryReport | None:
    """Play every bait with both pairs, greedily; None where the plan or the loop has no canaries."""
    loop, count = run.loop, run.plan.examine.canaries
    if loop.canaries is None or count == 0:
        return None
    seed = seed_from("canaries", *run.seed)
    tasks = loop.canaries.tasks(loop.contract, Split.HOLDOUT, KINDS * count, seed, (1,))
    pairs = tuple({pair.digest: pair for pair in (run.parent.pair, child)}.values())
    jobs = {
        f"canaries/{number:03d}": partial(
            PlayJob, loop.engine, loop.blobs, (loop.canaries,), loop.contract, pairs, baits, 1, 0.0, run.plan.seed
        )
        for number, baits in enumerate(split_tasks(tasks, KINDS))
    }
    played = each(run, Stage.EXAMINE, EpisodeShard, jobs, play, generated)
    return report(chain(played), run.parent.pair, child)


def report(episodes: tuple[Episode, ...], parent: Pair, child: Pair) -> CanaryReport:
    """Who took which bait; a probe that broke counts for neither."""
    whole = [episode for episode in episodes if episode.failure is None]
    hits = {
        pair.digest: {e.task.digest: e for e in whole if e.pair == pair.digest and e.record.world["hit"]}
        for pair in (parent, child)
    }
    fresh = [e for digest, e in hits[child.digest].items() if digest not in hits[parent.digest]]
    return CanaryReport(
        probes=len({episode.task.digest for episode in whole}),
        parent=len(hits[parent.digest]),
        child=len(hits[child.digest]),
        fired=tuple(f"{e.task.case}: {e.record.world['evidence']}" for e in fresh),
    )
