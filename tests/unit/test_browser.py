"""The browser that other tests look through shows what is visible, and notices what they rely on it to notice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.browser.chromium import Browser, BrowserError, Page

Show = Callable[..., Page]
PAGE = """<!doctype html><html lang="en"><head><title>Probe</title><meta charset="utf-8"></head><body><main>
<h1>Seen</h1><p hidden>unseen</p><button type="button" onclick="this.textContent='Pressed'">Press</button>
<label>Name <input></label>%s</main></body></html>"""


@pytest.fixture
def shown(tmp_path: Path, browser: Browser) -> Show:
    def show(more: str = "", **how: bool) -> Page:
        file = tmp_path / "page.html"
        file.write_text(PAGE % more)
        return browser.open(file.as_uri(), **how)

    return show


def test_only_what_is_visible_is_read_and_clicks_are_real(shown: Show) -> None:
    page = shown()
    assert page.title == "Probe"
    assert "Seen" in page.text()
    assert "unseen" not in page.text()
    page.click(role="button", name="Press")
    page.wait("Pressed")
    page.press("Tab")
    assert page.focused == "Name"
    assert 0 < page.ready_ms < 60_000
    assert page.findings() == []
    assert page.errors == page.external == []


def test_faults_are_found(shown: Show) -> None:
    page = shown('<img src="https://far.example/x.png"><p style="color:#eee">faint</p>'
                 '<script>throw Error("broken")</script>')
    assert page.external == ["https://far.example/x.png"]
    assert any("broken" in line for line in page.errors)
    assert {finding["id"] for finding in page.findings()} == {"color-contrast", "image-alt"}
    with pytest.raises(BrowserError, match="Timeout"):
        page.wait("unseen", seconds=0.2)


def test_a_page_without_script(shown: Show) -> None:
    page = shown("<script>document.querySelector('h1').textContent = 'script ran'</script>", script=False)
    assert page.text("h1") == "Seen"
