"""The router in the loop: its decisions on the open bank become rows, those on the sealed bank its exam."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from loop.core.episode import Episode, EpisodeShard, Split, Task
from loop.core.gate import Interval
from loop.core.noun import seed_from
from loop.core.pair import Pair
from loop.core.routing import RouteBank, RouteCase, RouteContext, RouteKind, RoutingExam, RoutingReport
from loop.core.score import Scorecard
from loop.core.stage import Stage
from loop.core.training_set import Row
from loop.gains.routing import Decided, router_regret, routing_gain, routing_report
from loop.mol.route import render
from loop.pipeline.cards import interference_cards
from loop.pipeline.experience import chain, generated
from loop.pipeline.parts import Loop, Run
from loop.pipeline.routes import RouteJob, ask_routes, decided, route_jobs
from loop.pipeline.steps import each

# Route decisions are at most this share of a training set: the router's adapter also talks.
MOST_OF_ROWS = 0.5
# For so many sealed cases one fresh case of the open bank's templates: the in-distribution figure.
SEALED_A_FAMILIAR = 4


def collect_routes(run: Run) -> dict[str, EpisodeShard]:
    """The parent's router on cases of the open bank, sampled; none where the plan asks for none."""
    plan = run.plan.collect
    if plan.routes == 0:
        return {}
    drawn = [
        case.revise(id=f"{case.id}#{turn}" if turn else case.id)
        for turn in range(plan.rounds)
        for case in _bank(run.loop, Split.TRAIN).draw(plan.routes, seed_from("routes", *run.seed_of(turn)))
    ]
    cases = dealt_out(drawn, seed_from("sham routes", *run.seed)) if run.plan.shuffle else tuple(drawn)
    job = RouteJob(
        engine=run.loop.engine,
        blobs=run.loop.blobs,
        pairs=(run.parent.pair,),
        cases=cases,
        split=Split.TRAIN,
        samples=plan.route_samples,
        temperature=plan.temperature,
        seed=run.plan.seed,
        taught=True,
    )
    return each(run, Stage.COLLECT, EpisodeShard, route_jobs(job, "routes"), ask_routes, generated)


def dealt_out(cases: Sequence[RouteCase], seed: int) -> tuple[RouteCase, ...]:
    """The same cases with each other's wanted labels: the sham's rewards."""
    order = Random(seed).sample(range(len(cases)), len(cases))
    return tuple(case.revise(wanted=cases[source].wanted) for case, source in zip(cases, order, strict=True))


def route_rows(run: Run, shards: Mapping[str, EpisodeShard]) -> tuple[tuple[Row, str], ...]:
    """The first right decision of each case as a row with the router's label, in the order of the cases.

    Cases come in turn from the classes, so that the cap on their share of a training set
    cuts all classes alike. A bank's own answer is marked as supervised.
    """
    first: dict[str, Episode] = {}
    for episode in chain(shards):
        if episode.record.world["right"]:
            first.setdefault(episode.task.digest, episode)
    most = int(MOST_OF_ROWS * run.plan.curate.max_rows)
    return tuple((_row(run, episode), episode.turns[-1].label) for episode in list(first.values())[:most])


def _row(run: Run, episode: Episode) -> Row:
    asked, said = episode.turns
    return Row(
        episode=episode.digest,
        task=episode.task.digest,
        split=episode.task.split,
        environment=episode.task.environment,
        case=episode.task.case,
        level=episode.task.level,
        turn=0,
        generation=run.parent.number,
        licence=run.parent.pair.base.licence,
        score=100.0,
        prompt_ids=said.prompt_ids,
        response_ids=said.token_ids,
        text=said.content,
        request=asked.content,
        supervised=bool(episode.record.world["taught"]),
    )


def sealed_texts(run: Run) -> list[str]:
    """The sealed routing cases as the router reads them, to be fingerprinted where routes are learned.

    The opening is in the ledger.
    """
    if run.plan.collect.routes == 0:
        return []
    run.loop.store.open_holdout(run.attempt, run.parent.digest, "fingerprints of the routing bank")
    return [render(case.context) for case in _bank(run.loop, Split.HOLDOUT).cases]


def examine_routing(run: Run, child: Pair, tasks: Sequence[Task]) -> RoutingExam | None:
    """Both routers on the same sealed cases, greedily; None where the plan or the loop has none.

    The opening of the bank is in the ledger. ``tasks`` are the exam's own, for the regret.
    """
    count, parent = run.plan.examine.routes, run.parent.pair
    if count == 0:
        return None
    run.loop.store.open_holdout(run.attempt, run.parent.digest, "routing bank, exam of the successor")
    sealed, familiar = exam_cases(run.loop, count, run.plan.examine.seed)
    played = router_of(parent) if router_of(parent) == router_of(child) else None
    pairs = {pair.digest: pair for pair in ((parent,) if played else (parent, child))}
    found = {
        split: _asked(run, tuple(pairs.values()), cases, split)
        for split, cases in ((Split.HOLDOUT, sealed), (Split.TRAIN, familiar))
    }
    level = run.plan.gate.level
    who = {"parent": parent.digest, "child": parent.digest if played else child.digest}
    on_sealed = {name: decided(sealed, found[Split.HOLDOUT], digest) for name, digest in who.items()}
    on_familiar = {name: decided(familiar, found[Split.TRAIN], digest) for name, digest in who.items()}
    reports = {name: routing_report(on_sealed[name], on_familiar[name], level) for name in who}
    return RoutingExam(
        parent=reports["parent"],
        child=reports["child"],
        gain=routing_gain(run.plan, on_sealed["parent"], on_sealed["child"]),
        regret=_regret(run, child, tasks),
    )


