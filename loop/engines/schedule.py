"""Continuous batching: requests wait in lanes, live rows decode together, finished ones leave at once.

A lane holds the requests of one adapter whose prompts begin alike (a system message with
its exemplars). That beginning is computed once and attended by every row; each prompt's
own part is computed once for all its samples, and a conversation that goes on keeps the
keys and values of all that was said. One lane runs until it has nothing left,
since rows of different adapters cannot share a pass. The order of everything follows
from the requests alone, so equal calls give equal results whatever ran before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os.path import commonprefix

import torch

from loop.core.episode import Completion, Request
from loop.core.pair import Adapter
from loop.engines.choices import beginnings, score
from loop.engines.forward import Prefix
from loop.engines.reply import Replies, chosen, given_up, too_long
from loop.engines.rows import Job, Known, Origin, Row, Slots, accept
from loop.engines.weights import LoadedBase, Served
from loop.ports import EngineReport, Follow, Hear

# Fewer requests than this do not fill a lane of their own; they share one that keeps this much of each beginning.
SMALL_LANE = 48
KEPT_SHARE = 0.6


@dataclass(eq=False)
class Lane:
    """Requests of one adapter with a common beginning.

    ``known`` keeps prompts that samples still wait for; ``cached`` counts tokens of the
    beginning that an earlier call had computed.
    """

    adapter: Adapter | None
    prefix: tuple[int, ...]
    waiting: list[Job] = field(default_factory=list)
    known: dict[Origin, Known] = field(default_factory=dict)
    paid: bool = False
    cached: int = 0

    @property
    def name(self) -> str | None:
        """The adapter's digest; None for the base."""
        return self.adapter.digest if self.adapter is not None else None


