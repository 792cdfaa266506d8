"""Pages in Debian's Chromium, as a user meets them: what is visible is read, what has a name is clicked."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def missing() -> str:
    """What a browser test lacks on this machine; on CI nothing may."""
    lacks = [] if PROGRAM else ["chromium"]
    lacks += [] if shutil.which("node") else ["node"]
    lacks += [] if (HERE / "node_modules" / "playwright-core").is_dir() else ["npm ci in tests/browser"]
    return ", ".join(lacks)


class BrowserError(AssertionError):
    """The browser could not do what the test asked: nothing of that name is visible, a page did not load."""


class Browser:
    """One Chromium for many pages; each page has its own profile, so none sees another's cookies or storage."""

    def __init__(self, scratch: Path) -> None:
        """The driver's own complaints go to standard error, where pytest shows them."""
        assert PROGRAM
        self._driver = subprocess.Popen(["node", str(HERE / "driver.mjs"), PROGRAM, str(scratch)], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def order(self, verb: str, page: int | None = None, **details: Any) -> Any:
        assert self._driver.stdin and self._driver.stdout
        self._driver.stdin.write(json.dumps({"verb": verb, "page": page, **details}) + "\n")
        self._driver.stdin.flush()
        line = self._driver.stdout.readline()
        if not line:
            raise BrowserError(f"the browser's driver ended ({self._driver.wait()})")
        answer = json.loads(line)
        if "error" in answer:
            raise BrowserError(answer["error"])
        return answer["value"]

    def open(self, url: str, *, dark: bool = False, width: int = 1280, height: int = 800,
             script: bool = True) -> Page:
        opened = self.order("open", url=url, dark=dark, width=width, height=height, script=script)
        return Page(self, opened["page"], opened["status"])

    def close(self) -> None:
        assert self._driver.stdin and self._driver.stdout
        self._driver.stdin.close()
        self._driver.wait(30)
        self._driver.stdout.close()


@dataclass(frozen=True)
class Page:
    """One page. What to click or read is named by role and name, label, or visible text; `selector` where none is."""

    browser: Browser
    number: int
    status: int

    def _order(self, verb: str, **details: Any) -> Any:
        return self.browser.order(verb, self.number, **details)

    def goto(self, url: str) -> int:
        return self._order("goto", url=url)

    def reload(self) -> None:
        self._order("reload")

    def back(self) -> None:
        self._order("back")

    def click(self, text: str | None = None, **what: Any) -> None:
        self._order("click", text=text, **what)

    def fill(self, label: str, value: str) -> None:
        self._order("fill", label=label, value=value)

    def select(self, label: str, value: str) -> None:
        """Choose the option of that visible text."""
        self._order("select", label=label, value=value)

    def press(self, key: str, times: int = 1) -> None:
        self._order("press", key=key, times=times)

    def hover(self, text: str | None = None, **what: Any) -> None:
        self._order("hover", text=text, **what)

    def text(self, selector: str = "body", **what: Any) -> str:
        """The visible text."""
        return self._order("text", selector=selector, **what)

    def texts(self, selector: str) -> list[str]:
        """The visible text of each element."""
        return self._order("texts", selector=selector)

    def visible(self, text: str | None = None, **what: Any) -> bool:
        return self._order("visible", text=text, **what)

    def wait(self, text: str | None = None, *, seconds: float = 60, gone: bool = False, **what: Any) -> None:
        """Until it is visible, or no longer is."""
        self._order("wait", text=text, seconds=seconds, gone=gone, **what)

    def wait_address(self, contains: str, seconds: float = 60) -> None:
        self._order("wait_address", contains=contains, seconds=seconds)

    def evaluate(self, script: str, frame: str | None = None) -> Any:
        """The value of an expression in the page, outside the reach of its policy; for what no reader sees."""
        return self._order("evaluate", script=script, frame=frame)

    def screenshot(self, path: Path, *, full: bool = False, quality: int | None = None) -> None:
        self._order("screenshot", path=str(path), full=full, quality=quality)

    def appearance(self, *, dark: bool | None = None, width: int | None = None, height: int = 800,
                   printed: bool | None = None) -> None:
        self._order("appearance", dark=dark, width=width, height=height, print=printed)

    def findings(self, *impacts: str) -> list[dict[str, Any]]:
        """What axe-core finds; serious and critical alone unless other impacts are named."""
        return self._order("axe", impacts=list(impacts) or ["serious", "critical"])

    @property
    def focused(self) -> str:
        """The name of what the keyboard is on."""
        return self._order("focused")

    @property
    def ready_ms(self) -> float:
        """From the start of the navigation until the page is loaded and painted."""
        return self._order("ready")

    @property
    def address(self) -> str:
        return self._order("address")

    @property
    def title(self) -> str:
        return self._order("title")

    @property
    def errors(self) -> list[str]:
        """Lines of the console that are errors, and exceptions nobody caught."""
        return self._order("errors")

    @property
    def requests(self) -> list[str]:
        return self._order("requests")

    @property
    def external(self) -> list[str]:
        """Addresses on other machines that it asked for; not those that its policy kept it from asking for. No name
        resolves, so none was reached."""
        return self._order("external")

    def close(self) -> None:
        self._order("close")


def started(scratch: Path) -> Browser:
    """A browser, or the reason to skip; on CI its absence is a failure."""
    if lacks := missing():
        if os.environ.get("CI") == "true":
            raise AssertionError(f"browser tests need {lacks}")
        pytest.skip(f"browser tests need {lacks}")
    return Browser(scratch)
