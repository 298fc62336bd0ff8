"""Settings to Loop: the only module that names concrete parts.

Everything is imported where it is used, so that reading the lineage loads no model
library and ``--help`` loads nothing at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from loop import library, plugins
from loop.core.base import Base
from loop.core.contract import Contract
from loop.core.errors import UserError
from loop.core.experiment import Findings
from loop.core.generation import Generation
from loop.core.noun import seed_from
from loop.core.pair import Adapter, Harness, Pair
from loop.core.plan import Plan, Spec
from loop.core.stage import Stage
from loop.core.training_set import TrainingProfile
from loop.findings import read_findings
from loop.pipeline.parts import Loop
from loop.ports import Executor, Judge, Progress, Tracker
from loop.settings import Settings

if TYPE_CHECKING:
    from loop.core.imported import Composition, Imported, Terms
    from loop.engines.install import Build
    from loop.judges.llm import LlmJudge
    from loop.pipeline.rescore import Bench
    from loop.serve.http.run import Door, Server
    from loop.serve.turns import Turns
    from loop.store.access import SqlAccess
    from loop.store.blobs import FsBlobs
    from loop.store.living import SqlLiving
    from loop.store.sql import SqlStore


def open_blobs(settings: Settings) -> FsBlobs:
    """The blobs of these settings."""
    from loop.store.blobs import FsBlobs

    return FsBlobs(url=settings.blobs, cache=str(settings.home.absolute() / "cache"))


def open_store(settings: Settings) -> SqlStore:
    """The store, brought to the newest schema; UserError when a newer program wrote it."""
    from loop.store.migrate import upgrade
    from loop.store.sql import SqlStore

    settings.home.mkdir(parents=True, exist_ok=True)
    upgrade(settings.database)
    return SqlStore(settings.database, open_blobs(settings))


def open_access(settings: Settings) -> SqlAccess:
    """The keys of these settings' store, brought to the newest schema as ``open_store`` does."""
    from loop.store.access import SqlAccess

    open_store(settings)
    return SqlAccess(settings.database)


def open_living(settings: Settings) -> SqlLiving:
    """The consents of these settings' store, brought to the newest schema as ``open_store`` does."""
    from loop.store.living import SqlLiving

    open_store(settings)
    return SqlLiving(settings.database)


def open_contract(settings: Settings) -> Contract:
    """The contract version of these settings, checked against the lock."""
    return library.load_contract(library.default_root(), settings.contract)


def open_harness(settings: Settings) -> Harness:
    """The harness that generation 0 of a lineage starts with."""
    return library.load_harness(library.default_root() / "harnesses" / settings.harness)


def open_profile(settings: Settings) -> TrainingProfile:
    """The training recipe by name or path."""
    from loop.trainers.profiles import load_profile

    return load_profile(settings.profile)


def open_tracker(settings: Settings) -> Tracker:
    """MLflow, or nothing when tracking is off."""
    if settings.tracking == "off":
        from loop.tracking.quiet import QuietTracker

        return QuietTracker()
    from loop.tracking.mlflow import MlflowTracker

    return MlflowTracker(uri=settings.tracking, experiment=settings.family)


def open_judge(settings: Settings, store: SqlStore, contract: Contract) -> Judge:
    """The judge of a run; one of language models must grade as it was calibrated, or UserError."""
    from loop.judges.calibration import Calibration
    from loop.judges.drift import make_ready
    from loop.judges.llm import LlmJudge

    judge = plugins.judge(settings.judge)
    if isinstance(judge, LlmJudge):
        make_ready(judge, contract, lambda digest: store.load(Calibration, digest))
    return judge


def open_language_judge(settings: Settings) -> LlmJudge:
    """The judge of these settings with its keys in place; UserError when it asks no language model."""
    from loop.judges.llm import LlmJudge

    judge = plugins.judge(settings.judge)
    if not (isinstance(judge, LlmJudge) and judge.endpoints):
        raise UserError(
            f'the judge of these settings ({settings.judge.use}) asks no language model; set [judge] use = "llm" '
            "with endpoints in its options"
        )
    for endpoint in judge.endpoints:
        endpoint.key()
    return judge


def known_base(settings: Settings, store: SqlStore) -> Base | None:
    """The base of this lineage, or None before its first generation."""
    known = store.generations(settings.family)
    return known[0].pair.base if known else None