class Schedule:
    """One ``generate`` call: its lanes, its rows and its counts."""

    def __init__(
        self,
        loaded: LoadedBase,
        serve: Callable[[Adapter | None], Served],
        follow: Follow,
        limits: Limits,
        hear: Hear | None = None,
    ) -> None:
        self.loaded, self.serve, self.follow, self.limits, self.hear = loaded, serve, follow, limits, hear
        self.kept = loaded.kept if hear is not None and loaded.kept.most else None
        self.replies = Replies(loaded)
        self.lanes: list[Lane] = []
        self.unassigned: dict[str | None, list[Job]] = {}
        self.orders = 0
        self.report = EngineReport()

    def run(self, requests: Sequence[tuple[int, Request]]) -> EngineReport:
        """Answer all requests and whatever ``follow`` adds."""
        self._arrive(requests)
        while True:
            for jobs in self.unassigned.values():
                self._open_lanes(jobs)
            self.unassigned.clear()
            busy = [lane for lane in self.lanes if lane.waiting]
            if not busy:
                return self.report
            # max takes the first of equals: the lane that was opened first.
            self._drain(max(busy, key=lambda lane: len(lane.waiting)))

    def _arrive(self, requests: Iterable[tuple[int, Request]], after: After | None = None) -> None:
        for key, request in requests:
            job = self.replies.job(key, self.orders, request)
            self.orders += 1
            self._count(prompt_tokens=len(job.prompt))
            if job.budget <= 0:
                self._complete(job, too_long(job.request, job.prompt))
                continue
            lane = after.lane if after is not None and after.lends_past(job) else self._lane_of(job)
            if lane is not None:
                lane.waiting.append(job)
            else:
                name = request.adapter.digest if request.adapter else None
                self.unassigned.setdefault(name, []).append(job)

    def _lane_of(self, job: Job) -> Lane | None:
        """The open lane whose beginning covers most of the prompt."""
        fitting = [
            lane
            for lane in self.lanes
            if lane.adapter == job.request.adapter
            and len(lane.prefix) < len(job.prompt)
            and job.prompt[: len(lane.prefix)] == lane.prefix
        ]
        return max(fitting, key=lambda lane: len(lane.prefix), default=None)

    def _open_lanes(self, jobs: list[Job]) -> None:
        """A lane for each beginning that requests name as theirs; small ones share what they have in common."""
        groups: dict[tuple[int, ...], list[Job]] = {}
        for job in jobs:
            lead = commonprefix([self.loaded.tokens.lead(job.request.messages), job.prompt[:-1]])
            groups.setdefault(tuple(lead), []).append(job)
        for lead, members in merged(groups):
            together = sorted((job for member in members for job in groups[member]), key=lambda job: job.order)
            lane = Lane(together[0].request.adapter, lead, together)
            known = self.kept.length(lane.name, lead) if self.kept is not None else 0
            if known >= KEPT_SHARE * len(lead):
                # What is new of the beginning is computed with the prompts, and not in a pass of its own.
                lane.prefix = lead[:known]
            self.lanes.append(lane)

    def _drain(self, lane: Lane) -> None:
        served = self.serve(lane.adapter)
        # Somebody waits where keys and values are kept, and there alone results need not follow from the
        # requests: what other calls compute or share must not depend on these.
        served.forward.rounds_alike = self.kept is None
        rows = min(self.limits.max_rows, sum(not job.choices for job in lane.waiting))
        slots = Slots(served.forward, self._beginning(lane, served), rows)
        while lane.waiting or slots.live:
            self._admit(lane, slots)
            if slots.live:
                slots.step()
                self._finish(lane, slots)

    def _beginning(self, lane: Lane, served: Served) -> Prefix:
        """The lane's beginning, going on from what earlier calls kept of it."""
        if self.kept is None or not lane.prefix:
            return served.prefix(lane.prefix)
        found = self.kept.find(lane.name, lane.prefix)
        prefix = Prefix(found) if found is not None else served.forward.prefix(())
        lane.cached = prefix.length
        if prefix.length < len(lane.prefix):
            _, rows = served.forward.extend(prefix, [lane.prefix[prefix.length :]])
            new = rows[:, 0, : len(lane.prefix) - prefix.length]
            self.kept.add(lane.name, lane.prefix, prefix.cache, new)
            prefix = Prefix(torch.cat((prefix.cache, new), 1))
        return prefix

    def _recall(self, lane: Lane, job: Job) -> None:
        """Give the job what earlier calls kept of its prompt beyond the lane's beginning."""
        if self.kept is None or job.past is not None:
            return
        found = self.kept.find(lane.name, job.prompt[:-1])
        own = found.shape[1] - len(lane.prefix) if found is not None else 0
        if found is not None and own > 0:
            job.kept, job.past = own, found[:, len(lane.prefix) :]

    def _keep(self, lane: Lane, slots: Slots, row: Row) -> None:
        """Let later calls go on from a row that leaves."""
        if self.kept is not None:
            held = (*row.job.prompt, *row.tokens[:-1])
            own = slots.past(row, len(held) - len(lane.prefix))
            self.kept.add(lane.name, held, slots.prefix.cache, own)

    def _admit(self, lane: Lane, slots: Slots) -> None:
        """Take waiting jobs into free rows: when an eighth of the rows is free, or nothing is live."""
        free = self.limits.max_rows - len(slots.live)
        if not lane.waiting or (slots.live and free < max(1, self.limits.max_rows // 8)):
            return
        lane.waiting = [job for job in lane.waiting if self._is_wanted(job, "")]
        taken, lane.waiting = lane.waiting[:free], lane.waiting[free:]
        for job in taken:
            self._recall(lane, job)
        self._prefill(lane, slots, taken)
        known = [(job, lane.known[job.origin]) for job in taken]
        wanted = {job.origin for job in lane.waiting}
        lane.known = {origin: value for origin, value in lane.known.items() if origin in wanted}
        self._begin(slots, [(Row(job), its) for job, its in known if not job.choices])
        for job, logprobs in score(slots.forward, slots.prefix, [each for each in known if each[0].choices]):
            self._complete(job, chosen(job.request, job.prompt, job.choices, logprobs, job.cached_tokens))
        if self.kept is not None:
            for job, its in (each for each in known if each[0].choices):
                self.kept.add(lane.name, job.prompt, slots.prefix.cache, its.own)
        self._finish(lane, slots)

    def _begin(self, slots: Slots, known: Sequence[tuple[Row, Known]]) -> None:
        """Give new rows their first token and their place."""
        if not known:
            return
        rows = [row for row, _ in known]
        accept(rows, torch.stack([its.logits_V for _, its in known]))
        room = max(its.own.shape[1] + row.job.budget for row, its in known)
        slots.add(rows, [its.own for _, its in known], room)

    def _prefill(self, lane: Lane, slots: Slots, taken: Sequence[Job]) -> None:
        """Compute the own part of each new prompt once, shortest first in passes of bounded size."""
        fresh: dict[Origin, Job] = {}
        for job in taken:
            new = job.origin not in lane.known and job.origin not in fresh
            if new:
                fresh[job.origin] = job
            own = job.kept + (len(lane.prefix) if lane.paid else lane.cached)
            job.cached_tokens = own if new else len(job.prompt)
            lane.paid = True
            self._count(cached_tokens=job.cached_tokens)
        for goes_on in (False, True):
            jobs = [job for job in fresh.values() if (job.kept > 0) == goes_on]
            for batch in _batches(jobs, self.limits.prompt_chunk, len(lane.prefix)):
                self._extend(lane, slots, batch)
        for job in taken:
            job.past = None

    def _extend(self, lane: Lane, slots: Slots, jobs: Sequence[Job]) -> None:
        """One pass over what is new in these prompts, which all go on from a past or all from the prefix.

        Where somebody waits, beginnings of options are computed with it.
        """
        new = [job.prompt[len(lane.prefix) + job.kept :] for job in jobs]
        pasts = [job.past for job in jobs if job.past is not None]
        begun = (
            [beginnings(job.choices) for job in jobs] if self.kept is not None and any(j.choices for j in jobs) else []
        )
        logits_NV, cache = slots.forward.extend(slots.prefix, new, pasts, begun)
        after = iter(logits_NV)
        for i, job in enumerate(jobs):
            own = cache[:, i, : len(new[i])]
            lane.known[job.origin] = Known(
                logits_V=next(after),
                own=own if job.past is None else torch.cat((job.past, own), 1),
                begun={beginning: next(after) for beginning in (begun[i] if begun else ())},
            )

    def _finish(self, lane: Lane, slots: Slots) -> None:
        """Let finished rows leave, and complete the jobs whose rows are all finished."""
        done = [self.replies.is_finished(row) for row in slots.live]
        stays = [not ends and self._is_heard(row) for row, ends in zip(slots.live, done, strict=True)]
        if all(stays):
            return
        finished = [row for row, ends in zip(slots.live, done, strict=True) if ends]
        for row in sorted(finished, key=lambda row: row.job.order):
            self._complete(row.job, self.replies.completion(row), After(lane, slots, row))
        for row, stay in zip(slots.live, stays, strict=True):
            if not stay:
                self._keep(lane, slots, row)
        slots.keep(stays)

    def _is_heard(self, row: Row) -> bool:
        """Tell a growing reply; whether somebody still wants it."""
        return self.hear is None or self._is_wanted(row.job, self.replies.growing(row))

    def _is_wanted(self, job: Job, text: str) -> bool:
        """Tell a request's text so far; one that nobody wants any more is among the report's failures."""
        if self.hear is None or job.choices or self.hear(job.key, text):
            return True
        self.report = self.report.revise(failures=self.report.failures | {job.key: given_up()})
        return False

    def _complete(self, job: Job, completion: Completion, after: After | None = None) -> None:
        self._count(generated_tokens=len(completion.token_ids))
        self._arrive(self.follow(job.key, completion), after)

    def _count(self, **more: int) -> None:
        self.report = self.report.revise(**{name: getattr(self.report, name) + value for name, value in more.items()})


@dataclass(frozen=True)
class Limits:
    """Live rows at once, and tokens of prompt in one prefill pass (padding included)."""

    max_rows: int
    prompt_chunk: int


@dataclass(frozen=True)
class After:
    """A reply that was just decoded, still in its row: what follows it need not compute it again."""

    lane: Lane
    slots: Slots
    row: Row

    def lends_past(self, job: Job) -> bool:
        """Give the job what its prompt has in common with the row; False when that is nothing of the row's own."""
        # The last token was drawn and never run, and the prompt's last is run to get its logits.
        held = (*self.row.job.prompt, *self.row.tokens[:-1])
        own = len(commonprefix([held, job.prompt[:-1]])) - len(self.lane.prefix)
        if own <= 0 or job.request.adapter != self.lane.adapter:
            return False
        job.kept, job.past = own, self.slots.past(self.row, own)
        return True


def _batches(jobs: Sequence[Job], chunk: int, prefix: int) -> list[list[Job]]:
    batches: list[list[Job]] = []
    for job in sorted(jobs, key=lambda job: len(job.prompt) - job.kept):
        # Sorted by length, so this prompt sets the padded width of the batch it joins.
        if batches and (len(batches[-1]) + 1) * (len(job.prompt) - job.kept - prefix) <= chunk:
            batches[-1].append(job)
        else:
            batches.append([job])
    return batches


def merged(groups: Mapping[tuple[int, ...], Sequence[object]]) -> list[tuple[tuple[int, ...], list[tuple[int, ...]]]]:
    """Lanes as (beginning, the leads that share it): small groups are decoded together.

    A lane runs alone, so many small lanes would each decode a nearly empty batch. Leads that
    are neighbours in order join while the beginning they have in common keeps most of each:
    what it loses is prefilled again for every prompt. In the order of the groups.
    """
    order = {lead: place for place, lead in enumerate(groups)}
    clusters: list[tuple[tuple[int, ...], list[tuple[int, ...]]]] = []
    for lead in sorted(lead for lead, group in groups.items() if len(group) < SMALL_LANE):
        if clusters:
            shared, members = clusters[-1]
            common = tuple(commonprefix([shared, lead]))
            if len(common) >= KEPT_SHARE * max(len(member) for member in (*members, lead)):
                clusters[-1] = (common, [*members, lead])
                continue
        clusters.append((lead, [lead]))
    clusters += [(lead, [lead]) for lead, group in groups.items() if len(group) >= SMALL_LANE]
    return sorted(clusters, key=lambda cluster: min(order[member] for member in cluster[1]))
