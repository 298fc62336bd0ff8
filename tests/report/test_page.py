"""The page: all of a lineage is on it, nothing on it reaches elsewhere, and text stays text."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from mlflow import MlflowClient

from loop.app import attach_report, open_store
from loop.core.budget import Budget
from loop.core.experiment import Arm, ArmResult, Findings
from loop.core.gate import Interval, Standing
from loop.report.chart import Mark, chart
from loop.report.page import page, verdict
from loop.settings import Settings
from loop.store.sql import SqlStore
from loop.tracking.mlflow import MlflowTracker
from tests.cli.test_bad_input import one_sentence, run
from tests.store import lineage

VOID = {"meta", "link", "br", "img", "line", "circle", "polyline"}


class Nesting(HTMLParser):
    """Checks that every element is closed in order, and remembers ids and internal links."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.ids += [values["id"]] if values.get("id") else []  # type: ignore[list-item]
        self.links += [values["href"]] if values.get("href") else []  # type: ignore[list-item]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Nothing stays open."""

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, (tag, self.getpos())


@pytest.fixture
def store(tmp_path: Path) -> SqlStore:
    """A root, a promoted and a rejected generation, the holdout opened once."""
    store = open_store(Settings(home=tmp_path))
    root = lineage.root()
    child = lineage.child(root)
    store.register(root, None)
    attempt = store.begin(lineage.FAMILY, root, lineage.plan())
    store.open_holdout(attempt, root.digest, "exam of the <b>successor</b>")
    store.register(child, attempt)
    store.register(lineage.child(child, "worse", standing=Standing.REJECTED), None)
    return store


SVG = "{http://www.w3.org/2000/svg}"


def test_each_plot_is_kept_with_the_generations_run_as_an_svg_of_its_own(store: SqlStore, tmp_path: Path) -> None:
    root, plain, _ = store.generations(lineage.FAMILY)
    assert plain.exam is not None and plain.exam.gain is not None
    child = plain.revise(exam=plain.exam.revise(transplant={"adapters": plain.exam.gain, "a & b": plain.exam.gain}))
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    tracker = MlflowTracker(uri=uri)
    run_id = tracker.publish(child, root, (), {"budgets": {}})
    attach_report(Settings(home=tmp_path, family=lineage.FAMILY), store, tracker, child)
    client = MlflowClient(tracking_uri=uri)
    kept = {Path(artifact.path).name for artifact in client.list_artifacts(run_id, "report")}
    titles = {
        "gain-over-the-parent-by-generation.svg": "Gain over the parent, by generation",
        "transplant.svg": "Transplant",
    }
    assert kept == {"report.html", *titles}
    for name, title in titles.items():
        text = Path(client.download_artifacts(run_id, f"report/{name}", str(tmp_path))).read_text()
        drawn = ElementTree.fromstring(text)
        inner = drawn.find(f"{SVG}svg")
        assert drawn.tag == f"{SVG}svg" and drawn.findtext(f"{SVG}title") == title
        assert inner is not None and len(inner.findall(f".//{SVG}circle")) == 2
        assert not re.search(r"https?://(?!www.w3.org/2000/svg)|<script|@import|url\(", text)


def test_every_generation_with_its_decision_and_figures_is_on_the_page(store: SqlStore) -> None:
    html = page(store, lineage.FAMILY)
    for generation in store.generations(lineage.FAMILY):
        assert generation.short in html
    assert "2 grown, 1 promoted, 1 rejected" in html
    assert "+4.2 [+1.0, +7.0]" in html  # the gain of tests.store.lineage.exam
    assert "not measured: arm one_shot absent" in html
    assert page(store, lineage.FAMILY) == html


def test_the_page_is_whole_and_reaches_nowhere(store: SqlStore) -> None:
    html = page(store, lineage.FAMILY)
    nesting = Nesting()
    nesting.feed(html)
    assert nesting.open == [] and len(set(nesting.ids)) == len(nesting.ids)
    assert nesting.links and all(link[0] == "#" and link[1:] in nesting.ids for link in nesting.links)
    assert not re.search(r"https?://|<script|@import|url\(", html)


def test_what_is_stored_is_shown_as_text(store: SqlStore) -> None:
    html = page(store, lineage.FAMILY)
    assert "exam of the &lt;b&gt;successor&lt;/b&gt;" in html and "<b>successor" not in html


def test_an_empty_lineage_says_so(tmp_path: Path) -> None:
    html = page(open_store(Settings(home=tmp_path)), "main")
    assert "No generation has been grown yet" in html and "never opened" in html


