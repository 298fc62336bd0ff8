"""``macaron-loop conversations``: export what may be learned from, and forget what may not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from loop.cli.keys import owned
from loop.cli.options import Config, Json, print_json
from loop.core.errors import UserError

if TYPE_CHECKING:
    from loop.core.living import Erasure, Talk
    from loop.settings import Settings
    from loop.store.living import SqlLiving

app = typer.Typer(help="People's conversations: list, export, opt out, forget.", no_args_is_help=True)

Owner = Annotated[str, typer.Option("--owner", help="Whose conversations.")]
Turn = Annotated[str, typer.Argument(metavar="TURN", help="Any turn of the conversation.")]


@app.command("list")
def list_(owner: Owner, config: Config = None, as_json: Json = False) -> None:
    """List an owner's conversations, oldest first, and whether consent covers them."""
    _, living = open_(config)
    talks = living.talks(owned(owner))
    if as_json:
        print_json(talks)
        return
    print("\n".join(map(_described, talks)) or f"{owner} has no conversation")


@app.command("export")
def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where the episodes are written, as JSON.")],
    owner: Annotated[list[str] | None, typer.Option("--owner", help="May be repeated; default: who consents.")] = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Write conversations that consent covers as episodes, redacted, for the environment `living`."""
    from loop.cli.files import write_noun
    from loop.serve.export import export

    _, living = open_(config)
    consenting = living.owners()
    for name in owner or ():
        if owned(name) not in consenting:
            raise UserError(
                f"{name} does not consent: `macaron-loop consent grant --owner {name}` records that it does"
            )
    path = file.absolute()
    try:
        path.touch(mode=0o600)
        path.chmod(0o600)
    except OSError as error:
        raise UserError(f"cannot write the export to {file} ({error.strerror}): name another file") from error
    found = export(living, owner or consenting, str(path))
    write_noun(found, path, "export", compact=True)
    # Consent may have been withdrawn while the file was written.
    pruned, _ = _prune(living)
    kinds = ", ".join(f"{kind} {count}" for kind, count in found.redacted.items()) or "nothing"
    if as_json:
        print_json({"file": str(path), "episodes": len(found.episodes) - pruned, "redacted": found.redacted})
        return
    print(f"written to {file}: episodes {len(found.episodes) - pruned}, of owners {len(owner or consenting)}")
    print(f"redacted: {kinds}; what no rule knows is still in it")


@app.command("opt-out")
def opt_out(turn: Turn, owner: Owner, config: Config = None, as_json: Json = False) -> None:
    """Keep one conversation, but never learn from it; what was made of it is erased."""
    settings, living = open_(config)
    try:
        opening = living.opt_out(owned(owner), turn)
    except LookupError as error:
        raise UserError(f"{error.args[0]} of {owner}") from None
    done = erase_forgotten(settings, living)
    if as_json:
        print_json({"opening": opening, "erased": done})
        return
    print(f"the conversation {opening} will not be learned from")
    print_erasure(done)


@app.command("forget")
def forget(
    owner: Owner,
    turn: Annotated[str, typer.Argument(metavar="[TURN]", help="Any turn of the conversation.")] = "",
    all_: Annotated[bool, typer.Option("--all", help="Every conversation of the owner.")] = False,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Delete a conversation, with what was made of it for training."""
    from loop.store.conversations import SqlConversations

    if bool(turn) == all_:
        raise UserError("name one turn of the conversation, or --all for every one of the owner's")
    settings, living = open_(config)
    kept = SqlConversations(settings.database)
    wanted = [talk.opening for talk in living.talks(owned(owner))] if all_ else [turn]
    try:
        turns = sum(kept.forget(owner, name) for name in wanted)
    except LookupError as error:
        raise UserError(f"{error.args[0]} of {owner}") from None
    done = erase_forgotten(settings, living)
    if as_json:
        print_json({"turns": turns, "erased": done})
        return
    print(f"deleted: turns {turns}, of {owner}")
    print_erasure(done)


@app.command("erase")
def erase(config: Config = None, as_json: Json = False) -> None:
    """Erase again what was forgotten while a run held its lineage, or a server deleted."""
    done = erase_forgotten(*open_(config))
    print_json(done) if as_json else print_erasure(done)


def open_(config: Config) -> tuple[Settings, SqlLiving]:
    """The settings, and the consents of their store."""
    from loop.app import open_living
    from loop.settings import load_settings

    settings = load_settings(config)
    return settings, open_living(settings)


def erase_forgotten(settings: Settings, living: SqlLiving) -> Erasure:
    """Take what is forgotten out of stored bodies and of export files."""
    from loop.app import open_blobs
    from loop.store.erase import erase

    exported, unreached = _prune(living)
    return erase(settings.database, open_blobs(settings)).revise(exported=exported, unreached=unreached)


def print_erasure(done: Erasure) -> None:
    """What was taken away, what learned from it before, and what is still to do."""
    print(f"erased: exported episodes {done.exported}, played episodes {done.episodes}, training rows {done.rows}")
    if done.adapters:
        print(f"learned from it before, and unchanged: adapters {', '.join(a[:12] for a in done.adapters)}")
    for family in done.waiting:
        print(f"lineage {family} is being written: run `macaron-loop conversations erase` when that has ended")
    for path in done.unreached:
        print(f"not reached: {path}; delete it and its copies yourself")


def _prune(living: SqlLiving) -> tuple[int, tuple[str, ...]]:
    """Take forgotten cases out of export files: how many, and the files that could not be rewritten."""
    from loop.cli.files import write_noun
    from loop.environments.living import read_export

    forgotten, taken, unreached = living.forgotten(), 0, []
    for path in living.files() if forgotten else ():
        try:
            found = read_export(Path(path))
            kept = tuple(episode for episode in found.episodes if episode.task.case not in forgotten)
            if len(kept) < len(found.episodes):
                write_noun(found.revise(episodes=kept), Path(path), "export", compact=True)
        except UserError:
            unreached.append(path)
            continue
        taken += len(found.episodes) - len(kept)
    return taken, tuple(unreached)


def _described(talk: Talk) -> str:
    standing = "opted out" if talk.opted_out else "covered by consent" if talk.covered else "not covered by consent"
    made = f", exported {talk.exported}" if talk.exported else ""
    begun = talk.begun[:16].replace("T", " ")
    return f"{talk.opening}\n  {begun}, turns {talk.turns}, {standing}{made}"
