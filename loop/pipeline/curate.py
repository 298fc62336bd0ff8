"""Curate: the training set of each specialist, from what passed the visible contract."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from loop.core.episode import Episode, EpisodeShard
from loop.core.generation import Generation
from loop.core.hop import Hop
from loop.core.noun import seed_from
from loop.core.score import CaseScore
from loop.core.stage import Stage
from loop.core.training_set import Fingerprints, Row, TrainingSet
from loop.pipeline.experience import chain
from loop.pipeline.parts import Run


def curate(
    run: Run,
    shards: Mapping[str, EpisodeShard],
    scores: Sequence[CaseScore],
    fingerprints: Fingerprints,
    routes: Sequence[tuple[Row, str]] = (),
) -> dict[str, TrainingSet]:
    """One recorded training set per label that an environment feeds, or that the ``routes`` (rows by label) do."""
    labels = sorted({environment.label for environment in run.loop.environments} | {label for _, label in routes})
    rows: dict[str, list[Row]] = {}

    def build(label: str) -> TrainingSet:
        if not rows:
            rows.update({name: [] for name in labels})
            for row, owner in (*candidates(run, chain(shards), scores), *routes):
                rows[owner].append(row)
        learned, waiting = earlier_rows(run, label)
        return run.loop.curator.curate(
            label,
            (*waiting, *rows[label]),
            learned,
            run.plan.curate,
            fingerprints,
            run.loop.embedder,
            seed_from("curate", *run.seed, label),
        )

    return {
        label: run.attempt.once(Stage.CURATE, TrainingSet, lambda label=label: build(label), label)  # type: ignore[misc]
        for label in labels
    }


def candidates(run: Run, episodes: Sequence[Episode], scores: Sequence[CaseScore]) -> Iterator[tuple[Row, str]]:
    """A row for each reply of an episode that passed and scored enough, with its label; of no forgotten case."""
    by_episode, forgotten = {score.episode: score for score in scores}, run.loop.store.forgotten()
    for episode in episodes:
        score = by_episode[episode.digest]
        if (
            episode.task.case in forgotten
            or not score.passed
            or score.score is None
            or score.score < run.plan.curate.min_score
        ):
            continue
        environment = run.loop.environment(episode.task.environment)
        request = environment.text(episode.task, run.loop.contract)
        replies = [turn for turn in episode.turns if turn.role == "assistant" and turn.hop is Hop.ANSWER]
        for index, turn in enumerate(replies):
            row = Row(
                episode=episode.digest,
                task=episode.task.digest,
                split=episode.task.split,
                environment=episode.task.environment,
                case=episode.task.case,
                level=episode.task.level,
                turn=index,
                generation=run.parent.number,
                licence=run.parent.pair.base.licence,
                score=score.score,
                prompt_ids=turn.prompt_ids,
                response_ids=turn.token_ids,
                text=turn.content,
                request=request,
            )
            yield row, turn.label


def earlier_rows(run: Run, label: str) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    """The ancestors' rows of a label that its adapter has learned from, and those still waiting.

    Rows wait where too few were found for a training: thrown away or thinned as replay, small
    rounds would learn nothing of what one large round learns.
    """
    taught: list[str] = []
    untaught: list[str] = []
    for generation, parent in reversed(_line(run)):
        learned = taught or generation.pair.adapter(label) != parent.pair.adapter(label)
        (taught if learned else untaught).insert(0, generation.digest)
    store, family = run.loop.store, run.loop.family
    old = store.replay(family, taught, label)
    known = {(row.episode, row.turn) for row in old}
    waiting = (row for row in store.replay(family, untaught, label) if (row.episode, row.turn) not in known)
    return old, tuple(waiting)


def ancestors(run: Run) -> tuple[str, ...]:
    """Digests of the generations whose making collected training rows, oldest first."""
    return tuple(generation.digest for generation, _ in _line(run))


def _line(run: Run) -> list[tuple[Generation, Generation]]:
    """Each ancestor that was grown, with its parent, oldest first."""
    line: list[tuple[Generation, Generation]] = []
    at = run.parent
    while at.parent is not None:
        parent = run.loop.store.by_digest(at.parent)
        line.insert(0, (at, parent))
        at = parent
    return line
