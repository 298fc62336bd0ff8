"""``macaron-loop experiment``: control arms on equal budgets, and whether gains compound."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loop.cli.files import read_noun, write_files, write_noun
from loop.cli.options import Config, Json, print_json

if TYPE_CHECKING:
    from rich.table import Table

    from loop.core.errors import UserError
    from loop.core.experiment import Experiment, Findings
    from loop.core.experiment_record import ExperimentRecord
    from loop.settings import Settings
    from loop.store.sql import SqlStore

app = typer.Typer(help="Do gains compound? Arms on equal budgets.", no_args_is_help=True)

EXPORT = "macaron-loop experiment export --out"
ALL = "iterated,one_shot,weights_only,harness_only,best_of_k,null,sham"
Name = Annotated[
    str | None, typer.Option("--name", help="The experiment; its lineages begin with it. Default: family.")
]


@app.command("run")
def run(
    arms: Annotated[str, typer.Option("--arms", help="Which arms, with commas between.")] = ALL,
    generations: Annotated[int, typer.Option("--generations", min=1, help="How many each arm grows.")] = 3,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="How many seeds, from the settings' seed on.")] = 3,
    name: Name = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Grow every arm under every seed and compare them; run it again to resume or to add arms and seeds.

    Each arm is a lineage of its own, NAME.ARM.sSEED. Arms spend what `iterated` spent.
    """
    from loop.app import open_store
    from loop.settings import load_settings

    settings = load_settings(config)
    wanted = _experiment(settings, name, arms, generations, seeds)
    store = open_store(settings)
    _grow(settings, store, wanted)
    _show(store, wanted.name, as_json)


