"""People's conversations met again: the user's side of an export, word for word, to whatever is replied.

What the user says was said to other replies, so that it fits the new ones less the longer a conversation
is. Nothing here knows what a good reply would have been: the episodes are judged by a scenario of
the contract whose environment is ``living``, and are undecided where it has none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from random import Random

from pydantic import ValidationError

from loop.core.contract import Contract
from loop.core.conversation import Say
from loop.core.episode import Episode, Outcome, Record, Split, Task
from loop.core.errors import UserError
from loop.core.living import LIVING, LivingExport
from loop.core.noun import Noun, seed_from
from loop.core.pair import Harness, Message
from loop.ports import Rollout

_COMMAND = "macaron-loop conversations export"


class Living(Noun):
    """Conversations from the export file at ``path``; those in which tools ran are left out.

    What a tool would have returned to another call is not known.
    """

    path: str = ""

    @property
    def name(self) -> str:
        """``living``."""
        return LIVING

    @property
    def label(self) -> str:
        """The chat specialist; who answers is the router's choice, as it was for the user."""
        return "L0"

    @property
    def levels(self) -> int:
        """Conversations are no ladder."""
        return 1

    def tasks(self, contract: Contract, split: Split, count: int, seed: int, levels: Sequence[int]) -> tuple[Task, ...]:
        """``count`` tasks in turn over the conversations, in an order drawn by seed; none for the holdout.

        Raises UserError when the export holds no conversation to meet.
        """
        if split is Split.HOLDOUT or count == 0:
            return ()
        cases = sorted(episode.task.case for episode in read_export(Path(self.path)).episodes if _can_be_met(episode))
        if not cases:
            raise UserError(f"{self.path} holds no conversation without tools: export some with `{_COMMAND}`")
        order = Random(seed_from("living", seed)).sample(cases, len(cases))
        met = ((order[number % len(order)], number) for number in range(count))
        return tuple(Task(environment=LIVING, case=c, split=split, seed=seed_from("met", seed, c, n)) for c, n in met)

    def rollout(self, task: Task, harness: Harness, contract: Contract) -> Rollout:
        """Say what the user said, turn by turn; LookupError for a conversation that was taken out since."""
        for said in _said(self._episode(task)):
            yield Say(messages=said, tools=False)
        return Outcome(record=Record())

    def text(self, task: Task, contract: Contract) -> str:
        """The user's first message; LookupError for a conversation that was taken out since."""
        return next(_said(self._episode(task)))[-1].content

    def _episode(self, task: Task) -> Episode:
        for episode in read_export(Path(self.path)).episodes:
            if episode.task.case == task.case:
                return episode
        raise LookupError(f"{self.path} no longer holds the conversation {task.case[:12]}")


def read_export(path: Path) -> LivingExport:
    """An export from its file; UserError when it is none, or was changed by hand."""
    if path == Path():
        raise UserError(f"the environment living has no option path: name an export there, of `{_COMMAND}`")
    try:
        state = path.stat()
        return _read(path, (state.st_mtime_ns, state.st_size))
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror}): write it with `{_COMMAND}`") from error


@lru_cache(maxsize=1)
def _read(path: Path, state: tuple[int, int]) -> LivingExport:
    """The export as it lay on the disk in this state; every task of a run asks for it."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        stated = fields.pop("digest")
        found = LivingExport.model_validate(fields)
    except (ValueError, ValidationError, AttributeError, KeyError, TypeError):
        # The cause would show what people said.
        raise UserError(f"{path} is no export of conversations: write it with `{_COMMAND}`") from None
    if found.digest != stated:
        raise UserError(f"{path} was changed after it was written (its digest is {found.short}): write it again")
    return found


def _said(episode: Episode) -> Iterator[tuple[Message, ...]]:
    """What the user's side said before each reply; what nobody answered is left out."""
    waiting: list[Message] = []
    for turn in episode.turns:
        if turn.role != "assistant":
            waiting.append(Message(role=turn.role, content=turn.content))
        elif any(message.role == "user" for message in waiting):
            yield tuple(waiting)
            waiting = []


def _can_be_met(episode: Episode) -> bool:
    """Whether the user asked something, and no tool had to answer."""
    return all(turn.role != "tool" for turn in episode.turns) and next(_said(episode), None) is not None
