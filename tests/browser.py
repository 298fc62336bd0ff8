"""A real Chromium for tests of what people look at."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no chromium found (apt-get install chromium)")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        )
        yield found
        found.close()


def serious_faults(tab: Page) -> list[str]:
    """What axe-core calls serious or critical."""
    return [
        f"{fault['id']}: {fault['nodes'][0]['html'][:200]}"
        for fault in Axe().run(tab).response["violations"]
        if fault["impact"] in ("serious", "critical")
    ]


def overflow(tab: Page) -> int:
    """By how many pixels the page is wider than its window."""
    return int(tab.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))
