"""``macaron-loop chat``: talk to a generation, and see who answers and what each hop took."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from loop.cli.options import Config, Json, print_json

if TYPE_CHECKING:
    from rich.text import Text

    from loop.core.conversation import Exchange
    from loop.serve.turns import Delivered, Turns

OWNER = "local"
PROMPT = "you> "

Said = Annotated[str | None, typer.Argument(help="One message; without it, lines are read until the end of input.")]
From = Annotated[str, typer.Option("--generation", "-g", help="A number or a digest's start; default: the champion.")]
Pin = Annotated[str, typer.Option("--pin", help="The specialist that answers, instead of the router's choice.")]
After = Annotated[str | None, typer.Option("--after", metavar="TURN", help="Go on from this turn.")]


def chat(
    message: Said = None,
    which: From = "",
    pin: Pin = "",
    after: After = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Talk to the champion on this machine: each turn is routed, answered, and summed up.

    Conversations are kept in the store: --after TURN goes on from any turn, also from one that
    was gone on from before.
    """
    from loop.app import open_store, open_turns
    from loop.cli.lineage import find_or_champion
    from loop.settings import load_settings

    settings = load_settings(config)
    store = open_store(settings)
    generation = find_or_champion(settings, store, which)
    lines = [message] if message is not None else _typed(sys.stdin, sys.stdin.isatty())
    with open_turns(settings, store, generation.pair) as turns:
        asyncio.run(_talk(turns, lines, pin, after, as_json))


def _typed(stream: Iterable[str], asked: bool) -> Iterable[str]:
    """Lines as they are typed; ``asked`` shows a prompt before each."""
    source = iter(stream)
    while True:
        if asked:
            print(PROMPT, end="", flush=True)
        line = next(source, None)
        if line is None:
            return
        yield line.rstrip("\n")


async def _talk(turns: Turns, lines: Iterable[str], pin: str, after: str | None, as_json: bool) -> None:
    from rich.console import Console

    from loop.core.errors import UserError
    from loop.core.pair import Message

    console = Console(highlight=False, soft_wrap=True)
    for line in lines:
        if not line.strip():
            continue
        said = (Message(role="user", content=line),)
        try:
            delivered = await turns.deliver(OWNER, said, after=after, pin=pin)
        except LookupError as error:
            raise UserError(f"{error.args[0]}; each reply shows the turn that --after takes") from error
        after = delivered.id
        if as_json:
            print_json({"turn": delivered.id, "exchange": delivered.exchange})
        else:
            console.print(_reply(delivered))
            console.print(_account(delivered.id, delivered.exchange))
        await turns.settle()


def _reply(delivered: Delivered) -> Text:
    from rich.text import Text

    from loop.cli.episode import printable

    return Text(printable(delivered.exchange.reply.text))


def _account(turn: str, exchange: Exchange) -> Text:
    """Who answered and why, each hop's seconds and tokens, and the turn's id."""
    from rich.text import Text

    who = ", ".join(
        f"{route.label} ({route.how}{f' {route.probability:.2f}' if route.probability else ''})"
        for route in exchange.routes
    )
    hops = ", ".join(
        f"{hop.hop} {hop.seconds:.1f} s, {hop.generated_tokens} of {hop.prompt_tokens}" for hop in exchange.hops
    )
    return Text(f"{who}; {hops} tokens; {turn}", style="dim")
