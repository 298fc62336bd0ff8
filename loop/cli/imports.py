"""``adapters import``, ``export`` and ``examine``: specialists of other owners."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loop.cli.options import Config, Json, print_json

if TYPE_CHECKING:
    from rich.console import Console

    from loop.core.generation import Generation
    from loop.core.imported import Composition, Imported, Terms
    from loop.core.pair import Prompt
    from loop.settings import Settings
    from loop.store.sql import SqlStore


def import_(
    path: Annotated[Path, typer.Argument(help="A PEFT folder: adapter_config.json, adapter_model.safetensors.")],
    owner: Annotated[str, typer.Option("--owner", help="Whose adapter it is.")],
    licence: Annotated[str, typer.Option("--licence", help="An SPDX expression, like Apache-2.0.")],
    label: Annotated[
        str, typer.Option("--label", help="Its place in the registry: a new label, or one it takes over.")
    ],
    role: Annotated[str, typer.Option("--role", help="What it is for, in a word.")],
    environment: Annotated[
        list[str] | None, typer.Option("--environment", help="An environment that it was trained for; may be repeated.")
    ] = None,
    prompt: Annotated[
        Path | None, typer.Option("--prompt", help="Its prompt file (as in a harness); needed for a new label.")
    ] = None,
    description: Annotated[str, typer.Option("--description", help="The router's line on it.")] = "",
    base_digest: Annotated[
        str,
        typer.Option("--base-digest", help="Weights digest of the base it was trained on, if the folder has no probe."),
    ] = "",
    signature: Annotated[
        Path | None, typer.Option("--signature", help="The owner's Ed25519 signature of the folder's sha256sum lines.")
    ] = None,
    public_key: Annotated[Path | None, typer.Option("--public-key", help="The owner's key (PEM).")] = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Take an adapter of another owner into quarantine: checked as data, never run, not served until examined."""
    from loop.app import import_adapter, open_store
    from loop.core.errors import UserError
    from loop.library import load_prompt
    from loop.settings import load_settings

    if (signature is None) is not (public_key is None):
        raise UserError("--signature and --public-key are given together: one says nothing without the other")
    signed = (signature, public_key) if signature and public_key else None
    settings = load_settings(config)
    words = {"owner": owner, "licence": licence, "label": label, "role": role, "description": description}
    shown = load_prompt(prompt) if prompt is not None else None
    terms = _terms(words, tuple(environment or ()), shown, base_digest)
    imported = import_adapter(settings, open_store(settings), path, terms, signed)
    if as_json:
        print_json(imported)
        return
    adapter = imported.adapter
    print(
        f"{adapter.owner}/{adapter.label} ({adapter.short}) is quarantined: rank {adapter.rank}, "
        f"{adapter.stored_values:,} values, {adapter.licence}, {_signed(imported)}"
    )
    print(f"Next: macaron-loop adapters examine {adapter.short}")


def _terms(words: dict[str, str], environments: tuple[str, ...], prompt: Prompt | None, base_digest: str) -> Terms:
    from pydantic import ValidationError

    from loop.core.errors import UserError
    from loop.core.imported import Terms

    try:
        shown = prompt.revise(label=words["label"], role=words["role"]) if prompt else None
        return Terms(**words, environments=environments, prompt=shown, base_digest=base_digest)
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"--{first['loc'][0]} cannot be {first['input']!r}: {first['msg']}") from None


def _signed(imported: Imported) -> str:
    return f"signed by {imported.signer[:16]}" if imported.signer else "not signed"


