"""Plug-ins come from entry points alone, one at a time, and say what is wrong in one sentence."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

from loop.core.errors import UserError
from loop.core.noun import Noun
from loop.core.plan import Spec
from loop.plugins import Group, build, executor, load, names

ROOT = Path(__file__).parents[1]
PLUGIN = ROOT / "examples" / "plugin"


def test_an_option_reaches_the_frozen_plug_in() -> None:
    local = executor(Spec(use="local", options={"start_seconds": 5}))
    assert isinstance(local, Noun)
    assert local.model_dump()["start_seconds"] == 5.0
    assert local.workers == 1


def test_an_unknown_name_suggests_the_nearest_and_lists_all() -> None:
    with pytest.raises(UserError) as caught:
        build("executors", Spec(use="locall"))
    assert str(caught.value) == (
        "There is no executor named 'locall'; did you mean 'local'? (known: local, ray)."
    )  # fmt: skip


def test_an_unknown_option_is_named_with_the_nearest() -> None:
    with pytest.raises(UserError, match=r"no option 'start_second' of executor 'local'; did you mean 'start_seconds'"):
        build(Group.EXECUTORS, Spec(use="local", options={"start_second": 5}))


def test_an_option_of_the_wrong_kind_is_named_with_what_was_expected() -> None:
    with pytest.raises(UserError) as caught:
        build("executors", Spec(use="ray", options={"workers": "many"}))
    assert "Option 'workers' of executor 'ray' cannot be used" in str(caught.value)
    assert "valid integer" in str(caught.value)
    assert "\n" not in str(caught.value)


SECRET = "sk-do-not-show-1234567890"
WRONG = (
    [SECRET],
    {"a": SECRET},
    {"url": f"https://user:{SECRET}@host/?key={SECRET}", "api_key": SECRET},
    [{"url": f"https://user:{SECRET}@host/?key={SECRET}", "model": "m", "api_key": SECRET}],
    SECRET,
    f"https://user:{SECRET}@host/",
)


@pytest.mark.parametrize(("group", "name"), [(group, name) for group in Group for name in names(group)])
def test_no_option_of_any_plug_in_shows_a_value_that_it_refuses(group: Group, name: str) -> None:
    """Whatever an option is called: neither the sentence nor the traceback holds the value."""
    options = load(group, name).model_fields
    for option in (*options, "no_such_option"):
        refused = 0
        for value in WRONG:
            try:
                build(group, Spec(use=name, options={option: value}))  # type: ignore[dict-item]
            except UserError as error:
                refused += 1
                assert option in str(error)
                assert SECRET not in "".join(traceback.format_exception(error)), (option, value)
        assert refused, f"{option} takes every one of the values: add one that it refuses"


def test_listing_and_loading_one_plug_in_imports_no_other() -> None:
    code = (
        "import sys; from loop.plugins import build, names; from loop.core.plan import Spec\n"
        "names('engines'); build('executors', Spec(use='local'))\n"
        "print([name for name in ('ray', 'torch', 'transformers', 'mlflow') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("group", list(Group))
def test_every_built_in_entry_point_loads_pickles_and_has_a_digest(group: Group) -> None:
    found = names(group)
    assert found
    for name in found:
        plugin = load(group, name)()
        assert pickle.loads(pickle.dumps(plugin)) == plugin
        assert len(plugin.digest) == 64
        assert plugin.model_config["frozen"]


def test_the_documented_plug_in_installs_and_its_tasks_and_rollouts_run(tmp_path: Path) -> None:
    """The package of examples/plugin, installed by pip into a folder of its own."""
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    for name in ("pyproject.toml", "macaron_sums.py"):
        (source / name).write_bytes((PLUGIN / name).read_bytes())
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", str(target), str(source)], check=True, capture_output=True)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(target), str(ROOT)))}
    done = subprocess.run([sys.executable, "-c", _USE], capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["True", "6 6 0", "['digits-1', 'digits-2']", "True", "Sums"]


def test_the_example_environment_is_about_thirty_lines() -> None:
    lines = (PLUGIN / "macaron_sums.py").read_text().splitlines()
    code = [line for line in lines if line.strip() and not line.strip().startswith(('"""', "#"))]
    assert len(code) <= 35


_USE = """
from loop.plugins import environment, names
from loop.core.contract import Contract, ScoringRule
from loop.core.conversation import Reply
from loop.core.episode import Split
from loop.core.plan import Spec
from loop.core.pair import Harness, Prompt, Routing

contract = Contract(version="v0", title="none", folder_digest="0" * 64, axioms=(), scenarios=(), banks=(),
    rule=ScoringRule(axioms_weight=0.5, balance_weight=0.5, living_need=0.7, living_process=0.3))
harness = Harness(schema_version=1, name="h", prompts=(Prompt(label="L1", role="agent", system="Add."),),
    routing=Routing(prompt="", labels=("L1",), fallback="L1"))
print("sums" in names("environments"))
sums = environment(Spec(use="sums", options={"levels": 2}))
train, again = (sums.tasks(contract, Split.TRAIN, 6, 1, (1, 2)) for _ in range(2))
holdout = sums.tasks(contract, Split.HOLDOUT, 6, 1, (1, 2))
print(len(train), len(set(train)), len({t.seed for t in train} & {t.seed for t in holdout}))
print(sorted({t.case for t in train}))
rollout = sums.rollout(train[0], harness, contract)
said = next(rollout)
try:
    rollout.send(Reply(text="7"))
except StopIteration as stop:
    slots = stop.value.record.slots
words = said.messages[-1].content.split()
print(train == again and int(words[2]) + int(words[4].rstrip("?")) == int(slots["answer"]))
print(type(sums).__name__)
"""
