"""Conversations of consenting owners as redacted episodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from loop.core.conversation import EntryKind, Timeline
from loop.core.episode import Episode, Record, Split, Task, Turn
from loop.core.living import LIVING, LivingExport, Source
from loop.core.noun import digest_of
from loop.core.pair import Role
from loop.serve.redaction import redact
from loop.store.living import SqlLiving

_ROLES: dict[EntryKind, Role] = {
    EntryKind.MEMORY: "system",
    EntryKind.USER: "user",
    EntryKind.REPLY: "assistant",
    EntryKind.TOOL: "tool",
}


def export(living: SqlLiving, owners: Sequence[str], path: str) -> LivingExport:
    """What the present consent of these owners covers, recorded as being about to be written to ``path``.

    Each branch is an episode, without token ids and without the pair that played it: it is there to
    be met again, and none of its replies is learned from.
    """
    episodes: list[Episode] = []
    redacted: Counter[str] = Counter()
    for owner in owners:
        made: list[tuple[Episode, Source]] = []
        counts: dict[str, dict[str, int]] = {}
        for opening, branches in groupby(living.sources(owner), key=lambda source: source.opening):
            sources = list(branches)
            found, counts[opening] = episodes_of(sources)
            made += zip(found, sources, strict=True)
        kept = living.exported(owner, path, [(episode.task.case, source) for episode, source in made])
        episodes += [episode for episode, _ in made if episode.task.case in kept]
        for opening in {source.opening for episode, source in made if episode.task.case in kept}:
            redacted.update(counts[opening])
    return LivingExport(episodes=tuple(episodes), redacted=dict(sorted(redacted.items())))


def episodes_of(branches: Sequence[Source]) -> tuple[list[Episode], dict[str, int]]:
    """The episodes of one conversation's branches, and how many spans of each class were redacted.

    A text that several branches share is redacted, and counted, once.
    """
    told = [list(turns_of(source.timeline)) for source in branches]
    texts = list(dict.fromkeys(turn.content for turns in told for turn in turns))
    clean, counts = redact(texts)
    known = dict(zip(texts, clean, strict=True))
    redacted = [[turn.revise(content=known[turn.content]) for turn in turns] for turns in told]
    return [_episode(source, turns) for source, turns in zip(branches, redacted, strict=True)], counts


def turns_of(timeline: Timeline) -> Iterator[Turn]:
    """What was said aloud: a message that was answered in parts is one again, and so is its reply."""
    spoken = sorted((entry for entry in timeline.entries if entry.kind in _ROLES), key=lambda entry: entry.turn)
    for _, entries in groupby(spoken, key=lambda entry: entry.turn):
        lines = list(entries)
        first = [line for line in lines if line.kind in (EntryKind.MEMORY, EntryKind.USER)]
        rest = [line for line in lines if line not in first]
        for kind, members in groupby([*first, *rest], key=lambda line: line.kind):
            same = list(members)
            separator = {EntryKind.USER: " ", EntryKind.REPLY: "\n\n"}.get(kind, "\n")
            yield Turn(role=_ROLES[kind], content=separator.join(line.content for line in same), label=same[0].label)


def _episode(source: Source, turns: Sequence[Turn]) -> Episode:
    """An episode under a case of its own, which tells nothing of whose it is."""
    case = digest_of([LIVING, source.turn, [(turn.role, turn.content) for turn in turns]])
    task = Task(environment=LIVING, case=case, split=Split.TRAIN, seed=0)
    return Episode(task=task, pair="", sample=0, seed=0, turns=tuple(turns), record=Record())
