"""``rollback``: point a lineage's policy records at an earlier generation."""

from __future__ import annotations

from typing import Annotated

import typer

from loop.cli.lineage import find
from loop.cli.options import Config, Json, Which, print_json


def rollback(
    which: Which,
    reason: Annotated[str, typer.Option("--reason", help="Kept with the move.")] = "rolled back by hand",
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Make an earlier generation the champion again; the move is kept, no generation is lost.

    Generations above it stay in the lineage, and `rollback` to one of them goes forward again.
    """
    from loop.app import open_store
    from loop.core.errors import UserError
    from loop.core.gate import Standing
    from loop.settings import load_settings
    from loop.store.registry import CHAMPION, owners

    settings = load_settings(config)
    store = open_store(settings)
    generation = find(settings, store, which)
    if generation.decision.standing is Standing.REJECTED:
        raise UserError(
            f"generation {generation.number} ({generation.short}) was rejected, so it cannot be the champion: "
            "choose one that `lineage` lists as promoted or root"
        )
    with store.lease(settings.family, f"macaron-loop rollback {which}"):
        # Also those of owners who came later: their adapters are not in it, and it is the champion all the same.
        later = {policy.owner for policy in store.status(settings.family).policies if policy.name == CHAMPION}
        for owner in sorted(later.union(owners(generation))):
            store.point(settings.family, owner, CHAMPION, generation, reason)
    policies = store.status(settings.family).policies
    if as_json:
        print_json(policies)
        return
    for policy in policies:
        print(f"{policy.owner}/{policy.name} -> generation {policy.number} ({policy.generation[:12]})")
