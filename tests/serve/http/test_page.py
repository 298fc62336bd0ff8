"""The page in a real browser: a conversation, what is behind a reply, and text that would be markup."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Browser, Page, expect

from loop.core.access import Quota, Scope
from loop.core.episode import Completion, Request
from loop.serve.turns import Turns
from loop.store.access import SqlAccess
from tests.browser import browser, overflow, serious_faults
from tests.serve.http.started import Spelling, kept_turns, posted, serving

__all__ = ["browser"]

MARKUP = "<img src=x onerror='window.hit=1'><script>window.hit=1</script>"


class Echo(Spelling):
    """Says markup, and then what it was told."""

    def completion(self, request: Request) -> Completion:
        found = super().completion(request)
        if request.choices:
            return found
        text = f"{MARKUP} {request.messages[-1].content}"
        return found.revise(text=text, token_ids=tuple(map(ord, text)), logprobs=(-0.5,) * len(text))


@pytest.fixture
def turns(tmp_path: Path) -> Iterator[Turns]:
    with kept_turns(Echo(), tmp_path) as made:
        yield made


def say(tab: Page, text: str) -> None:
    replies = tab.locator(".reply details").count()
    tab.get_by_label("Your message").fill(text)
    tab.get_by_role("button", name="Send").click()
    expect(tab.locator(".reply details")).to_have_count(replies + 1)


@pytest.mark.parametrize("width", [390, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_conversation_with_what_is_behind_it(browser: Browser, turns: Turns, width: int, scheme: str) -> None:
    with serving(turns) as (url, _):
        tab = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)  # type: ignore[arg-type]
        tab.goto(url)
        say(tab, "L1: hello")
        say(tab, f"L2: {MARKUP}")
        assert tab.locator(".user").all_inner_texts() == ["L1: hello", f"L2: {MARKUP}"]
        assert tab.locator(".reply .said").all_inner_texts() == [f"{MARKUP} L1: hello", f"{MARKUP} L2: {MARKUP}"]
        assert [text.split(" (")[0] for text in tab.locator("summary").all_inner_texts()] == [
            "answered by L1",
            "answered by L2",
        ]
        tab.locator("summary").last.click()
        hops = tab.locator(".reply").last.locator("tr td:first-child").all_inner_texts()
        assert hops[-2:] == ["route", "answer"]
        tab.wait_for_selector(".gist", state="attached")
        assert "others are told (L1" in tab.locator(".gist").first.text_content()  # type: ignore[operator]
        # What the model wrote, and what was typed, is text: no element came of it, and nothing ran.
        assert tab.evaluate("[document.images.length, document.scripts.length, window.hit]") == [0, 1, None]
        assert serious_faults(tab) == []
        assert overflow(tab) <= 0
        tab.close()


def test_a_reply_that_fails_gives_the_words_back(browser: Browser, turns: Turns) -> None:
    with serving(turns) as (url, server):
        tab = browser.new_page()
        tab.goto(url)
        tab.get_by_label("Your message").fill("L1: " + "x" * 7000)
        server.service.is_draining = True
        tab.get_by_role("button", name="Send").click()
        tab.get_by_text("the server is ending").wait_for()
        assert tab.get_by_label("Your message").input_value() == "L1: " + "x" * 7000
        assert tab.locator(".said").count() == 0
        tab.close()


def test_a_server_with_keys_asks_for_one(browser: Browser, turns: Turns, tmp_path: Path) -> None:
    access = SqlAccess(f"sqlite:///{tmp_path / 'loop.db'}")
    secret, _ = access.create("ana", (Scope.CHAT,), Quota())
    with serving(turns, access) as (url, _):
        tab = browser.new_page()
        tab.goto(url)
        tab.get_by_label("key").fill(secret)
        tab.get_by_label("key").blur()
        expect(tab.locator("#model option")).to_have_count(4)
        say(tab, "L1: hello")
        assert tab.locator(".reply .said").inner_text() == f"{MARKUP} L1: hello"
        tab.close()


def test_a_turn_is_its_owners_alone(turns: Turns, tmp_path: Path) -> None:
    access = SqlAccess(f"sqlite:///{tmp_path / 'loop.db'}")
    keys = {owner: access.create(owner, (Scope.CHAT,), Quota())[0] for owner in ("ana", "bob")}
    with serving(turns, access) as (url, _):
        body = {"model": "macaron", "messages": [{"role": "user", "content": "L1: hello"}]}
        done = posted(url, "/v1/chat/completions", body, Authorization=f"Bearer {keys['ana']}").json()
        turn = done["macaron"]["turn"]
        asked = {
            owner: httpx2.get(f"{url}/v1/turns/{turn}", headers={"x-api-key": key}).status_code
            for owner, key in keys.items()
        }
    assert asked == {"ana": 200, "bob": 404}
