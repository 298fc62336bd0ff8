"""The page in a browser: axe-core finds no serious fault, narrow and wide, light and dark."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from loop.app import open_store
from loop.cli.figures import read
from loop.core.budget import Budget
from loop.core.experiment import Arm, ArmResult, Findings, Point
from loop.core.gate import Interval, Standing
from loop.core.generation import CanaryReport, Generation
from loop.report.page import page
from loop.settings import Settings
from tests.browser import browser, overflow, serious_faults
from tests.store import lineage

__all__ = ["browser"]

GAIN = Interval(point=3.0, low=-1.0, high=6.0, n=40, clusters=8)
FIGURES = Path(__file__).parents[2] / "examples" / "figures" / "macaron-v1.toml"
SEEDS = {"one_shot": {"1": 2.0, "2": 4.0, "3": 3.0}}
LARGEST_BYTES = 3_000_000


def whole(parent: Generation, blob: str, standing: Standing = Standing.PROMOTED) -> Generation:
    """A generation with every part of an exam that the page can show."""
    child = lineage.child(parent, blob, standing=standing)
    assert child.exam is not None
    exam = child.exam.revise(
        transplant={"adapters": GAIN, "harness": GAIN, "interaction": GAIN, "total": GAIN},
        shapley={"L0": GAIN, "harness": GAIN},
        matrix={"advice": {"honest_counsel": 40.0}, "casual_chat": {}},
        earlier={"0": GAIN},
        interference={"tools": {"L0": 10.0, "L1": 60.0}, "coding": {"L0": 5.0}},
        canaries=CanaryReport(probes=8, parent=0, child=1, fired=("keywords: insight closure",)),
        alarms=("tools: distinct replies fell from 0.90 to 0.20",),
    )
    return child.revise(exam=exam, stages={"collect": Budget(generated_tokens=1200, wall_seconds=3.0)})


def _findings() -> Findings:
    arms = tuple(
        ArmResult(
            arm=arm,
            seeds=(1, 2),
            points=(Point(number=1, score=40.0, gain=GAIN), Point(number=2, score=41.0, gain=GAIN)),
            by_seed={"1": 2.0, "2": 4.0},
            budget=Budget(generated_tokens=5000, trained_tokens=9000),
            ratio=1.0,
            passed=1,
            examined=4,
        )
        for arm in Arm
    )
    return Findings(name="main", contract="c", arms=arms, contrasts={"one_shot": GAIN, "sham": GAIN}, by_seed=SEEDS)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of twenty generations and the arms beside them."""
    folder = tmp_path_factory.mktemp("report")
    store = open_store(Settings(home=folder))
    store.save(read(FIGURES))
    at = lineage.root()
    store.register(at, None)
    for number in range(20):
        rejected = number % 4 == 3
        grown = whole(at, f"g{number}", Standing.REJECTED if rejected else Standing.PROMOTED)
        store.register(grown, None)
        at = at if rejected else grown
    written = folder / "report.html"
    written.write_text(page(store, lineage.FAMILY, _findings()), encoding="utf-8")
    return written


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_fault(browser: Browser, file: Path, width: int, scheme: str) -> None:
    tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
    tab.goto(f"file://{file}")
    serious, wider = serious_faults(tab), overflow(tab)
    tab.close()
    assert serious == []
    assert wider <= 0  # wide tables scroll in their own box, not the page


OVERLAPS = """
() => [...document.querySelectorAll("svg")].flatMap(svg => {
  const boxes = [...svg.querySelectorAll("text")].map(text => [text.textContent, text.getBoundingClientRect()]);
  return boxes.flatMap(([one, a], place) => boxes.slice(place + 1).filter(([, b]) =>
    a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom).map(([two]) => `${one} on ${two}`));
})
"""


@pytest.mark.parametrize("width", [390, 1440])
def test_no_word_of_a_plot_lies_on_another(browser: Browser, file: Path, width: int) -> None:
    tab = browser.new_page(viewport={"width": width, "height": 900})
    tab.goto(f"file://{file}")
    found = tab.evaluate(OVERLAPS)
    tab.close()
    assert found == []


def test_twenty_generations_and_their_arms_stay_a_small_page(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert len(text.encode()) < LARGEST_BYTES
    for said in (
        "Do gains compound?",
        "Compounding is not shown: +3.0 [-1.0, +6.0] points over one_shot (3 seeds)",
        "Transplant",
        "Interference",
        "Axioms by scenario",
    ):
        assert said in text