def exam_cases(loop: Loop, count: int, seed: int) -> tuple[tuple[RouteCase, ...], tuple[RouteCase, ...]]:
    """``count`` sealed cases, the same at every look, and fewer fresh ones of the open bank's templates."""
    familiar = _bank(loop, Split.TRAIN).draw(-(-count // SEALED_A_FAMILIAR), seed_from("in distribution", seed))
    return _bank(loop, Split.HOLDOUT).draw(count, seed), familiar


def router_of(pair: Pair) -> tuple[object, ...]:
    """All of a pair that its routes depend on."""
    routing = pair.harness.routing
    roles = tuple((prompt.label, prompt.role) for prompt in pair.harness.prompts)
    return pair.base, pair.adapter(routing.router or routing.fallback), routing, roles


def _asked(run: Run, pairs: tuple[Pair, ...], cases: tuple[RouteCase, ...], split: Split) -> tuple[Episode, ...]:
    job = RouteJob(run.loop.engine, run.loop.blobs, pairs, cases, split, 1, 0.0, run.plan.seed)
    jobs = route_jobs(job, f"routing/{split.value}")
    return chain(each(run, Stage.EXAMINE, EpisodeShard, jobs, ask_routes, generated))


def _regret(run: Run, child: Pair, tasks: Sequence[Task]) -> Interval | None:
    """The right specialist's score less that of the one the child's router chooses, on the interference cases.

    The right one is that which an environment's episodes feed. A label whose specialist was
    not tried in that place counts as the worst of those that were.
    """
    cards = interference_cards(run, tasks, child)
    own = {environment.name: environment.label for environment in run.loop.environments}
    if not set(own.values()) <= set(cards):
        return None
    met = {row.task.digest: row.task for row in next(iter(cards.values())).scores}
    cases = tuple(
        RouteCase(
            id=digest,
            kind=RouteKind.PLAIN,
            context=RouteContext(message=run.loop.environment(task.environment).text(task, run.loop.contract)),
            wanted=(own[task.environment],),
        )
        for digest, task in met.items()
    )
    job = RouteJob(run.loop.engine, run.loop.blobs, (child,), cases, Split.HOLDOUT, 1, 0.0, run.plan.seed)
    jobs = route_jobs(job, "routing/regret")
    episodes = chain(each(run, Stage.EXAMINE, EpisodeShard, jobs, ask_routes, generated))
    routes = {case.id: route for case, route in decided(cases, episodes, child.digest)}
    oracle = {digest: own[task.environment] for digest, task in met.items()}
    chosen = {digest: route.label for digest, route in routes.items()}
    return router_regret(run.plan, picked(cards, oracle), picked(cards, chosen))


def picked(cards: Mapping[str, Scorecard], labels: Mapping[str, str]) -> Scorecard:
    """One card of each task's score with the adapter of the label picked for it (by task digest)."""
    tables = {label: {row.task.digest: row for row in card.scores} for label, card in cards.items()}
    first = next(iter(cards.values()))
    rows = []
    for row in first.scores:
        tried = [table[row.task.digest] for table in tables.values()]
        table = tables.get(labels[row.task.digest])
        worst = min(tried, key=lambda found: -1.0 if found.score is None else found.score)
        rows.append(worst if table is None else table[row.task.digest])
    return first.revise(pair="", scores=tuple(rows))


def evaluate(loop: Loop, pair: Pair, split: Split, count: int, seed: int) -> RoutingReport:
    """A pair's router on a bank, nothing recorded; the caller notes the opening of a sealed one."""
    sealed, familiar = exam_cases(loop, count, seed)
    banks = {Split.HOLDOUT: sealed, Split.TRAIN: familiar}
    if split is Split.TRAIN:
        banks = {Split.TRAIN: _bank(loop, Split.TRAIN).draw(count, seed_from("in distribution", seed))}
    found: dict[Split, tuple[Decided, ...]] = {}
    for name, cases in banks.items():
        job = RouteJob(loop.engine, loop.blobs, (pair,), cases, name, 1, 0.0, seed)
        jobs = [make() for make in route_jobs(job, name.value).values()]
        loop.progress.stage("routing", f"{name.value} bank, {len(cases)} cases")
        shards = {f"{place:03d}": shard for place, shard in enumerate(loop.executor.map(ask_routes, jobs))}
        found[name] = decided(cases, chain(shards), pair.digest)
    return routing_report(found[split], found.get(Split.TRAIN, ()))


def _bank(loop: Loop, split: Split) -> RouteBank:
    if loop.routing is None:
        raise ValueError("the plan asks for routes, and the loop has no routing bank")
    return loop.routing(split)
