"""``routing`` as people run it: the registry, and a sealed bank that opens for an examined lineage only."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from loop.app import open_store
from loop.cli.render import print_generation
from loop.cli.routing import note_opening, report_tables
from loop.core.gate import Interval
from loop.core.hop import Hop, HopRecord, ledger
from loop.core.routing import Route, RouteCase, RouteContext, RouteHow, RouteKind, RoutingExam
from loop.gains.routing import routing_report
from loop.report.page import page
from loop.settings import Settings
from tests.cli.test_bad_input import one_sentence, run
from tests.store import lineage


def test_the_registered_labels_are_listed_with_what_they_are_for(tmp_path: Path) -> None:
    done = run(tmp_path, "routing", "show", COLUMNS="80")
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80 and "L2" in done.stdout and "code" in done.stdout
    shown = json.loads(run(tmp_path, "routing", "show", "--json").stdout)
    assert [row["label"] for row in shown["labels"]] == ["L0", "L1", "L2", "L3"] and shown["router"] == "L0"


def test_an_unknown_generation_is_named(tmp_path: Path) -> None:
    one_sentence(run(tmp_path, "routing", "evaluate", "-g", "7"), 2, "7")
    one_sentence(run(tmp_path, "routing", "show", "-g", "abcdef12"), 2, "abcdef12")


@pytest.mark.parametrize("command", [("routing",), ("routing", "show"), ("routing", "evaluate")])
def test_its_help_fits_80_columns(tmp_path: Path, command: tuple[str, ...]) -> None:
    done = run(tmp_path, *command, "--help", COLUMNS="80")
    assert done.returncode == 0 and max(map(len, done.stdout.splitlines())) <= 80


def examined() -> RoutingExam:
    """A parent that routes everything to L0 and a child that is always right, over the sealed bank's classes."""
    cases = [
        RouteCase(
            id=f"{kind}/{label}/{n}", kind=kind, context=RouteContext(message=f"{kind} {label} {n}"), wanted=(label,)
        )
        for kind in RouteKind
        for label in ("L0", "L1", "L2", "L3")
        for n in range(3)
    ]

    def decided(name: str) -> list[tuple[RouteCase, Route]]:
        chosen = [name or case.label for case in cases]
        routes = [Route(label=one, how=RouteHow.ROUTED, first=one, probability=0.123456) for one in chosen]
        return list(zip(cases, routes, strict=True))

    before, after = (routing_report(decided(name), decided(name)[:9]) for name in ("L0", ""))
    gain = Interval(point=75.0, low=63.6, high=83.6, n=72, clusters=72)
    return RoutingExam(parent=before, child=after, gain=gain, regret=gain.revise(point=1.25, low=-0.5, high=3.0))


def test_the_tables_of_a_report_fit_80_columns_and_hold_every_figure() -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    for table in report_tables(examined().parent):
        console.print(table)
    shown = console.export_text()
    assert max(map(len, shown.splitlines())) <= 80
    # 18 of 72 by Wilson: 16.4 to 36.1 (scipy.stats.binomtest).
    assert "25.0 [16.4, 36.1]" in shown and "in-distribution, apart" in shown and "follow up" in shown


def test_the_end_of_a_run_and_the_page_show_both_routers(tmp_path: Path) -> None:
    store = open_store(Settings(home=tmp_path))
    root = lineage.root()
    child = lineage.child(root)
    assert child.exam is not None
    child = child.revise(exam=child.exam.revise(routing=examined()))
    console = Console(width=80, record=True, file=io.StringIO())
    print_generation(console, child)
    shown = console.export_text()
    assert max(map(len, shown.splitlines())) <= 80
    for figure in ("25.0 [16.4, 36.1]", "100.0 [94.9, 100.0]", "+75.0 [+63.6, +83.6]", "+1.2 [-0.5, +3.0]"):
        assert figure in shown
    store.register(root, None)
    store.register(child, store.begin(lineage.FAMILY, root, lineage.plan()))
    html = page(store, lineage.FAMILY)
    assert "<h3>Routing</h3>" in html and "100.0 [94.9, 100.0]" in html and "+1.2 [-0.5, +3.0]" in html


def test_a_generation_is_shown_with_what_its_hops_took(tmp_path: Path) -> None:
    child = lineage.child(lineage.root())
    records = [
        HopRecord(hop=hop, label="L0", prompt_tokens=1_500, cached_tokens=1_000, generated_tokens=7, seconds=0.25)
        for hop in (Hop.ROUTE, Hop.ANSWER, Hop.ROUTE)
    ]
    child = child.revise(budget=child.budget.revise(hops=ledger(records)))
    console = Console(width=80, record=True, file=io.StringIO())
    print_generation(console, child)
    rows = [line.strip(" │").split() for line in console.export_text().splitlines()]
    assert ["route", "2", "1,000", "2,000", "14", "0.25"] in rows
    assert ["answer", "1", "500", "1,000", "7", "0.25"] in rows


def test_the_sealed_bank_stays_closed_for_a_root_that_no_exam_has_met(tmp_path: Path) -> None:
    store = open_store(Settings(home=tmp_path, family=lineage.FAMILY))
    store.register(lineage.root(), None)
    done = run(tmp_path, "routing", "evaluate", "-g", "0", MACARON_FAMILY=lineage.FAMILY)
    one_sentence(done, 2, "no successor", "--bank train")
    assert store.openings(lineage.FAMILY) == ()


def test_an_evaluation_on_the_sealed_bank_is_a_row_of_the_ledger(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, family=lineage.FAMILY)
    store = open_store(settings)
    root = lineage.root()
    child = lineage.child(root)
    store.register(root, None)
    store.register(child, store.begin(lineage.FAMILY, root, lineage.plan()))
    note_opening(settings, store, root)
    note_opening(settings, store, child)
    whys = [(opening.generation, opening.why) for opening in store.openings(lineage.FAMILY)]
    assert sorted(whys) == sorted((g.digest, f"routing evaluation of {g.short}") for g in (root, child))
