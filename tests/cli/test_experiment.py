"""Exports at the command line: what one store shows, its own file shows, and files of other seeds join."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from loop.core.experiment import Arm, Experiment
from loop.core.plan import Plan
from loop.store.blobs import FsBlobs
from loop.store.migrate import upgrade
from loop.store.sql import SqlStore
from tests import fakes
from tests.cli.test_bad_input import one_sentence, run
from tests.pipeline.test_experiment import grow, plan_of_arms

ARMS = (Arm.ITERATED, Arm.ONE_SHOT, Arm.NULL, Arm.BEST_OF_K)
SHOW = ("experiment", "show", "--json")


def _grown(home: Path, *seeds: int, plan: Plan | None = None) -> Path:
    """A home with the lineages of these seeds, exported."""
    home.mkdir()
    url, blobs = f"sqlite:///{home / 'loop.db'}", FsBlobs(url=str(home / "blobs"))
    upgrade(url)
    loop = fakes.loop(SqlStore(url, blobs), blobs, home / "scratch")
    grow(loop, Experiment(name="main", arms=ARMS, generations=2, seeds=seeds), plan or plan_of_arms())
    done = run(home, "experiment", "export", "--out", "export.json")
    assert done.returncode == 0, done.stderr
    return home


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("export")
    return {
        "both": _grown(folder / "both", 1, 10),
        "one": _grown(folder / "one", 1),
        "ten": _grown(folder / "ten", 10),
        "other": _grown(folder / "other", 10, plan=plan_of_arms().revise(gate={"margin": 5.0})),
    }


def test_the_store_and_its_own_export_show_the_same_findings(homes: dict[str, Path], tmp_path: Path) -> None:
    stored = run(homes["both"], *SHOW)
    read = run(tmp_path, *SHOW, "--from", str(homes["both"] / "export.json"))
    assert stored.returncode == read.returncode == 0, stored.stderr + read.stderr
    assert json.loads(stored.stdout) == json.loads(read.stdout)
    assert json.loads(stored.stdout)["contrasts"]["one_shot"]["n"] > 0
    assert not (tmp_path / "loop.db").exists()  # files need no store


def test_seeds_of_two_machines_join_to_the_findings_of_one(homes: dict[str, Path], tmp_path: Path) -> None:
    files = [argument for name in ("ten", "one") for argument in ("--from", str(homes[name] / "export.json"))]
    joined = run(tmp_path, *SHOW, *files)
    assert joined.returncode == 0, joined.stderr
    # digests leave seconds out, which are each machine's own
    assert json.loads(joined.stdout)["digest"] == json.loads(run(homes["both"], *SHOW).stdout)["digest"]


def test_the_plots_name_every_arm_with_its_figures(homes: dict[str, Path], tmp_path: Path) -> None:
    done = run(tmp_path, *SHOW, "--from", str(homes["one"] / "export.json"), "--plots", str(tmp_path / "a" / "plots"))
    assert done.returncode == 0, done.stderr
    gains, less = sorted((tmp_path / "a" / "plots").iterdir())
    assert gains.name == "gain-over-generation-0-by-arm-and-generation.svg" and less.suffix == ".svg"
    drawn = ElementTree.parse(gains)
    names = {element.text for element in drawn.iter("{http://www.w3.org/2000/svg}title")}
    for arm in json.loads(done.stdout)["arms"]:
        for point in arm["points"]:
            gain = point["gain"]
            said = f"{gain['point']:+.1f} [{gain['low']:+.1f}, {gain['high']:+.1f}]"
            assert f"{arm['arm'].replace('_', ' ')} {point['number']}: {said}" in names
    (tmp_path / "file").write_text("")
    one, where = str(homes["one"] / "export.json"), str(tmp_path / "file")
    one_sentence(run(tmp_path, *SHOW, "--from", one, "--plots", where), 2, "cannot write the plots", where)


def test_what_does_not_join_is_one_sentence(homes: dict[str, Path], tmp_path: Path) -> None:
    one, other = (str(homes[name] / "export.json") for name in ("one", "other"))
    one_sentence(run(tmp_path, *SHOW, "--from", one, "--from", other), 2, one, other, "plans")
    document = json.loads(Path(one).read_text())
    (tmp_path / "newer.json").write_text(json.dumps(document | {"schema_version": 2}))
    one_sentence(run(tmp_path, *SHOW, "--from", "newer.json"), 2, "newer.json", "of this version")
    document["lineages"][0]["root"]["scores"][0] = 1.5
    (tmp_path / "changed.json").write_text(json.dumps(document))
    one_sentence(run(tmp_path, *SHOW, "--from", "changed.json"), 2, "changed.json", "was changed")
    one_sentence(run(tmp_path, *SHOW, "--from", one, "--name", "x"), 2, "--name", "--from")
    one_sentence(run(tmp_path, "experiment", "export", "--out", "x.json"), 2, "no examined generation")


def test_an_export_has_figures_and_no_texts(homes: dict[str, Path]) -> None:
    text = (homes["both"] / "export.json").read_text()
    document = json.loads(text)
    assert len(document["lineages"]) == 8 and len(document["cases"]) == 1
    assert set(document["lineages"][0]) == {"arm", "seed", "base", "shared", "plan", "root", "generations", "packages"}
    assert str(homes["both"]) not in text and "\n" not in text.rstrip()
