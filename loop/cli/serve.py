"""``macaron-loop serve``: the champion behind an HTTP proxy that people's clients speak to."""

from __future__ import annotations

import logging
import sys
from typing import Annotated, Literal

import typer

from loop.cli.keys import owned
from loop.cli.options import Config

Policy = Annotated[Literal["champion"], typer.Option("--policy", help="What is served; a promotion is followed.")]
Host = Annotated[str, typer.Option("--host", help="Where to listen.")]
Port = Annotated[int, typer.Option("--port", min=0, max=65535, help="0 takes any free port.")]
Owner = Annotated[str, typer.Option("--owner", help="Whose conversations these are where no keys are kept.")]
Drain = Annotated[float, typer.Option("--drain", min=0, help="Seconds in which what was begun is answered at the end.")]


def serve(
    policy: Policy = "champion",
    host: Host = "127.0.0.1",
    port: Port = 8000,
    owner: Owner = "local",
    drain: Drain = 60.0,
    config: Config = None,
) -> None:
    """Serve the champion to OpenAI's and Anthropic's clients.

    Where keys are kept (macaron-loop keys create), only they open the server; until the first is
    made it listens on this machine alone, for everyone on it.
    Conversations are recognised by what was said, and kept in the store. A first SIGTERM or
    Ctrl-C drains the server: what was begun is answered. A second one ends it.
    """
    from loop.app import make_server, open_store, open_turns
    from loop.core.errors import UserError
    from loop.serve.http.run import Door, address, bound
    from loop.settings import load_settings

    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    settings = load_settings(config)
    store = open_store(settings)
    serving = store.champion(settings.family)
    if serving is None:
        raise UserError(f"lineage {settings.family} has no generation to serve: macaron-loop run --generation 0")
    door = Door(host=host, port=port, owner=owned(owner), drain_seconds=drain)
    with open_turns(settings, store, serving.pair) as turns:
        server = make_server(settings, store, turns, serving, door)
        listening = bound(door)
        print(f"serving generation {serving.number} at {address(listening)}", flush=True)
        if server.service.access is None:
            print(f"there are no keys: everyone on this machine is {owner!r}", file=sys.stderr)
        server.run([listening])