def test_the_command_writes_the_page_and_names_a_bad_place(tmp_path: Path, store: SqlStore) -> None:
    assert "report.html" in run(tmp_path, "report").stdout
    assert (tmp_path / "report.html").read_text() == page(store, lineage.FAMILY)
    one_sentence(run(tmp_path, "report", "--out", "nowhere/report.html"), 2, "nowhere/report.html", "--out")


def test_marks_stand_where_their_values_are_and_ticks_enclose_them() -> None:
    marks = [
        Mark(label="a", at=1, interval=Interval(point=5.0, low=2.0, high=9.0, n=1, clusters=1)),
        Mark(label="b", at=2, interval=Interval(point=-1.0, low=-3.0, high=1.0, n=1, clusters=1), rejected=True),
    ]
    found = chart("gain", marks, signed=True)
    assert found is not None and found.zero is not None
    first, second = found.dots
    assert first.high < first.y < first.low < found.zero + 1e-9 < second.low  # up is smaller in SVG
    assert second.high < found.zero < second.y
    ticks = [float(text) for text, _ in found.y_ticks]
    assert ticks[0] <= -3 and ticks[-1] >= 9 and 0.0 in ticks and 3 <= len(ticks) <= 8
    # By hand: a tick's own value lies at the tick's own place.
    at = dict(zip(ticks, (y for _, y in found.y_ticks), strict=True))
    step = ticks[1] - ticks[0]
    assert first.y == pytest.approx(at[0.0] - 5.0 * (at[0.0] - at[step]) / step, abs=0.2)
    assert chart("nothing", []) is None


def test_a_flat_lineage_has_a_chart_too() -> None:
    still = Interval(point=0.0, low=0.0, high=0.0, n=1, clusters=1)
    assert chart("gain", [Mark(label="a", at=1, interval=still)], signed=True) is not None


def test_the_page_of_an_experiment_denies_nothing_that_its_arms_did(tmp_path: Path) -> None:
    arms = (ArmResult(arm=Arm.ITERATED, seeds=(1,), points=(), budget=Budget()),)
    html = page(open_store(Settings(home=tmp_path)), "x", Findings(name="x", contract="c", arms=arms))
    assert "arms under 1 seed;" in html and "openings of its own" in html
    assert "never opened" not in html and "no champion" not in html


@pytest.mark.parametrize(
    ("low", "high", "alone", "seeds", "said"),
    [
        (
            1.0,
            5.0,
            2.0,
            3,
            "Gains compound: +3.0 [+1.0, +5.0] points over one_shot (3 seeds); the seeds alone say [+1.0,",
        ),
        (1.0, 5.0, 4.0, 3, "Gains compound on these seeds: +3.0 [+1.0, +5.0] points over one_shot (3 seeds). Of other"),
        (1.0, 5.0, 2.0, 2, "Too few seeds to say"),
        (-1.0, 5.0, 2.0, 4, "Compounding is not shown"),
        (-5.0, -1.0, 2.0, 3, "Gains do not compound: -3.0"),
        (-5.0, -1.0, 4.0, 3, "Gains do not compound on these seeds: -3.0"),
    ],
)
def test_the_verdict_says_no_more_than_was_measured(
    low: float, high: float, alone: float, seeds: int, said: str
) -> None:
    gap = Interval(
        point=(low + high) / 2 if low * high < 0 else 3.0 * (1 if low > 0 else -1), low=low, high=high, n=9, clusters=3
    )
    by_seed = {"one_shot": {str(seed): 1.0 for seed in range(seeds)}}
    spread = Interval(point=gap.point, low=gap.point - alone, high=gap.point + alone, n=seeds, clusters=seeds)
    found = Findings(
        name="x",
        contract="c",
        arms=(),
        contrasts={"one_shot": gap},
        by_seed=by_seed,
        over_seeds={"one_shot": spread},
    )
    assert verdict(found).startswith(said)
    assert "not measured" in verdict(Findings(name="x", contract="c", arms=()))


def test_the_verdict_names_the_arms_whose_budget_does_not_match() -> None:
    ratios = {Arm.ITERATED: 1.0, Arm.ONE_SHOT: 0.947, Arm.WEIGHTS_ONLY: 0.981, Arm.NULL: 0.0}
    arms = tuple(ArmResult(arm=arm, seeds=(1,), points=(), budget=Budget(), ratio=r) for arm, r in ratios.items())
    said = verdict(Findings(name="x", contract="c", arms=arms))
    assert said.endswith("Budgets more than 2% from the iterated arm's (ratio): one_shot 0.947.")