@app.command("show")
def show(
    name: Name = None,
    files: Annotated[
        list[Path] | None, typer.Option("--from", help="A file that `export` wrote; give it again to join several.")
    ] = None,
    plots: Annotated[
        Path | None, typer.Option("--plots", help="A folder to write the plots of the arms to, as SVG files.")
    ] = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """What the arms came to so far: gains over generation 0, budgets, compounding.

    From the store, or from exports of other machines or nights with other seeds.
    """
    from loop.core.errors import UserError

    if not files:
        from loop.app import open_store
        from loop.settings import load_settings

        settings = load_settings(config)
        _show(open_store(settings), name or settings.family, as_json, plots)
        return
    if name is not None:
        raise UserError("--name and --from exclude each other: a file names its experiment itself")
    from loop.core.experiment_record import ExperimentRecord
    from loop.findings import record_findings
    from loop.gains.records import join

    record = join({str(file): read_noun(ExperimentRecord, file, "export", EXPORT) for file in files})
    found = record_findings(record, strict=True)
    if found is None:
        raise UserError(f"{files[0]} holds no examined generation: export again when there is one")
    _print(found, as_json, plots)
    for note in _packages(record):
        print(f"macaron-loop: {note}", file=sys.stderr)


@app.command("export")
def export(
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")],
    name: Name = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Write all that the findings are computed from as one JSON file, to be joined with other seeds' by `show --from`.

    Case scores, budgets and verdicts; no texts, paths or secrets.
    """
    from loop.app import open_store
    from loop.findings import read_record
    from loop.gains.records import join
    from loop.settings import load_settings

    settings = load_settings(config)
    record = read_record(open_store(settings), name or settings.family)
    if record is None or not record.lineages:
        raise _nothing(name or settings.family)
    whole = join({f"experiment {record.name}": record})
    write_noun(whole, out, "export", compact=True)
    if as_json:
        print_json({"path": str(out), "export": whole.digest, "lineages": len(whole.lineages)})
        return
    print(f"{out}: export {whole.short} of experiment {whole.name}, {len(whole.lineages)} lineages")


def _experiment(settings: Settings, name: str | None, arms: str, generations: int, seeds: int) -> Experiment:
    from pydantic import ValidationError

    from loop.core.errors import UserError
    from loop.core.experiment import Arm, Experiment

    known = {arm.value: arm for arm in Arm}
    wanted = tuple(dict.fromkeys(part.strip() for part in arms.split(",") if part.strip()))
    strangers = [part for part in wanted if part not in known]
    if strangers or not wanted:
        raise UserError(f"there is no arm {(strangers or [''])[0]!r}: choose of {', '.join(known)}")
    try:
        return Experiment(
            name=name or settings.family,
            arms=tuple(known[part] for part in wanted),
            generations=generations,
            seeds=tuple(range(settings.seed, settings.seed + seeds)),
        )
    except ValidationError as error:
        raise UserError(
            f"{name or settings.family!r} cannot name an experiment: use up to 32 letters, digits, - and _"
        ) from error


def _grow(settings: Settings, store: SqlStore, wanted: Experiment) -> None:
    from rich.console import Console

    from loop.app import experiment_plan, first_pair, open_contract, open_loop, stage_arm
    from loop.cli.progress import TerminalProgress
    from loop.pipeline.experiment import run_experiment

    contract = open_contract(settings)
    plan = experiment_plan(settings, contract)
    with (
        TerminalProgress(Console(stderr=True)) as progress,
        open_loop(settings, store, contract, progress) as loop,
    ):
        run_experiment(
            wanted,
            plan,
            lambda family, mine: stage_arm(settings, loop, family, mine),
            lambda seed: first_pair(settings.model_copy(update={"seed": seed}), loop),
            lambda family: store.lease(family, f"macaron-loop experiment run, {wanted.name}"),
        )


def _show(store: SqlStore, name: str, as_json: bool, plots: Path | None = None) -> None:
    from loop.findings import read_findings

    found = read_findings(store, name, strict=True)
    if found is None:
        raise _nothing(name)
    _print(found, as_json, plots)


def _nothing(name: str) -> UserError:
    from loop.core.errors import UserError

    return UserError(f"experiment {name} has no examined generation: macaron-loop experiment run --name {name}")


def _print(found: Findings, as_json: bool, plots: Path | None) -> None:
    if plots is not None:
        from loop.report.page import arm_plots

        write_files(arm_plots(found), plots, "plots")
    if as_json:
        print_json(found)
        return
    from rich.console import Console

    from loop.report.page import verdict

    console = Console()
    for table in tables(found):
        console.print(table)
    console.print(verdict(found))


def _packages(record: ExperimentRecord) -> list[str]:
    """A note for each package that was not the same wherever the exams were played."""
    names = sorted({name for line in record.lineages for name in line.packages})
    found = {name: sorted({line.packages.get(name, "unknown") for line in record.lineages}) for name in names}
    return [f"{name} was {' and '.join(met)} where the exams were played" for name, met in found.items() if met[1:]]


def tables(found: Findings) -> list[Table]:
    """The arms with their gains, and what each spent; within 80 columns."""
    from rich.table import Table

    from loop.cli.render import bounds

    gains = Table(title=f"experiment {found.name}: gain over generation 0, mean of seeds", title_justify="left")
    for column in ("arm", "gen", "score", "gain", "iterated − arm"):
        gains.add_column(column, no_wrap=True)
    costs = Table(title="what learning cost, mean of seeds, and what the gate said", title_justify="left")
    for column in ("arm", "seeds", "sampled", "trained", "ratio", "trials", "a point", "passed"):
        costs.add_column(column, justify="left" if column == "arm" else "right", no_wrap=column == "arm")
    for arm in found.arms:
        last = arm.points[-1].number
        for point in arm.points:
            ends = point.number == last
            score = "-" if point.score is None else f"{point.score:.1f}"
            contrast = bounds(found.contrasts.get(arm.arm), signed=True) if arm.arm in found.contrasts else ""
            gain = bounds(point.gain, signed=True)
            head = arm.arm.value if point is arm.points[0] else ""
            gains.add_row(head, str(point.number), score, gain, contrast if ends else "")
        ratio = "-" if arm.ratio is None else f"{arm.ratio:.3f}"
        costs.add_row(
            arm.arm.value,
            str(len(arm.seeds)),
            f"{arm.budget.generated_tokens:,}",
            f"{arm.budget.trained_tokens:,}",
            ratio,
            str(arm.budget.trials),
            "-" if arm.per_point is None else _short(arm.per_point),
            f"{arm.passed} of {arm.examined}",
        )
    return [gains, costs]


def _short(tokens: float) -> str:
    """Within the column, however little was gained."""
    return f"{tokens:,.0f}" if tokens < 999_999.5 else f"{tokens / 1e6:,.1f} M"
