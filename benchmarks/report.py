"""How large is the report, and how soon is it open? Twenty generations with 10,000 episodes behind them.

    python benchmarks/report.py

The lineage is made of small nouns in a fresh SQLite store (no model runs); the page is then
written by the same function as ``macaron-loop report`` and opened in Chromium.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from loop.app import open_store, write_report
from loop.core.budget import Budget
from loop.core.stage import Stage
from loop.settings import Settings
from loop.store.sql import SqlStore
from tests.report.test_accessible import whole
from tests.store import lineage

GENERATIONS, EPISODES, SHARD = 20, 10_000, 100


def fill(store: SqlStore) -> None:
    """A line of promoted generations, each from an attempt with its share of the episodes and their scores."""
    at = lineage.root()
    store.register(at, None)
    shards = EPISODES // SHARD // GENERATIONS
    for number in range(GENERATIONS):
        attempt = store.begin(lineage.FAMILY, at, lineage.plan(seed=number + 1))
        for index in range(shards):
            start = (number * shards + index) * SHARD
            shard = lineage.shard(start, SHARD)
            attempt.record(Stage.COLLECT, shard, Budget(), f"collect/{index:03d}")
            attempt.record(Stage.SCORE, lineage.scores(shard), Budget(), f"score/{index:03d}")
        attempt.record(Stage.CURATE, lineage.training_set(shard), Budget(), "L0")
        at = whole(at, f"g{number}")
        store.register(at, attempt)


def opened(page: Path) -> list[float]:
    """Seconds from navigation to the load event, five times."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        raise SystemExit("no chromium found (apt-get install chromium)")
    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        found = []
        for _ in range(5):
            tab = browser.new_page(viewport={"width": 1440, "height": 900})
            tab.goto(f"file://{page}")
            found.append(tab.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd") / 1000)
            tab.close()
        browser.close()
    return found


def main() -> None:
    """Fill, write, open, and print the table."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(home=Path(folder))
        store = open_store(settings)
        fill(store)
        started = time.monotonic()
        page = write_report(settings, store)
        written = time.monotonic() - started
        seconds = opened(page)
        print("| generations | episodes | page | written in | opened in (median of 5, largest) |")
        print("|---|---|---|---|---|")
        print(
            f"| {GENERATIONS} | {store.table_counts()['episodes']:,} | {page.stat().st_size / 1024:.0f} KB "
            f"| {written:.1f} s | {sorted(seconds)[2]:.2f} s, {max(seconds):.2f} s |"
        )


if __name__ == "__main__":
    main()