def open_executor(settings: Settings) -> Executor:
    """The executor by name with ``workers`` jobs at once; Ray joins ``ray_address`` when one is given."""
    options: dict[str, str | int | None] = {}
    if settings.executor == "ray":
        options = {"address": settings.ray_address, "workers": settings.workers}
    if settings.executor == "local":
        options = {"processes": settings.workers}
    return plugins.executor(Spec(use=settings.executor, options=dict(options)))


def make_plan(settings: Settings, contract: Contract) -> Plan:
    """What an attempt depends on, of all the settings."""
    return Plan(
        seed=settings.seed,
        contract=contract.digest,
        engine=settings.engine,
        judge=settings.judge,
        explorer=settings.explorer,
        trainer=settings.trainer,
        environments=settings.environments,
        collect=settings.sizes.collect,
        curate=settings.sizes.curate,
        profile=open_profile(settings),
        explore=settings.sizes.explore,
        examine=settings.sizes.examine,
        gate=settings.sizes.gate,
        routing=library.routing_digest(library.default_root()) if asks_for_routes(settings) else "",
    )


def asks_for_routes(settings: Settings) -> bool:
    """Whether the router is trained or examined, so that the plan depends on the routing bank."""
    return bool(settings.sizes.collect.routes or settings.sizes.examine.routes)


@contextmanager
def open_loop(settings: Settings, store: SqlStore, contract: Contract, progress: Progress) -> Iterator[Loop]:
    """Every part a run needs; the executor is closed at the end."""
    from loop.judges.embedder import MiniLm

    executor = open_executor(settings)
    try:
        yield Loop(
            family=settings.family,
            contract=contract,
            environments=tuple(plugins.environment(spec) for spec in settings.environments),
            engine=plugins.engine(settings.engine),
            judge=open_judge(settings, store, contract),
            embedder=MiniLm(),
            explorer=plugins.explorer(settings.explorer),
            curator=plugins.curator(settings.sizes.curate.curator),
            trainer=plugins.trainer(settings.trainer),
            executor=executor,
            store=store,
            blobs=store.blobs,
            tracker=open_tracker(settings),
            progress=progress,
            scratch=settings.home.absolute() / "scratch",
            canaries=plugins.environment(Spec(use="canaries")),
            routing=partial(library.load_routing, library.default_root()),
        )
    finally:
        executor.close()


def stage_arm(settings: Settings, loop: Loop, family: str, plan: Plan) -> Loop:
    """The loop of one arm's lineage: the same parts, with the arm's explorer and a tracker of its own."""
    tracker = open_tracker(settings.model_copy(update={"family": family}))
    return replace(loop, family=family, explorer=plugins.explorer(plan.explorer), tracker=tracker)


def experiment_plan(settings: Settings, contract: Contract) -> Plan:
    """The plan that an experiment's arms vary: harnesses are searched, as weights are trained."""
    plan = make_plan(settings, contract)
    return plan.revise(explorer=Spec(use="exemplars")) if plan.explorer.use == "keep" else plan


@contextmanager
def open_bench(settings: Settings, store: SqlStore, contract: Contract, progress: Progress) -> Iterator[Bench]:
    """What scoring stored episodes again needs: no engine, no trainer; the executor is closed at the end."""
    from loop.pipeline.rescore import Bench

    executor = open_executor(settings)
    try:
        judge = plugins.judge(settings.judge)
        yield Bench(store, contract, judge, settings.judge, executor, progress)
    finally:
        executor.close()


def as_planned(settings: Settings, plan: Plan) -> Settings:
    """These settings with the parts that a recorded plan examined with; nothing is published from them."""
    parts = {"engine": plan.engine, "judge": plan.judge, "environments": plan.environments, "seed": plan.seed}
    return settings.model_copy(update=parts | {"tracking_uri": "off"})


def write_report(settings: Settings, store: SqlStore, path: Path | None = None) -> Path:
    """Write the lineage's page, by default beside the database; raises OSError."""
    return _write_page(settings, store, path or settings.home / "report.html", read_findings(store, settings.family))


def attach_report(settings: Settings, store: SqlStore, tracker: Tracker, generation: Generation) -> None:
    """Write the page and keep it, and each of its plots, with the generation's run; raises OSError."""
    from loop.report.page import plots

    found = read_findings(store, settings.family)
    tracker.attach(generation, _write_page(settings, store, settings.home / "report.html", found))
    with TemporaryDirectory() as folder:
        for name, svg in plots(store, generation, found).items():
            path = Path(folder) / name
            path.write_text(svg, encoding="utf-8")
            tracker.attach(generation, path)


