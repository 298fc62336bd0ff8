"""``rescore``: the stored episodes of a lineage under another contract version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from loop.cli.options import Config, Json, print_json

if TYPE_CHECKING:
    from loop.core.contract import Contract
    from loop.core.generation import Generation
    from loop.core.rescore import Rescore
    from loop.settings import Settings
    from loop.store.sql import SqlStore


def rescore(
    contract: Annotated[str, typer.Option("--contract", help="The version to score under, e.g. v2.")],
    generation: Annotated[
        str | None, typer.Option("--generation", "-g", help="A number (the promoted one) or a digest's start.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every examined generation; the default.")] = False,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Score stored episodes again under another contract version; no model is run.

    Exam episodes get both halves, collected ones the visible half. Nothing is
    scored twice: kill it anywhere, and the same command goes on.
    """
    from loop.app import open_store
    from loop.core.errors import UserError
    from loop.library import default_root, load_contract, published
    from loop.settings import load_settings

    settings = load_settings(config)
    if every and generation is not None:
        raise UserError("--all and --generation exclude each other: leave one of them out")
    root = default_root()
    loaded = load_contract(root, contract)
    store = open_store(settings)
    chosen = _chosen(settings, store, generation)
    found, scored = _rescored(settings, store, loaded, chosen)
    if as_json:
        print_json(_document(found, scored, chosen))
        return
    from rich.console import Console

    from loop.cli.compare import print_rescores

    state = "" if contract in published(root) else " (a draft)"
    title = f"lineage {settings.family} under contract {contract}{state}"
    print_rescores(Console(), title, chosen, found, scored)
    print(f"Compare them: macaron-loop lineage --contract {contract}")


def _chosen(settings: Settings, store: SqlStore, which: str | None) -> tuple[Generation, ...]:
    from loop.cli.lineage import find
    from loop.core.errors import UserError

    if which is not None:
        return (find(settings, store, which),)
    examined = tuple(g for g in store.generations(settings.family) if g.exam is not None)
    if not examined:
        raise UserError(
            f"lineage {settings.family} has no examined generation to score again: macaron-loop run --generation 0"
        )
    return examined


def _rescored(
    settings: Settings, store: SqlStore, contract: Contract, chosen: tuple[Generation, ...]
) -> tuple[dict[str, Rescore], frozenset[str]]:
    """The rescores by generation, and which of them were scored now; recorded ones load no model library."""
    from rich.console import Console

    from loop.app import open_bench
    from loop.cli.progress import TerminalProgress
    from loop.pipeline import rescore as pipeline

    known = {g.digest: pipeline.recorded(store, contract, settings.judge, g) for g in chosen}
    found = {digest: rescore for digest, rescore in known.items() if rescore is not None}
    missing = [generation for generation in chosen if generation.digest not in found]
    if not missing:
        return found, frozenset()
    with (
        store.lease(settings.family, f"macaron-loop rescore --contract {contract.version}"),
        TerminalProgress(Console(stderr=True)) as progress,
        open_bench(settings, store, contract, progress) as bench,
    ):
        found |= {generation.digest: pipeline.rescore(bench, generation) for generation in missing}
    return found, frozenset(generation.digest for generation in missing)


def _document(found: dict[str, Rescore], scored: frozenset[str], chosen: tuple[Generation, ...]) -> list[object]:
    return [
        {
            "number": generation.number,
            "rescore": found[generation.digest],
            "reused": generation.digest not in scored,
        }
        for generation in chosen
    ]
