"""Every settings file in examples/ makes a plan: its plug-ins load, its profile and contract exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from loop import plugins
from loop.app import experiment_plan, make_plan, open_contract
from loop.settings import load_settings

FILES = sorted((Path(__file__).parents[1] / "examples").glob("*.toml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_an_example_s_settings_make_a_plan(file: Path) -> None:
    settings = load_settings(file)
    plan = make_plan(settings, open_contract(settings))
    assert sum(plan.collect.tasks.values()) > 0 and sum(plan.examine.tasks.values()) > 0
    for spec in plan.environments:
        assert plugins.environment(spec).name == spec.use
    plugins.explorer(plan.explorer)
    assert experiment_plan(settings, open_contract(settings)).explorer.use != "keep"
