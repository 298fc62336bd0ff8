"""What language models may be asked for one generation, however many stages, shards, tries and rescores it takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from loop.core.contract import Criterion
from loop.core.plan import Plan, Spec
from loop.judges.llm import LlmJudge
from loop.pipeline.generation import plant, run_generation
from loop.pipeline.parts import Loop
from loop.pipeline.rescore import Bench, rescore
from loop.store.blobs import FsBlobs
from loop.store.migrate import upgrade
from loop.store.sql import SqlStore
from tests import fakes
from tests.judges.endpoint import grade, serve
from tests.judges.judged import judge_at
from tests.pipeline.test_generation import Breaking
from tests.pipeline.test_rescore import ONE

ASKED = Criterion.model_validate(
    {
        "id": "kind",
        "axiom": "forward_movement",
        "half": "visible",
        "text": "Kind.",
        "check": {"kind": "judge", "rubric": "Is it kind?", "samples": 1},
    }
)
SCENARIO = ONE.scenarios[0]
CONTRACT = ONE.revise(scenarios=(SCENARIO.revise(criteria=(*SCENARIO.criteria, ASKED)),))
# By hand: 12 x 4 collected, 4 x 4 x 2 for diversity, 40 x 2 of the exam, one visible judged criterion each.
EVERY = 48 + 32 + 80


def _loop(folder: Path, judge: LlmJudge) -> Loop:
    url, blobs = f"sqlite:///{folder / 'loop.db'}", FsBlobs(url=str(folder / "blobs"))
    upgrade(url)
    return fakes.loop(SqlStore(url, blobs), blobs, folder / "scratch", judge=judge, contract=CONTRACT)


def _plan() -> Plan:
    return fakes.plan(contract=CONTRACT.digest)


def _spent(loop: Loop) -> tuple[int, int]:
    """Judge calls of the registered generation, and of its attempt's budget rows."""
    grown = loop.store.generations("test")[1]
    assert isinstance(loop.store, SqlStore)
    rows = loop.store.made_by(grown)[0].budget().values()
    return grown.budget.judge_calls, sum(row.judge_calls for row in rows)


@pytest.mark.parametrize(("cap", "asked"), [(None, EVERY), (EVERY + 1, EVERY), (60, 60), (0, 0)])
def test_a_generation_asks_no_more_than_its_cap_over_all_stages(tmp_path: Path, cap: int | None, asked: int) -> None:
    with serve(lambda number, body: grade(1)) as served:
        loop = _loop(tmp_path, judge_at(served.url, generation_calls=cap))
        run_generation(loop, plant(loop, fakes.pair(), 1), _plan())
    assert len(served.bodies) == asked and _spent(loop) == (asked, asked)


@pytest.mark.parametrize("after", [4, 9])
def test_a_resume_goes_on_with_what_the_first_try_left(tmp_path: Path, after: int) -> None:
    with serve(lambda number, body: grade(1)) as served:
        loop = _loop(tmp_path, judge_at(served.url, generation_calls=60))
        root = plant(loop, fakes.pair(), 1)
        with pytest.raises(KeyboardInterrupt):
            run_generation(Loop(**(vars(loop) | {"executor": Breaking(after=after)})), root, _plan())
        run_generation(loop, root, _plan())
    assert len(served.bodies) == 60 and _spent(loop) == (60, 60)


def test_a_rescore_has_a_cap_of_its_own(tmp_path: Path) -> None:
    with serve(lambda number, body: grade(1)) as served:
        loop = _loop(tmp_path, judge_at(served.url, generation_calls=60))
        grown = run_generation(loop, plant(loop, fakes.pair(), 1), _plan())
        assert isinstance(loop.store, SqlStore)
        spec = Spec(use="llm")
        bench = Bench(loop.store, CONTRACT, loop.judge, spec, fakes.LocalExecutor(), fakes.Silence())
        assert rescore(bench, grown).judge_calls == 60
    assert len(served.bodies) == 120
