"""``macaron-loop keys``: who may use the server, for what, how much, and until when."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from loop.cli.options import Config, Json, print_json
from loop.core.errors import UserError

if TYPE_CHECKING:
    from loop.core.access import Key
    from loop.store.access import SqlAccess

app = typer.Typer(help="Keys of the server: create, list, revoke.", no_args_is_help=True)

OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}")
_DAYS = re.compile(r"(\d{1,5})d")


def owned(name: str) -> str:
    """An owner's name as it may be stored and shown; UserError."""
    if not OWNER.fullmatch(name):
        raise UserError(f"--owner {name!r}: up to 64 letters, digits and . _ @ + -, the first a letter or digit")
    return name


@app.command("create")
def create(
    owner: Annotated[str, typer.Option(help="Whose conversations and adapters the key reaches.")],
    scope: Annotated[list[str] | None, typer.Option(help="chat (default), metrics or owner; may be repeated.")] = None,
    requests_per_minute: Annotated[int | None, typer.Option(min=1, help="Default: no limit.")] = None,
    tokens_per_day: Annotated[int | None, typer.Option(min=1, help="Prompt and generated; default: no limit.")] = None,
    expires: Annotated[str, typer.Option(metavar="WHEN", help="2027-01-31, a time, or 30d; default: never.")] = "",
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Make a key and print its secret, which is kept nowhere and cannot be shown again."""
    from loop.core.access import Quota, Scope

    named, end = owned(owner), _moment(expires, datetime.now(UTC)) if expires else None
    known = [str(name) for name in Scope]
    for name in scope or ():
        if name not in known:
            raise UserError(f"--scope {name!r} is unknown: choose of {', '.join(known)}")
    scopes = tuple(dict.fromkeys(Scope(name) for name in scope or ("chat",)))
    quota = Quota(requests_per_minute=requests_per_minute, tokens_per_day=tokens_per_day)
    secret, key = _access(config).create(named, scopes, quota, end)
    if as_json:
        print_json({"secret": secret, "key": key})
        return
    print(secret)
    typer.echo(f"this is {key.grant.key} of {owner}; keep the secret now, it cannot be shown again", err=True)


@app.command("list")
def list_(
    owner: Annotated[str, typer.Option(help="The keys of one owner; default: all.")] = "",
    config: Config = None,
    as_json: Json = False,
) -> None:
    """List keys, oldest first, with what they may spend and what they spent today."""
    keys = _access(config).issued(owned(owner) if owner else None)
    if as_json:
        print_json(keys)
        return
    if not keys:
        print("there is no key: macaron-loop keys create --owner NAME")
        return
    print("\n".join(_described(key, datetime.now(UTC)) for key in keys))


@app.command("revoke")
def revoke(
    key: Annotated[str, typer.Argument(metavar="ID", help="The key's id, key_...; never its secret.")],
    config: Config = None,
    as_json: Json = False,
) -> None:
    """End a key: from its next request on it opens nothing."""
    if not re.fullmatch(r"key_[0-9a-f]{16}", key):
        # What was typed may be a secret: it is not repeated.
        raise UserError("that is no key's id, which reads key_ and 16 digits: `macaron-loop keys list` shows them")
    try:
        ended = _access(config).revoke(key)
    except LookupError as error:
        raise UserError(f"{error.args[0]}: `macaron-loop keys list` shows those there are") from None
    print_json(ended) if as_json else print(f"{key} of {ended.grant.owner} is revoked since {ended.revoked}")


def _access(config: Config) -> SqlAccess:
    from loop.app import open_access
    from loop.settings import load_settings

    return open_access(load_settings(config))


def _moment(text: str, now: datetime) -> datetime:
    """When a key ends, from a date, a time (UTC where it has no zone) or so many days; UserError."""
    days = _DAYS.fullmatch(text)
    try:
        end = now + timedelta(days=int(days[1])) if days else datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise UserError(f"--expires {text!r}: give a date such as 2027-01-31, a time, or days such as 30d") from None
    end = end if end.tzinfo else end.replace(tzinfo=UTC)
    if end <= now:
        raise UserError(f"--expires {text} is over already: give a time to come, or leave it out")
    return end


def _described(key: Key, now: datetime) -> str:
    """What a key opens, until when, and what of its quota is spent, on three lines."""
    grant, quota, end = key.grant, key.grant.quota, _minute(key.expires)
    standing = f"until {end}" if key.expires else "without an end"
    if key.revoked:
        standing = f"revoked {_minute(key.revoked)}"
    elif key.expires and datetime.fromisoformat(key.expires) <= now:
        standing = f"expired {end}"
    rate = f"{quota.requests_per_minute:,} requests a minute" if quota.requests_per_minute else "any number of requests"
    most = f" of {quota.tokens_per_day:,}" if quota.tokens_per_day else ""
    return (
        f"{grant.key} of {grant.owner}: {', '.join(grant.scopes)}\n"
        f"  {standing}, {f'last used {_minute(key.used)}' if key.used else 'never used'}\n"
        f"  {rate}, {key.tokens_today:,}{most} tokens today (UTC)"
    )


def _minute(at: str | None) -> str:
    return (at or "")[:16].replace("T", " ")
