"""``macaron-loop adapters``: revisions, and what they store against merged copies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from loop.cli.options import Config, Json, print_json

if TYPE_CHECKING:
    from loop.core.accounting import Accounting

app = typer.Typer(help="Adapter revisions and their parameter accounting.", no_args_is_help=True)


@app.command("list")
def list_(config: Config = None, as_json: Json = False) -> None:
    """Every revision of the lineage, oldest first, with where it serves, and what was imported with its standing."""
    from loop.app import open_store
    from loop.settings import load_settings
    from loop.store.imports import SqlImports

    settings = load_settings(config)
    store = open_store(settings)
    rows = [(g.number, g.decision.standing, a) for g in store.generations(settings.family) for a in g.pair.adapters]
    imports = {imported.adapter.digest: (imported, standing) for imported, standing in SqlImports(store.url).all()}
    if as_json:
        own = [{"generation": n, "standing": s, "adapter": a} for n, s, a in rows]
        print_json(own + [{"generation": None, "standing": s, "imported": i} for i, s in imports.values()])
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"adapters of lineage {settings.family}", title_justify="left")
    for name in ("label", "revision", "parent", "rank", "values", "generations"):
        table.add_column(name)
    seen: dict[str, list[str]] = {digest: [standing.value] for digest, (_, standing) in imports.items()}
    for number, standing, adapter in rows:
        seen.setdefault(adapter.digest, []).append(f"{number} {standing}")
    known = {adapter.digest: adapter for _, _, adapter in rows}
    for adapter in (known | {digest: imported.adapter for digest, (imported, _) in imports.items()}).values():
        parent = adapter.owner if adapter.digest in imports else adapter.parent[:8] if adapter.parent else "fresh"
        table.add_row(
            f"{adapter.label} {adapter.role}",
            adapter.digest[:8],
            parent,
            str(adapter.rank),
            f"{adapter.stored_values:,}",
            ", ".join(seen[adapter.digest]),
        )
    Console().print(table)


@app.command("inspect")
def inspect(
    which: Annotated[str, typer.Argument(metavar="GENERATION", help="A number or the start of a digest.")] = "0",
    published: Annotated[str, typer.Option(help="Count published figures instead: venti or tall.")] = "",
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Count the values on disk: logical against stored, one shared base against merged copies."""
    from loop.core.accounting import published as figures

    if published:
        entry = figures(published)
        _print_accounting(f"{entry.name}: {entry.source}", entry.accounting(), as_json)
        return
    from loop.app import open_store
    from loop.cli.lineage import find
    from loop.core.accounting import Accounting, adapter_size, safetensors_shapes
    from loop.settings import load_settings

    settings = load_settings(config)
    store = open_store(settings)
    generation = find(settings, store, which)
    sizes = tuple(
        adapter_size(a.label, safetensors_shapes(store.blobs.get_tree(a.blob) / "adapter_model.safetensors"))
        for a in generation.pair.adapters
    )
    base = generation.pair.base
    accounting = Accounting(base_values=base.parameters, adapters=sizes)
    _print_accounting(f"generation {generation.number} on {base.id}", accounting, as_json)


def _print_accounting(title: str, accounting: Accounting, as_json: bool) -> None:
    figures = {
        "base_values": accounting.base_values,
        "adapter_values": accounting.adapter_values,
        "logical_values": accounting.logical_values,
        "merged_values": accounting.merged_values,
        "ratio": accounting.ratio,
    }
    if as_json:
        print_json({"title": title, "adapters": accounting.adapters} | figures)
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for name, justify in (("part", "left"), ("values", "right"), ("about", "right"), ("bytes on disk", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    table.add_row("base, shared", f"{accounting.base_values:,}", short(accounting.base_values), "")
    for adapter in accounting.adapters:
        size = f"{adapter.size:,}" if adapter.size else ""
        table.add_row(f"adapter {adapter.label}", f"{adapter.values:,}", short(adapter.values), size)
    count = len(accounting.adapters)
    table.add_section()
    table.add_row(f"{count} adapters", f"{accounting.adapter_values:,}", short(accounting.adapter_values), "")
    table.add_row("logical = resident", f"{accounting.logical_values:,}", short(accounting.logical_values), "")
    table.add_row(f"{count} merged copies", f"{accounting.merged_values:,}", short(accounting.merged_values), "")
    Console().print(table)
    Console().print(
        f"one shared base needs {100 * accounting.ratio:.1f} % of the merged copies' values", highlight=False
    )


def short(values: int) -> str:
    """A count as people say it: 30.75B, 4.88M."""
    for unit, size in (("T", 10**12), ("B", 10**9), ("M", 10**6), ("K", 10**3)):
        if values >= size:
            digits = 1 if values >= 100 * size else 2
            return f"{values / size:.{digits}f}{unit}"
    return str(values)
