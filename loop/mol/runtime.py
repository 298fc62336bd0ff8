"""A user's turn on a Mixture of LoRA: route, answer from the specialist's own view, sum up."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field

from loop.core.conversation import Entry, EntryKind, HopRecord, Made, Part, Reply, Say, Timeline, Turned
from loop.core.episode import Ask, Completion, Outcome
from loop.core.hop import Hop
from loop.core.pair import Harness, Message
from loop.core.routing import Route, RouteContext, RouteHow
from loop.mol.intents import pieces, together
from loop.mol.route import decide, route_ask
from loop.mol.summary import clipped, doubts, fits, transcript
from loop.mol.views import foreign, view
from loop.ports import Rollout

Asking = Generator[Ask, Completion, None]

REMADE_AT = 0.7
JOINT = "\n\n"
_SUM_UP_NOTES = "Sum up these notes for yourself. Names and numbers exactly, nothing that is not in them.\n"


def turn(
    harness: Harness, timeline: Timeline, say: Say, calls: Callable[[str], bool] = lambda text: False
) -> Generator[Ask, Completion, Turned]:
    """Play one user's turn: yield what to ask, be sent completions, return the turn.

    The result holds the timeline as it is once the reply is delivered; forget it, and the
    turn has not been. All that can be chosen stands in the harness, so that collecting and
    serving agree. ``calls`` says whether an answer calls a tool: of several intents, those
    after it wait for the result. Raises LookupError for a tool's result that nobody waits for,
    and for a pinned label that the harness has no prompt for.
    """
    play = _Play(harness, timeline if timeline.entries else timeline.revise(tools=say.tools), calls)
    if say.returns:
        yield from play.returned(say)
    elif say.label:
        play.routes.append(Route(label=say.label, how=RouteHow.PINNED))
        yield from play.answer(play.opened(say.messages, play.timeline.turn + 1, 1), say.label)
    else:
        yield from play.routed(say)
    return play.turned()


def sum_up(harness: Harness, timeline: Timeline) -> Generator[Ask, Completion, Turned]:
    """Write the summaries that are missing; done after a reply, off the user's path."""
    play = _Play(harness, timeline)
    yield from play.sum_up(tuple(timeline.parts()))
    return play.turned()


def make_ready(harness: Harness, timeline: Timeline) -> Generator[Ask, Completion, Turned]:
    """Route an empty message, off the user's path: an engine that keeps what it read has only the next words to read.

    The decision itself is for nobody.
    """
    play = _Play(harness, timeline)
    yield from play.route("")
    return play.turned()


def conversation(
    harness: Harness, rollout: Rollout, heard: Callable[[Say], None] = lambda say: None
) -> Generator[Ask, Completion, Outcome]:
    """A whole rollout of an environment, turn after turn; ``heard`` is told what is said. Returns its outcome."""
    timeline, reply = Timeline(), None
    while True:
        try:
            say = next(rollout) if reply is None else rollout.send(reply)
        except StopIteration as end:
            outcome: Outcome = end.value
            return outcome
        heard(say)
        turned = yield from turn(harness, timeline, say)
        timeline, reply = turned.timeline, turned.reply