def export(
    label: Annotated[str, typer.Argument(help="The specialist, e.g. L1.")],
    folder: Annotated[Path, typer.Argument(help="A folder that does not exist yet.")],
    which: Annotated[
        str, typer.Option("--generation", "-g", help="A number or a digest's start; default: the champion.")
    ] = "",
    config: Config = None,
) -> None:
    """Write a specialist as a PEFT folder for others to import, and print the lines that its owner signs."""
    import shutil

    from loop.app import adapter_listing, open_store
    from loop.cli.lineage import find_or_champion
    from loop.core.errors import UserError
    from loop.settings import load_settings

    settings = load_settings(config)
    store = open_store(settings)
    generation = find_or_champion(settings, store, which)
    adapter = generation.pair.adapter(label)
    if adapter is None:
        known = ", ".join(adapter.label for adapter in generation.pair.adapters)
        raise UserError(f"generation {generation.number} has no adapter {label}: choose one of {known}")
    try:
        shutil.copytree(store.blobs.get_tree(adapter.blob), folder, copy_function=shutil.copyfile)
    except OSError as error:
        raise UserError(
            f"cannot write {folder} ({error.strerror or error}): name a folder that is not there yet"
        ) from error
    folder.chmod(0o755)
    print(adapter_listing(folder), end="")


def examine(
    which: Annotated[str, typer.Argument(metavar="ADAPTER", help="An imported adapter: digest, label or OWNER/LABEL.")],
    force: Annotated[bool, typer.Option("--force", help="Promote whatever the gate says; recorded for ever.")] = False,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Put an imported adapter into the champion's system, examine it beside its parts, and let the gate decide.

    The sealed holdout is opened for it, which its ledger shows. When the gate promotes the composed
    system it is the next generation and the adapter leaves quarantine; else both are kept as they are.
    """
    from rich.console import Console

    from loop.app import examined, open_store
    from loop.cli.lineage import find_or_champion
    from loop.cli.render import print_generation
    from loop.settings import load_settings
    from loop.store.imports import SqlImports

    settings = load_settings(config)
    store = open_store(settings)
    imported = SqlImports(store.url).find(which)
    generation = _compose(settings, store, find_or_champion(settings, store, ""), imported, force)
    found = examined(store, generation)
    if as_json:
        print_json({"generation": generation, "composition": found})
        return
    console = Console(highlight=False)
    print_generation(console, generation, None)
    if found is not None:
        _print_composition(console, found)


def _compose(settings: Settings, store: SqlStore, champion: Generation, imported: Imported, force: bool) -> Generation:
    from rich.console import Console

    from loop.app import make_plan, open_contract, open_loop
    from loop.cli.progress import TerminalProgress
    from loop.pipeline.compose import compose, composition_plan

    contract = open_contract(settings)
    plan = composition_plan(make_plan(settings, contract), imported)
    with (
        store.lease(settings.family, f"macaron-loop adapters examine {imported.adapter.short}"),
        TerminalProgress(Console(stderr=True)) as progress,
        open_loop(settings, store, contract, progress) as loop,
    ):
        return compose(loop, champion, plan, imported, forced=force)


def _print_composition(console: Console, found: Composition) -> None:
    """Three tables of at most 80 columns: scores, what the whole is over its parts, who answered."""
    from rich.table import Table

    from loop.cli.render import bounds

    names = list(found.scores["composed"])
    scores = Table(title="sealed score, composed and alone", title_justify="left")
    over = Table(title="the composed system, less", title_justify="left")
    routes = Table(title="who answered", title_justify="left")
    for table in (scores, over, routes):
        table.add_column("")
    for name in names:
        scores.add_column(name, justify="right")
        over.add_column(name, justify="right")
    for system, row in found.scores.items():
        scores.add_row(system, *(bounds(row.get(name)) for name in names))
    for system, row in found.over.items():
        over.add_row(system, *(bounds(row.get(name), signed=True) for name in names))
    over.add_row("strongest is", *(found.strongest[name] for name in names), style="dim")
    labels = sorted({label for row in found.routes.values() for label in row})
    for label in labels:
        routes.add_column(label, justify="right")
    for name, counts in found.routes.items():
        routes.add_row(name, *(str(counts.get(label, 0)) for label in labels))
    for table in (scores, over, routes):
        console.print(table)
    console.print(f"right routes would add {bounds(found.regret, signed=True)} points")
