"""The HTML report in a real browser: nothing hostile runs, the plots appear, tables sort, themes and widths work."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from aaco.report.renderers import html
from tests import explained
from tests.explained import Sample

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
         "--disable-background-networking", "--disable-component-update", "--enable-logging=stderr", "--v=0",
         "--virtual-time-budget=3000")
DARK = "--blink-settings=preferredColorScheme=0"
# Relative luminance (WCAG 2.2) of a computed colour, for the probes below.
LUMINANCE = """
const luminance = (text) => { const [r, g, b] = text.match(/[\\d.]+/g).map(Number).map((v) => v / 255)
  .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
const contrast = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
"""

pytestmark = pytest.mark.skipif(not BROWSER and os.environ.get("CI") != "true", reason="no Chromium on this machine")


@dataclass(frozen=True)
class Visit:
    """What the browser made of a page: its final DOM, and every line of its console."""

    dom: str
    console: list[str]

    @property
    def title(self) -> str:
        return unescape(self.dom.partition("<title>")[2].partition("</title>")[0])

    def result(self) -> Any:
        """What the probe script left behind."""
        found = re.search(r'data-result="([^"]*)"', self.dom)
        assert found, self.console
        return json.loads(unescape(found[1]))


@pytest.fixture
def visit(tmp_path: Path) -> Any:
    def run(page: str, *flags: str) -> Visit:
        assert BROWSER, "CI must have Chromium"
        file = tmp_path / "page.html"
        file.write_text(page)
        command = [BROWSER, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", *flags, "--dump-dom", file.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240)
        return Visit(done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line])

    return run


def probed(page: str, script: str) -> str:
    """The page with a policy that lets a test's script run after its own; what it `tell`s is the result."""
    policy = re.compile(r'(http-equiv="Content-Security-Policy" content=")[^"]*')
    opened = policy.sub(r"\1script-src 'unsafe-inline'; style-src 'unsafe-inline'", page, count=1)
    told = "(result) => { document.body.dataset.result = JSON.stringify(result); }"
    probe = f"const tell = {told}; setTimeout(() => {{ {script} }}, 200)"
    return opened.replace("</body>", f"<script>{probe}</script></body>")


def test_the_console_would_show_a_script_that_the_policy_stops(visit: Any) -> None:
    page = html.render(Sample().explain()).replace("</main>", "<script>document.title = 'owned'</script></main>")
    seen = visit(page)
    assert "owned" not in seen.title
    assert any("Content Security Policy" in line for line in seen.console)


@pytest.mark.parametrize("session", [Sample().explain, explained.hostile, Sample(device=0).explain,
                                     Sample(iterations=1, processes=1).explain])
def test_nothing_hostile_runs_and_the_plots_appear(visit: Any, session: Any) -> None:
    explanation = session()
    seen = visit(html.render(explanation))
    assert seen.console == []
    assert seen.title.endswith(" on CPUExecutionProvider: AACO report")
    assert seen.title.startswith(explanation.model["name"][:30])
    assert '<html lang="en" class="js">' in seen.dom
    assert seen.dom.count("<canvas") == 3


@pytest.mark.parametrize("session", [Sample(profiled=False, status="incomplete").explain, explained.nothing])
def test_a_page_without_a_capture_is_quiet_too(visit: Any, session: Any) -> None:
    seen = visit(html.render(session()))
    assert seen.console == []
    assert "INCOMPLETE RUN" in seen.dom


def test_the_page_of_a_real_session_is_small_and_quiet(visit: Any, recorded: Any) -> None:
    page = (recorded.latest / "report" / "report.html").read_text()
    seen = visit(page)
    assert len(page.encode()) < 1_000_000
    assert seen.console == []
    assert seen.dom.count("<canvas") == 3


def test_a_table_sorts_by_number_and_by_name_and_says_so(visit: Any) -> None:
    explanation = Sample().explain()
    script = """
      const table = document.getElementById("nodes"), heads = [...table.tHead.rows[0].cells];
      const click = (name) => { const head = heads.find((cell) => cell.textContent.trim() === name);
        head.querySelector("button").click();
        return [head.ariaSort, [...table.tBodies[0].rows].map((row) => row.cells[0].textContent.trim())]; };
      tell([click("Per inference"), click("Per inference"), click("Node"), click("Node")])"""
    times = dict(zip(Sample().names, explained.MICROSECONDS, strict=True))
    by_time = sorted(times, key=lambda name: -times[name])
    assert visit(probed(html.render(explanation), script)).result() == [
        ["descending", by_time], ["ascending", by_time[::-1]], ["ascending", sorted(times)],
        ["descending", sorted(times)[::-1]]]


def test_the_filter_leaves_the_rows_that_hold_its_text(visit: Any) -> None:
    script = """
      const input = document.getElementById("filter"); input.value = "CONV"; input.dispatchEvent(new Event("input"));
      tell([...document.querySelectorAll("#nodes tbody tr")].filter((row) => !row.hidden)
        .map((row) => row.cells[0].textContent.trim()))"""
    assert sorted(visit(probed(html.render(Sample().explain()), script)).result()) == ["conv1", "conv2_relu", "conv3"]


@pytest.mark.parametrize("flags", [(), (DARK,)], ids=["light", "dark"])
def test_both_themes_are_readable_and_the_button_swaps_them(visit: Any, flags: tuple[str, ...]) -> None:
    script = LUMINANCE + """
      const look = () => { const card = luminance(getComputedStyle(document.querySelector("section")).backgroundColor);
        const texts = [...document.querySelectorAll("p, td, th, a, .dim, .absent, .outcome, .chip, button, h2")].filter(
          (one) => one.closest("section") && !one.closest(".u-legend, .banner"));
        return [card, Math.min(...texts.map((one) => contrast(card, luminance(getComputedStyle(one).color)))),
                document.getElementById("theme").textContent]; };
      const before = look(); document.getElementById("theme").click();
      tell([before, look()])"""
    (card, worst, label), (other, other_worst, other_label) = visit(
        probed(html.render(Sample().explain()), script), *flags).result()
    assert (card < 0.1) == bool(flags)
    assert (other < 0.1) != bool(flags)
    assert min(worst, other_worst) >= 4.5  # WCAG 2.2 AA
    assert {label, other_label} == {"Dark theme", "Light theme"}


@pytest.mark.parametrize("width", [520, 800, 1280, 1920])
@pytest.mark.parametrize("session", [Sample().explain, explained.hostile], ids=["usual", "hostile"])
def test_the_page_never_scrolls_sideways(visit: Any, width: int, session: Any) -> None:
    script = "tell([document.documentElement.scrollWidth, innerWidth])"
    wide, inner = visit(probed(html.render(session()), script), f"--window-size={width},900").result()
    assert wide <= inner


def test_zoom_can_be_undone(visit: Any) -> None:
    script = """
      const paint = () => document.querySelector('[data-plot="latency_series"] canvas').toDataURL();
      const area = document.querySelector('[data-plot="latency_series"] .u-over');
      const send = (target, kind, x) => { const box = area.getBoundingClientRect(); target.dispatchEvent(
        new MouseEvent(kind, { clientX: box.left + x, clientY: box.top + 40, movementX: 1, bubbles: true })); };
      const later = (then) => setTimeout(then, 200);
      const before = paint();
      send(area, "mouseenter", 100); send(area, "mousedown", 100); send(area, "mousemove", 300);
      send(document, "mouseup", 300);
      later(() => { const zoomed = paint(); document.querySelector('[data-reset="latency_series"]').click();
        later(() => tell([before === zoomed, before === paint()])); })"""
    assert visit(probed(html.render(Sample().explain()), script)).result() == [False, True]


def test_every_control_can_be_reached_by_keyboard(visit: Any) -> None:
    script = """
      const controls = [...document.querySelectorAll("button, a[href], input, summary, [tabindex]")];
      const reached = (one) => { one.focus(); return document.activeElement === one; };
      const shown = controls.filter((one) => one.checkVisibility());
      tell([shown.length > 100, shown.filter((one) => !reached(one)).map((one) => one.outerHTML)])"""
    assert visit(probed(html.render(Sample().explain()), script)).result() == [True, []]


def test_the_commands_that_a_report_names_are_commands(recorded: Any) -> None:
    """Those that only read are run as they stand; of the others each option is one that the verb has."""
    named = json.loads(recorded.inside("report", "latest", "--json").stdout)["commands"]
    verbs = [shlex.split(one["step"])[1:] for one in named]
    assert [verb[0] for verb in verbs] == ["report", "kernels", "perfetto", "ops", "try", "baseline"]
    for verb in verbs:
        reads = verb[0] in ("report", "kernels", "ops")
        recorded.inside(*verb) if reads else recorded.inside(*verb, "--help")