def _write_page(settings: Settings, store: SqlStore, target: Path, found: Findings | None) -> Path:
    from loop.report.page import page

    target.write_text(page(store, settings.family, found), encoding="utf-8")
    return target


def prepare_base(settings: Settings) -> Base:
    """Fetch and convert the base once; later calls return what is remembered."""
    from loop.engines.prepare import prepare_base as prepare

    return prepare(settings.base, open_blobs(settings), settings.base_sha256, settings.home.absolute() / "bases")


def install_engine(settings: Settings, name: str, build: Build) -> tuple[Path, str]:
    """Install an engine under the home folder; its folder, and what was installed."""
    from loop.engines.install import install_vllm

    folder = settings.home.absolute() / "engines" / name
    return folder, install_vllm(folder, build)


@contextmanager
def open_turns(settings: Settings, store: SqlStore, pair: Pair) -> Iterator[Turns]:
    """People's turns on one pair, on the engine of these settings; what was begun is answered at the end."""
    from loop.serve.hub import Hub
    from loop.serve.turns import Turns
    from loop.store.conversations import SqlConversations
    from loop.store.imports import SqlImports

    SqlImports(store.url).refuse(pair)
    hub = Hub(plugins.engine(settings.engine), pair.base, store.blobs)
    try:
        yield Turns(pair, hub, SqlConversations(settings.database), settings.seed)
    finally:
        hub.close()


def make_server(settings: Settings, store: SqlStore, turns: Turns, serving: Generation, door: Door) -> Server:
    """The HTTP server over people's turns, which follows the policy record; UserError for a door that stands open."""
    from loop.engines.tokens import load_tokens
    from loop.serve.champion import Champion
    from loop.serve.http.doors import shut_once_keyed
    from loop.serve.http.run import Server
    from loop.serve.http.server import make_app
    from loop.serve.http.service import Service
    from loop.store.responses import SqlResponses

    access = open_access(settings)

    def has_keys() -> bool:
        return bool(access.issued())

    if not door.is_local and not has_keys():
        raise UserError(f"{door.host} is reached from other machines and there is no key: macaron-loop keys create")
    champion = Champion(turns, serving, lambda: store.champion(settings.family))
    words = load_tokens(serving.pair.base, store.blobs)
    responses = SqlResponses(settings.database)
    service = Service(turns, words, responses, access if has_keys() else None, door.owner)
    beside = (champion.follow, lambda: shut_once_keyed(service, access, has_keys))
    return Server(make_app(service), door, lambda: champion.prepare(serving.pair), beside)


def import_adapter(
    settings: Settings, store: SqlStore, path: Path, terms: Terms, signed: tuple[Path, Path] | None
) -> Imported:
    """Check a PEFT folder against the lineage's base and put its adapter under quarantine; UserError."""
    from loop.store.database import now, who
    from loop.store.imports import SqlImports
    from loop.trainers.received import receive

    base = known_base(settings, store) or prepare_base(settings)
    imported = receive(path, base, store.blobs, terms, signed=signed, who=who(), at=now())
    return SqlImports(store.url).add(imported)


def examined(store: SqlStore, generation: Generation) -> Composition | None:
    """What was found of the composed system that a generation is; None where it is none."""
    from loop.core.imported import Composition

    origin = store.origin(generation)
    return origin[0].find(Stage.EXAMINE, Composition, "composition") if origin else None


def adapter_listing(folder: Path) -> str:
    """The lines that the owner of a PEFT folder signs."""
    from loop.trainers.received import listing_of

    return listing_of(folder)


def first_pair(settings: Settings, loop: Loop) -> Pair:
    """Generation 0's pair: the base, a fresh adapter for each label, the starting harness."""
    base = prepare_base(settings)
    harness = open_harness(settings)
    profile = open_profile(settings)
    adapters = tuple(
        _fresh(loop, base, profile, prompt.label, prompt.role, settings.seed) for prompt in harness.prompts
    )
    return Pair(base=base, adapters=adapters, harness=harness)


def _fresh(loop: Loop, base: Base, profile: TrainingProfile, label: str, role: str, seed: int) -> Adapter:
    return loop.trainer.fresh(base, loop.blobs, label, role, seed_from("fresh", seed, label), profile)


def finished(settings: Settings, store: SqlStore, number: int, plan: Plan) -> Generation | None:
    """What growing from ``number`` under this plan has already registered, or None; loads no model."""
    known = [g for g in store.generations(settings.family) if g.number == number]
    if not known:
        return None
    return store.result(settings.family, store.generation(settings.family, number), plan)
