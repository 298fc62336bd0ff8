"""``macaron-loop contract``: the external contract that generations are judged by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from loop.cli.options import Json, print_json

if TYPE_CHECKING:
    from loop.core.contract import Contract
    from loop.judges.verify import VerifyReport

app = typer.Typer(help="Contract versions: list, show, new, verify, publish.", no_args_is_help=True)

Version = Annotated[str, typer.Argument(help="A contract version, e.g. v1.")]


@app.command("list")
def list_(as_json: Json = False) -> None:
    """The versions that are here, with their digests and whether they are published."""
    from loop.library import contract_versions, default_root, load_contract, published

    root = default_root()
    found = {version: load_contract(root, version) for version in contract_versions(root)}
    locked = published(root)
    if as_json:
        print_json({name: {"digest": c.digest, "published": name in locked} for name, c in found.items()})
        return
    for name, contract in found.items():
        state = "published" if name in locked else "draft"
        print(f"{name:<6} {contract.short}  {state:<9}  {len(contract.scenarios)} scenarios  {contract.title}")


@app.command("show")
def show(version: Version = "v1", as_json: Json = False) -> None:
    """Axioms and scenarios with where each comes from, and the criteria of both halves."""
    from loop.library import default_root, load_contract

    contract = load_contract(default_root(), version)
    if as_json:
        print_json(contract)
        return
    from rich.console import Console
    from rich.table import Table

    console = Console()
    console.print(f"contract {contract.version}  {contract.title}\nfiles {contract.folder_digest}", highlight=False)
    axioms = Table(title="axioms", title_justify="left")
    for name in ("axiom", "name from", "definition from", "holds when"):
        axioms.add_column(name)
    for axiom in contract.axioms:
        axioms.add_row(axiom.name, axiom.name_provenance, axiom.definition_provenance, axiom.holds)
    scenarios = Table(title="scenarios", title_justify="left")
    for name in ("scenario", "from", "pole A", "pole B", "visible", "sealed"):
        scenarios.add_column(name)
    for scenario in contract.scenarios:
        halves = [sum(c.half == half for c in scenario.criteria) for half in ("visible", "sealed")]
        scenarios.add_row(
            scenario.name, scenario.provenance, scenario.pole_a, scenario.pole_b, *(str(count) for count in halves)
        )
    console.print(axioms, scenarios)


@app.command("new")
def new(
    version: Annotated[str, typer.Argument(help="The new version's name, e.g. v2.")],
    source: Annotated[str, typer.Option("--from", help="The version it starts as a copy of.")] = "v1",
    as_json: Json = False,
) -> None:
    """Copy a version to a new one: a draft to edit, that no score is bound to yet."""
    from loop.library import CONTRACTS, default_root, draft

    root = default_root()
    made = draft(root, version, source)
    if as_json:
        print_json({"version": version, "from": source, "folder": str(root / CONTRACTS / version), "published": False})
        return
    print(f"{root / CONTRACTS / version} is a draft, a copy of {source} ({len(made.scenarios)} scenarios).")
    print("Next: edit its scenarios, with labelled replies for every check you change;")
    for step in (f"contract verify {version}", f"contract publish {version}", f"rescore --contract {version}"):
        print(f"  macaron-loop {step}")


@app.command("verify")
def verify(version: Version = "v1", as_json: Json = False) -> None:
    """Run every check on its labelled replies; exit 1 when one errs."""
    from loop.library import default_root, load_contract

    report = examined(load_contract(default_root(), version))
    if as_json:
        print_json(report)
    else:
        print("\n".join(report.lines()))
    if not report.clean:
        raise typer.Exit(1)


@app.command("publish")
def publish(version: Version = "v1", as_json: Json = False) -> None:
    """Verify a version and write its digests into LOCK.toml; refused when a check errs."""
    from loop.library import default_root
    from loop.library import publish as lock

    locked = lock(default_root(), version, lambda contract: examined(contract).problems())
    print_json({"version": version, "folder": locked.folder}) if as_json else print(
        f"{version} is published: {locked.folder}"
    )


def examined(contract: Contract) -> VerifyReport:
    """The report of running each check of a contract on its labelled replies."""
    from loop.judges.rules import Rules
    from loop.judges.verify import verify as run_checks

    return run_checks(contract, Rules())