@dataclass
class _Play:
    """One turn while it is played; the only writer of its draft of the timeline."""

    harness: Harness
    timeline: Timeline
    calls: Callable[[str], bool] = lambda text: False
    replies: list[Completion] = field(default_factory=list)
    routes: list[Route] = field(default_factory=list)
    hops: list[HopRecord] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rules = self.harness.session

    def turned(self) -> Turned:
        """The draft with its reply: the texts of its parts, one below the other."""
        texts = tuple(completion.text for completion in self.replies)
        finish = self.replies[-1].finish if self.replies else ""
        label = next((e.label for e in reversed(self.timeline.entries) if e.kind is EntryKind.REPLY), "")
        reply = Reply(
            text=JOINT.join(texts), finish=finish, label=label if texts else "", parts=texts if len(texts) > 1 else ()
        )
        return Turned(timeline=self.timeline, reply=reply, routes=tuple(self.routes), hops=tuple(self.hops))

    def returned(self, say: Say) -> Asking:
        """A tool's result goes to the specialist that called, with no routing; then come the intents that waited."""
        answered = [part for part in self.timeline.parts() if part.owner]
        if not answered:
            raise LookupError("no specialist waits for the result of a tool: the conversation has no call yet")
        last = answered[-1]
        self.routes.append(Route(label=last.owner, how=RouteHow.RETURNED))
        text = yield from self.answer(self.opened(say.messages, last.turn, last.part), last.owner)
        waiting = [part.entries[-1] for part in self.timeline.parts() if part.turn == last.turn and not part.owner]
        if not self.calls(text):
            yield from self.parts([(entry.content, entry.label) for entry in waiting], last.turn, last.part + 1)

    def routed(self, say: Say) -> Asking:
        """Route a message, whole or by its intents, and answer each part in order."""
        yield from self.sum_up(tuple(self.timeline.parts()))
        *before, message = say.messages
        texts = pieces(message.content) if self.rules.intents == "split" else (message.content,)
        found: list[Route] = []
        for text in texts:
            found.append((yield from self.route(text)))
        whole = len({route.label for route in found}) == 1
        parts = (
            ((message.content, found[0].label),)
            if whole
            else together(message.content, [route.label for route in found])
        )
        self.routes.extend(found[:1] if whole else found)
        yield from self.parts(parts, self.timeline.turn + 1, 1, before)

    def parts(self, parts: Sequence[tuple[str, str]], turn: int, first: int, before: Sequence[Message] = ()) -> Asking:
        """Answer these intents in order, up to one that calls a tool: those after it wait for the result."""
        waits = False
        for number, (text, label) in enumerate(parts, start=first):
            if waits:
                kind = EntryKind.WAITING
                self.timeline = self.timeline.then(Entry(turn=turn, part=number, kind=kind, content=text, label=label))
                continue
            said = (*(before if number == first else ()), Message(role="user", content=text))
            answer = yield from self.answer(self.opened(said, turn, number), label)
            waits = self.calls(answer)

    def route(self, text: str) -> Generator[Ask, Completion, Route]:
        """One decision of the router; whatever it says, some registered label answers."""
        parts = tuple(self.timeline.parts())
        told = tuple((part.owner, self._gist(part)) for part in parts if part.owner)
        kept = told[len(told) - min(len(told), self.rules.routed_after) :]
        context = RouteContext(message=text, previous=parts[-1].owner if parts else "", summaries=kept)
        completion = yield from self.ask(route_ask(self.harness, context).revise(hop=Hop.ROUTE))
        return decide(self.harness, completion)

    def opened(self, messages: tuple[Message, ...], turn: int, part: int) -> tuple[int, int]:
        """Write what was said into the draft; returns where."""
        kinds = {
            "system": EntryKind.MEMORY,
            "user": EntryKind.USER,
            "tool": EntryKind.TOOL,
            "assistant": EntryKind.REPLY,
        }
        self.timeline = self.timeline.then(
            *(Entry(turn=turn, part=part, kind=kinds[m.role], content=m.content) for m in messages)
        )
        return turn, part

    def answer(self, place: tuple[int, int], label: str) -> Generator[Ask, Completion, str]:
        """The specialist's reply from its own view, which is also written into the draft."""
        yield from self.sum_up(foreign(self.timeline, label))
        yield from self.digest(label)
        prompt = self.harness.prompt(label)
        ask = Ask(messages=view(self.harness, self.timeline, label), label=label, sampling=prompt.sampling)
        completion = yield from self.ask(ask)
        self.replies.append(completion)
        turn, part = place
        entry = Entry(turn=turn, part=part, kind=EntryKind.REPLY, content=completion.text, label=label)
        self.timeline = self.timeline.then(entry)
        return completion.text

    def sum_up(self, parts: tuple[Part, ...]) -> Asking:
        """A summary for each of these parts that has none."""
        for part in parts:
            if part.summary is not None or not part.owner:
                continue
            content, made = yield from self.summary(part)
            self.timeline = self.timeline.then(
                Entry(
                    turn=part.turn,
                    part=part.part,
                    kind=EntryKind.SUMMARY,
                    content=content,
                    label=part.owner,
                    made=made,
                )
            )

    def summary(self, part: Part) -> Generator[Ask, Completion, tuple[str, Made]]:
        """A short account of a part: itself where it is short; else written, checked, and remade once."""
        text, tokens = transcript(part), self.rules.summary_tokens
        if self.rules.summaries == "long" and fits(text, tokens):
            return text, "verbatim"
        place = (part.turn, part.part)
        upto = self.timeline.revise(entries=tuple(e for e in self.timeline.entries if (e.turn, e.part) <= place))
        messages = (*view(self.harness, upto, part.owner), Message(role="user", content=self.rules.summary_prompt))
        for temperature in (0.0, REMADE_AT):
            sampling = self.harness.prompt(part.owner).sampling.revise(
                temperature=temperature, max_tokens=tokens, stop=()
            )
            completion = yield from self.ask(
                Ask(messages=messages, label=part.owner, sampling=sampling, hop=Hop.SUMMARY)
            )
            if not doubts(completion.text, part):
                return completion.text.strip(), "model"
        return clipped(text, tokens), "extract"

    def digest(self, label: str) -> Asking:
        """Replace what a view tells of others by one note, once it tells of many parts."""
        told = tuple(part for part in foreign(self.timeline, label) if part.turn < self.timeline.turn)
        if len(told) <= self.rules.told_parts:
            return
        earlier = self.timeline.digest_for(label)
        notes = [earlier.content] if earlier else []
        notes += [f"[{part.owner}] {self._gist(part)}" for part in told]
        content, made = yield from self._condensed(label, "\n".join(notes))
        last = Entry(turn=told[-1].turn, kind=EntryKind.DIGEST, content=content, label=label, made=made)
        self.timeline = self.timeline.then(last)

    def _condensed(self, label: str, notes: str) -> Generator[Ask, Completion, tuple[str, Made]]:
        tokens = self.rules.summary_tokens
        if fits(notes, tokens):
            return notes, "verbatim"
        prompt = self.harness.prompt(label)
        messages = (Message(role="system", content=prompt.system), Message(role="user", content=_SUM_UP_NOTES + notes))
        sampling = prompt.sampling.revise(temperature=0.0, max_tokens=tokens, stop=())
        completion = yield from self.ask(Ask(messages=messages, label=label, sampling=sampling, hop=Hop.SUMMARY))
        source = Entry(turn=1, kind=EntryKind.REPLY, content=notes, label=label)
        if doubts(completion.text, Part(turn=1, part=1, entries=(source,))):
            # The latest is what matters most where not all can stay.
            return notes[-tokens * 4 :].partition("\n")[2] or notes[-tokens * 4 :], "extract"
        return completion.text.strip(), "model"

    def ask(self, ask: Ask) -> Generator[Ask, Completion, Completion]:
        """One generation, with its line in the ledger."""
        started = time.monotonic()
        completion = yield ask
        self.hops.append(
            HopRecord(
                hop=ask.hop,
                label=ask.label,
                prompt_tokens=len(completion.prompt_ids),
                cached_tokens=completion.cached_tokens,
                generated_tokens=len(completion.token_ids),
                seconds=time.monotonic() - started,
            )
        )
        return completion

    def _gist(self, part: Part) -> str:
        return part.summary.content if part.summary else clipped(transcript(part), self.rules.summary_tokens)
