"""``adapters import``, ``export`` and ``examine``: specialists of other owners."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loop.cli.options import Config, Json, print_json

if TYPE_CHECKING:
    from loop.core.imported import Imported, Terms
    from loop.core.pair import Prompt


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
