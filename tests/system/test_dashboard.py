"""The dashboard in a real browser: what a user sees, clicks and reads on each page, with no other machine asked."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from aaco.analytics.advice.trials import NotTried, Trial, Trials
from aaco.core import documents
from aaco.core.session import Session
from aaco.tracelake import layout
from tests.browser.chromium import Browser, Page
from tests.browser.serving import dashboard
from tests.explained import regressed
from tests.system.conftest import Aaco

HISTORY = Path(__file__).parent.parent / "captures" / "histories" / "start.csv"
CAPTURES = Path(__file__).parent.parent / "captures" / "torch_h200"


@dataclass(frozen=True)
class Site:
    """A served folder: a recorded run, two imported traces, one whose names are hostile, one that cannot be read."""

    url: str
    aaco: Aaco
    ids: dict[str, str]


HOSTILE = '<img src=x onerror="document.title=\'owned\'">"><script>document.title="owned"</script>'


@pytest.fixture(scope="module")
def site(recorded: Aaco, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    aaco = Aaco(tmp_path_factory.mktemp("dashboard"), recorded.cache)
    (aaco.folder / "sessions").symlink_to(aaco.folder / "kept")
    day = aaco.folder / "kept" / recorded.latest.parent.name
    day.mkdir(parents=True)
    (day / recorded.latest.name).symlink_to(recorded.latest)
    (aaco.folder / "hostile.json").write_text(json.dumps({"traceEvents": [
        {"ph": "X", "cat": "kernel", "name": HOSTILE, "ts": 10 * turn, "dur": 5, "pid": 0, "tid": 7,
         "args": {"device": 0, "stream": 7, "correlation": turn}} for turn in range(1, 30)]}))
    for tag in ("nchw", "nhwc"):
        aaco.inside("import", CAPTURES / f"resnet50_{tag}.json.gz", "--tag", tag)
    aaco.inside("import", aaco.folder / "hostile.json", "--format", "kineto", "--tag", HOSTILE[:60])
    aaco.inside("history", "import", HISTORY)
    aaco.inside("fleet", "ingest", recorded.latest)
    listed = json.loads(aaco.inside("ls", "--json").stdout)["sessions"]
    ids = {row["tag"]: row["session_id"] for row in listed}
    slow = Session.create(aaco.folder / "sessions", {"model": "slow", "backend": "cpu"}, "slow", "0")
    slow.finish("complete")
    slow.write_json(layout.VERDICT, regressed())
    slow.write_json(layout.finding("trials"), documents.encode(Trials(
        "s", 1, "c", "why", 60.0, 30.0, 5, 1.5, 0.99, [
            Trial("c", HOSTILE, "kept", HOSTILE * 3, gain_pct=5.5, low_pct=4.0, high_pct=7.0, screened_pct=5.0),
            Trial("d" * 90, "Title", "refused", "it does not run")], [NotTried("e", "Title", HOSTILE)])))
    ids["slow"] = slow.id
    broken = day / "20200101_000000_broken"
    broken.mkdir()
    (broken / "session.json").write_text("{")
    with dashboard(aaco) as url:
        yield Site(url, aaco, ids)


def sound(page: Page) -> None:
    """Nothing hostile ran, nothing failed, no other machine was asked, and assistive technology can read it."""
    assert "owned" not in page.title
    assert page.errors == []
    assert page.external == []
    assert page.findings() == []


PAGES = ("/", "/sessions/nchw", "/sessions/recorded", "/sessions/slow", "/sessions/nchw/kernels", "/sessions/nchw/live",
         "/sessions/nchw/timeline", "/sessions/recorded/tried", "/sessions/slow/tried", "/compare",
         "/compare?baseline=nchw&session=nhwc", "/history", "/fleet", "/fleet?model=nothing", "/api/docs",
         "/compare?baseline=nobody&session=nchw", "/history/series?benchmark=start-python&metric=value", "/nothing",
         "/sessions/nobody")
OVERFLOWING = """[...document.querySelectorAll('main *')].filter((part) =>
  part.getBoundingClientRect().right > innerWidth + 1 && !part.closest('pre, figure, iframe, .aside'))
  .map((part) => part.outerHTML.slice(0, 120))"""


@pytest.mark.parametrize("path", PAGES)
def test_every_page_fits_a_phone_and_is_accessible(site: Site, browser: Browser, path: str) -> None:
    """Mutation: tables keep their columns on a phone; a scrolled table cannot be reached by the keyboard."""
    page = browser.open(site.url + path)
    for width in (1280, 390):
        for dark in (False, True):
            page.appearance(dark=dark, width=width)
            assert page.findings("minor", "moderate", "serious", "critical") == [], (width, dark)
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") == 0
    assert page.evaluate(OVERFLOWING) == []
    page.close()


def test_the_list_is_searched_filtered_and_sorted_by_clicks(site: Site, browser: Browser) -> None:
    page = browser.open(site.url)
    assert "6 sessions" in page.text()
    assert "gpt2-tiny" in page.text("table")
    assert "unreadable" in page.text("table")
    page.fill("Search", "nchw")
    page.press("Enter")
    page.wait("1 to 1 of 1 session")
    assert "gpt2-tiny" not in page.text("table")
    page.click(role="link", name="Clear")
    page.wait("of 6 sessions")
    page.select("Model", "gpt2-tiny")
    page.wait("1 to 1 of 1 session")
    page.click(role="link", name="Clear")
    page.wait("of 6 sessions")
    page.click(role="link", name="Session", exact=True)
    page.wait_address("sort=session_id")
    ids = page.texts("tbody th code")
    assert ids == sorted(ids)
    sound(page)


def test_two_ticked_sessions_are_compared(site: Site, browser: Browser) -> None:
    page = browser.open(site.url)
    for tag in ("nchw", "nhwc"):
        page.click(role="checkbox", name=f"Tick {site.ids[tag]}")
    page.click(role="button", name="Compare the two ticked")
    page.wait_address("/compare?")
    told = page.text()
    exact = json.loads(site.aaco.inside("diff", site.ids["nchw"], site.ids["nhwc"], "--json").stdout)
    assert f"{exact['delta_ns']:+,}" in told
    assert "transpose" in page.text("table", nth=1)
    sound(page)
    page.goto(site.url)
    page.click(role="button", name="Compare the two ticked")
    assert "0 sessions are ticked, a comparison takes two" in page.text()


def test_a_session_answers_and_leads_on(site: Site, browser: Browser) -> None:
    page = browser.open(f"{site.url}/sessions/{site.ids['nchw']}")
    summary = json.loads(site.aaco.inside("summary", site.ids["nchw"], "--json").stdout)["bottleneck"]
    named = {"unknown": "no diagnosis"}.get(summary["bottleneck_class"], summary["bottleneck_class"])
    assert page.text(".label").lower() == named.replace("_", " ")
    assert summary["optimization_priority"][0]["title"] in page.text()
    sound(page)
    page.click(role="link", name="Kernels", exact=True)
    page.wait("Kernels by name")
    kernels = json.loads(site.aaco.inside("kernels", site.ids["nchw"], "--top", 1000, "--json").stdout)["kernels"]
    assert f"of {len(kernels)} kernels" in page.text()
    page.click(role="link", name="Calls", exact=True)
    page.wait_address("sort=calls")
    shown = [int(text.replace(",", "")) for text in page.texts("tbody td:nth-child(5)")]
    assert shown == sorted((row["calls"] for row in kernels), reverse=True)
    page.select("Family", "norm")
    page.wait_address("family=norm")
    assert set(page.texts("tbody td:nth-child(2)")) == {"norm"}
    sound(page)
    page.click(role="link", name="Full report")
    page.wait("AACO performance report")
    assert page.external == []


def test_a_recorded_run_shows_its_latencies(site: Site, browser: Browser) -> None:
    page = browser.open(f"{site.url}/sessions/{site.ids['recorded']}", dark=True)
    told = page.text()
    assert "gpt2-tiny" in told and "Median latency" in told and "What to do next" in told
    assert page.visible(role="img", name="Latency of")
    sound(page)
    page.click(role="button", name="Light theme")
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "light"
    page.reload()
    assert page.visible(role="button", name="Dark theme")
    sound(page)


def test_the_timeline_opens_the_trace_without_asking_anybody(site: Site, browser: Browser) -> None:
    page = browser.open(f"{site.url}/sessions/{site.ids['nchw']}/timeline")
    page.wait("Critical path", seconds=60, frame="iframe", exact=False)
    assert "GPU 0: NVIDIA H200" in page.text("body", frame="iframe")
    assert page.external == []
    assert any("/perfetto/" in url and url.startswith(site.url) for url in page.requests)
    assert page.findings() == []


def test_a_run_is_seen_in_the_list_and_followed_to_its_end(recorded: Aaco, tmp_path: Path, browser: Browser) -> None:
    """Its process is held for each look at the page: however fast the machine is, it has not ended by then."""
    aaco = Aaco(tmp_path, recorded.cache)
    with dashboard(aaco) as url:
        page = browser.open(url)
        assert "No session yet" in page.text()
        run = subprocess.Popen(aaco.command("run", "gpt2-tiny", "--iterations", 1200), cwd=aaco.folder,
                               env=aaco.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            first, measured = _held_beyond(50, aaco, run)
            page.wait("since")
            page.click(selector=".news ul a")
            page.wait("Measuring")
            page.wait(f"{first:,} of 1,210")
            os.kill(measured, signal.SIGCONT)
            second, measured = _held_beyond(first, aaco, run)
            page.wait(f"{second:,} of 1,210")
            sound(page)
            os.kill(measured, signal.SIGCONT)
            page.wait("The run is complete", seconds=150)
            assert "1,210 of 1,210" in page.text("#live")
            assert run.wait() == 0
        finally:
            run.kill()  # and with it, by the kernel, what it measures
            run.wait()
        page.click(role="link", name="Its answers")
        page.wait("Median latency")


def _held_beyond(count: int, aaco: Aaco, run: subprocess.Popen[bytes]) -> tuple[int, int]:
    """Stops the measured process once it has made more inferences than that; how many, and its number."""
    while not (rows := aaco.latest / "runtime/iterations-000000.i64").is_file() or rows.stat().st_size <= 32 * count:
        assert run.poll() is None
        time.sleep(0.001)
    children = " ".join(path.read_text() for path in Path(f"/proc/{run.pid}/task").glob("*/children")).split()
    [measured] = [child for child in children if b"aaco.runner.worker" in Path(f"/proc/{child}/cmdline").read_bytes()]
    os.kill(int(measured), signal.SIGSTOP)
    while Path(f"/proc/{measured}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        time.sleep(0.001)
    return rows.stat().st_size // 32, int(measured)


def test_hostile_names_are_shown_and_do_nothing(site: Site, browser: Browser) -> None:
    hostile = next(session for tag, session in site.ids.items() if tag.startswith("<img"))
    for path in ("", f"/?q={HOSTILE[:30]}", f"/sessions/{hostile}", f"/sessions/{hostile}/kernels",
                 f"/compare?baseline={HOSTILE[:20]}&session={hostile}", "/history?q=<script>"):
        page = browser.open(site.url + path)
        sound(page)
        page.close()
    page = browser.open(f"{site.url}/sessions/{hostile}/kernels")
    assert "<img src=x" in page.text("tbody")


def test_a_history_leads_to_its_change_of_level(site: Site, browser: Browser) -> None:
    page = browser.open(f"{site.url}/history")
    page.click(role="link", name="start-python value")
    page.wait("Changes of level")
    [change] = json.loads(site.aaco.inside("drift", "--json", expect=3).stdout)["series"]
    assert f"{change['change_point']['change_pct']:+.1f} %" in page.text("table")
    assert change["why"] in page.text()
    assert page.visible(role="img", name="1 change of level")
    sound(page)


def test_the_keyboard_reaches_everything(site: Site, browser: Browser) -> None:
    page = browser.open(site.url)
    page.press("Tab")
    assert page.focused == "Skip to the content"
    page.press("Tab", times=6)
    assert page.focused == "Dark theme"
    reached = []
    for _ in range(16):
        reached.append(page.focused)
        page.press("Tab")
    assert {"Search", "Model", "Backend", "State", "Find"} <= set(reached)


def test_what_is_not_there_is_said(site: Site, browser: Browser) -> None:
    page = browser.open(f"{site.url}/sessions/20200101_000000_nobody")
    assert page.status == 404
    assert "no session 20200101_000000_nobody" in page.text()
    assert page.findings() == []
    page.goto(f"{site.url}/sessions/20200101_000000_broken")
    assert "not valid JSON" in page.text() or "session.json" in page.text()
    assert page.goto(f"{site.url}/sessions/..%2F..%2Fetc") == 404
    page.goto(f"{site.url}/?page=0")
    assert "page:" in page.text()
