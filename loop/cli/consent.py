"""``macaron-loop consent``: whether an owner's conversations may be learned from, and since when."""

from __future__ import annotations

from typing import Annotated

import typer

from loop.cli.conversations import Owner, erase_forgotten, open_, print_erasure
from loop.cli.keys import owned
from loop.cli.options import Config, Json, print_json
from loop.core.errors import UserError

app = typer.Typer(help="Consent to learn from conversations; off until granted.", no_args_is_help=True)

Terms = Annotated[str, typer.Option("--terms", metavar="VERSION", help="Which terms the owner agreed to.")]
Who = Annotated[str, typer.Option("--who", help="Who enters it; default: your account on this machine.")]


@app.command("grant")
def grant(owner: Owner, terms: Terms, who: Who = "", config: Config = None, as_json: Json = False) -> None:
    """Record that an owner agreed to terms: conversations that begin from now on may be exported."""
    if not terms.strip():
        raise UserError("--terms names the version of the terms that the owner agreed to")
    consent = open_(config)[1].decide(owned(owner), True, terms, who)
    print_json(consent) if as_json else print(f"{owner} consents since {consent.since}, to terms {terms}")


@app.command("withdraw")
def withdraw(owner: Owner, who: Who = "", config: Config = None, as_json: Json = False) -> None:
    """End an owner's consent, and erase what was made of the owner's conversations under it."""
    settings, living = open_(config)
    consent = living.decide(owned(owner), False, "", who)
    done = erase_forgotten(settings, living)
    if as_json:
        print_json({"consent": consent, "erased": done})
        return
    print(f"{owner} does not consent since {consent.at}")
    print_erasure(done)


@app.command("show")
def show(owner: Owner, config: Config = None, as_json: Json = False) -> None:
    """Show every decision of an owner, oldest first; the last one holds."""
    decisions = open_(config)[1].history(owned(owner))
    if as_json:
        print_json(decisions)
        return
    for consent in decisions:
        what = f"granted, terms {consent.terms}" if consent.held else "withdrawn"
        print(f"{consent.at[:16].replace('T', ' ')}  {what}, entered by {consent.who}")
    if not decisions:
        print(f"{owner} was never asked, or never agreed: nothing is learned from")
