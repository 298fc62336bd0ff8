"""One episode on a terminal: its turns, its criteria with their evidence, and nothing that steers the terminal."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from loop.app import open_store
from loop.cli.episode import print_episode, printable
from loop.core.budget import Budget
from loop.core.errors import UserError
from loop.core.stage import Stage
from loop.settings import Settings
from loop.store.sql import SqlStore
from tests.cli.test_bad_input import one_sentence, run
from tests.store import lineage


@pytest.fixture
def store(tmp_path: Path) -> SqlStore:
    """A store with one shard of episodes and its visible scores."""
    made = open_store(Settings(home=tmp_path))
    root = lineage.root()
    made.register(root, None)
    attempt = made.begin(lineage.FAMILY, root, lineage.plan())
    attempt.record(Stage.COLLECT, lineage.shard(), Budget(), "collect/000")
    attempt.record(Stage.SCORE, lineage.scores(lineage.shard()), Budget(), "score/collect/000")
    return made


def test_an_episode_is_found_by_its_first_digits_with_every_verdict_on_it(tmp_path: Path, store: SqlStore) -> None:
    wanted = lineage.shard().episodes[0]
    found = store.episode(wanted.digest[:10])
    assert found.episode == wanted
    scores = [score for score in lineage.scores(lineage.shard()).scores if score.episode == wanted.digest]
    assert [scored.score for scored in found.scores] == scores
    said = json.loads(run(tmp_path, "episode", wanted.digest[:12], "--json").stdout)
    assert said["scores"][0]["score"]["verdicts"][0]["criterion"] == scores[0].verdicts[0].criterion


def test_an_unknown_or_short_digest_is_refused_in_a_sentence(tmp_path: Path, store: SqlStore) -> None:
    one_sentence(run(tmp_path, "episode", "0123456789"), 2, "no episode of this store")
    one_sentence(run(tmp_path, "episode", "xyz"), 2, "at least 6")
    with pytest.raises(UserError, match="at least 6"):
        store.episode("abc")


def test_what_a_model_said_cannot_steer_the_terminal(store: SqlStore) -> None:
    found = store.episode(lineage.shard().episodes[0].digest)
    hostile = found.episode.turns[-1].revise(content="\x1b[2J\x1b]0;gone\x07 [red]markup[/red]\u202e")
    changed = found.revise(episode=found.episode.revise(turns=(hostile,)))
    out = io.StringIO()
    print_episode(Console(file=out, force_terminal=True, width=80), changed)
    shown = out.getvalue()
    assert "\x1b[2J" not in shown and "\x1b]0" not in shown and "\u202e" not in shown and "\x07" not in shown
    assert "[red]markup[/red]" in shown  # text, not markup
    assert printable("a\x1bb\n") == "a\\x1bb\n"
