"""Recipes as data."""

from __future__ import annotations

from pathlib import Path

import pytest

from loop.core.errors import UserError
from loop.trainers.profiles import load_profile, profile_names


def test_every_shipped_profile_parses_under_its_own_name() -> None:
    assert profile_names() == ("laptop", "laptop-brief", "macaron-tall", "macaron-venti", "small")
    assert [load_profile(name).name for name in profile_names()] == list(profile_names())


def test_the_published_recipes_are_as_published() -> None:
    venti, tall = load_profile("macaron-venti"), load_profile("macaron-tall")
    assert (venti.rank, venti.alpha, venti.dropout) == (16, 32, 0)
    assert (tall.rank, tall.alpha, tall.dropout) == (64, 128, 0)
    assert tall.expert_parameters == ("experts.gate_up_proj", "experts.down_proj")
    for profile in (venti, tall):
        recipe = (profile.learning_rate, profile.batch_rows, profile.epochs, profile.schedule, profile.warmup_ratio)
        assert recipe == (5e-6, 4, 4, "cosine", 0.1)
        assert profile.steps is None


def test_a_file_of_ones_own_is_read_by_path(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('name = "mine"\nrank = 2\nalpha = 4\ntargets = ["q_proj"]\nlearning_rate = 1e-3\nbatch_rows = 1\n')
    assert load_profile(str(file)).rank == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rank = ", "not valid TOML"),
        ('name = "x"\nrank = 2', "alpha: Field required"),
        (
            'name = "x"\nrank = 0\nalpha = 1\ntargets = []\nlearning_rate = 1e-3\nbatch_rows = 1',
            "rank: .*greater than 0",
        ),
        ('name = "x"\nrank = 1\nalpha = 1\ntargets = []\nlearning_rate = 1e-3\nbatch_rows = 1\nlr = 2', "lr: Extra"),
    ],
)
def test_a_malformed_file_is_one_sentence_naming_the_place(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(text)
    with pytest.raises(UserError, match=message):
        load_profile(str(file))


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UserError, match="laptop, laptop-brief, macaron-tall, macaron-venti, small"):
        load_profile("lapdog")
