"""``chat`` as people use it: replies, who gave them, and going on from any turn."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from loop.cli.chat import _talk, _typed
from loop.core.errors import UserError
from loop.serve.turns import Turns
from tests.cli.test_bad_input import one_sentence, run
from tests.serve.simulated import Simulated, engine, made

__all__ = ["engine", "made"]

TURN = re.compile(r"turn_[0-9a-f]{32}")


def talk(turns: Turns, *lines: str, pin: str = "", after: str | None = None, as_json: bool = False) -> None:
    asyncio.run(_talk(turns, lines, pin, after, as_json))


def test_a_reply_is_shown_with_who_gave_it_and_lines_go_on_from_each_other(
    made: Turns, capsys: pytest.CaptureFixture[str]
) -> None:
    talk(made, "L1: secret-3 please", "", "L2: and then")
    first, about, second, _ = capsys.readouterr().out.splitlines()
    assert first == "secret-3 after 1" and second == "secret-3 after 2"
    assert about.startswith("L1 (routed") and "route" in about and "answer" in about and TURN.search(about)


def test_any_turn_can_be_gone_on_from_again(made: Turns, capsys: pytest.CaptureFixture[str]) -> None:
    talk(made, "L1: secret-3", as_json=True)
    shown = json.loads(capsys.readouterr().out)
    for _ in range(2):
        talk(made, "L1: go on", after=shown["turn"])
        assert capsys.readouterr().out.splitlines()[0] == "secret-3 after 2"
    assert shown["exchange"]["routes"][0]["label"] == "L1"


def test_what_a_model_says_cannot_steer_the_terminal(
    made: Turns, engine: Simulated, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tests.serve.simulated.answer", lambda request: "\x1b]0;owned\x07\x1b[2J[bold]hi[/bold]")
    talk(made, "hello", pin="L1")
    out = capsys.readouterr().out
    assert "\x1b" not in out and "\x07" not in out and "[bold]hi[/bold]" in out


def test_bad_input_is_one_sentence(made: Turns, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no specialist is registered as 'L9'"):
        talk(made, "hello", pin="L9")
    with pytest.raises(UserError, match="there is no turn 'turn_0'"):
        talk(made, "hello", after="turn_0")
    one_sentence(run(tmp_path, "chat", "hello"), 2, "no generation yet")


def test_typed_lines_end_with_the_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(_typed(iter(["one\n", "two"]), asked=True)) == ["one", "two"]
    assert capsys.readouterr().out == "you> " * 3
