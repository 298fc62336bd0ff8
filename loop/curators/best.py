"""The default curator: best of each task, no duplicates, nothing of the holdout, replay mixed in."""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Sequence

from loop.core.episode import Split
from loop.core.noun import Noun, seed_from
from loop.core.plan import CuratePlan
from loop.core.training_set import Fingerprints, Row, TrainingSet
from loop.curators.decontaminate import fingerprint, overlap, repeats
from loop.curators.duplicates import near_duplicates
from loop.curators.wording import normalised
from loop.ports import Embedder


class Best(Noun):
    """Rejection sampling with care: every drop is counted by its reason in the set's ``dropped``."""

    def curate(
        self,
        label: str,
        candidates: Sequence[Row],
        replay: Sequence[Row],
        plan: CuratePlan,
        fingerprints: Fingerprints,
        embedder: Embedder,
        seed: int,
    ) -> TrainingSet:
        """The training set of one label; ``candidates`` passed the visible contract.

        Fresh rows come first, in the order of ``candidates``, then replay rows in theirs;
        rows are kept as they are, so that each still names its episode and generation.
        Equal inputs give an equal set. Raises ValueError for a row of the holdout split, and for
        one that repeats a sealed case whole: it was planted, and what else was is not known.
        """
        _refuse_holdout(label, (*candidates, *replay))
        _refuse_planted(label, (*candidates, *replay), fingerprints)
        dropped: Counter[str] = Counter()
        fresh = _best_of_task(candidates, plan.per_task, dropped)
        fresh = _without(fresh, overlap(fresh, fingerprints, embedder, plan.holdout_similarity), "holdout", dropped)
        fresh = _without(fresh, near_duplicates(fresh, embedder, plan.near_duplicate), "near_duplicate", dropped)
        tasks = {row.task for row in fresh}
        old = _one_a_task([row for row in replay if row.task not in tasks], seed)
        old = _without(old, overlap(old, fingerprints, embedder, plan.holdout_similarity), "replay_holdout", dropped)
        room = min(len(old), math.floor(plan.max_rows * plan.replay_ratio))
        chosen = _balanced(fresh, plan.max_rows - room)
        dropped["over_max_rows"] += len(fresh) - len(chosen)
        share = math.floor(len(chosen) * plan.replay_ratio / (1.0 - plan.replay_ratio) + 1e-9)
        replayed = _in_order(replay, _balanced(old, min(room, share)))
        return TrainingSet(
            label=label,
            rows=(*_in_order(candidates, chosen), *replayed),
            dropped={reason: count for reason, count in sorted(dropped.items()) if count},
        )

    def fingerprint(self, texts: Sequence[str], embedder: Embedder) -> Fingerprints:
        """What the curate stage may know of the holdout's texts: hashes and embeddings."""
        return fingerprint(texts, embedder)


def _refuse_holdout(label: str, rows: Sequence[Row]) -> None:
    leaked = [row.episode for row in rows if row.split is Split.HOLDOUT]
    if leaked:
        raise ValueError(f"{len(leaked)} holdout rows among the candidates of {label}, first {leaked[0][:12]}")


def _refuse_planted(label: str, rows: Sequence[Row], fingerprints: Fingerprints) -> None:
    planted = [row.episode for row in rows if repeats(row, fingerprints)]
    if planted:
        raise ValueError(
            f"{len(planted)} rows of {label} repeat a sealed case of the holdout word for word, first from episode "
            f"{planted[0][:12]}: find out how it got into the train bank before anything is learned"
        )


def _best_of_task(rows: Sequence[Row], cap: int, dropped: Counter[str]) -> list[Row]:
    """The best replies of each turn of each task: by score, then in the order given; unique texts."""
    turns: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in rows:
        turns[row.task, row.turn].append(row)
    kept: list[Row] = []
    for _, members in sorted(turns.items()):
        unique: dict[str, Row] = {}
        for row in sorted(members, key=lambda row: -row.score):
            unique.setdefault(normalised(row.text), row)
        dropped["duplicate"] += len(members) - len(unique)
        dropped["over_task_cap"] += max(0, len(unique) - cap)
        kept.extend(list(unique.values())[:cap])
    return sorted(kept, key=lambda row: -row.score)


def _one_a_task(rows: Sequence[Row], seed: int) -> list[Row]:
    """One row for each turn of each task, in an order drawn from the seed."""
    shuffled = list(rows)
    random.Random(seed_from("replay", seed)).shuffle(shuffled)
    return list({(row.task, row.turn): row for row in shuffled}.values())


def _balanced(rows: Sequence[Row], limit: int) -> list[Row]:
    """Up to ``limit`` rows, taken in turn from each (case, level), so that rare hard levels stay."""
    groups: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.case, row.level].append(row)
    queues = [list(reversed(group)) for _, group in sorted(groups.items())]
    taken: list[Row] = []
    while len(taken) < limit and any(queues):
        for queue in [queue for queue in queues if queue][: limit - len(taken)]:
            taken.append(queue.pop())
    return taken


def _without(rows: Sequence[Row], hits: Sequence[bool], reason: str, dropped: Counter[str]) -> list[Row]:
    dropped[reason] += sum(hits)
    return [row for row, hit in zip(rows, hits, strict=True) if not hit]


def _in_order(source: Sequence[Row], chosen: Sequence[Row]) -> tuple[Row, ...]:
    """The chosen rows in the order of the source they were taken from."""
    places = {id(row): place for place, row in enumerate(source)}
    return tuple(sorted(chosen, key=lambda row: places[id(row)]))
