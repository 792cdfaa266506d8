"""What a lake says as a page: in a file, on the dashboard, and as the card of bundles that are in no lake."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace
from starlette.testclient import TestClient

from aaco.cli import app
from aaco.core import config
from aaco.core.errors import UsageError
from aaco.dashboard import fleet as dashboard_fleet
from aaco.dashboard.app import create_app
from aaco.dashboard.settings import ServerSettings
from aaco.fleet import answers
from aaco.fleet.ingest import bundles, ingest
from aaco.fleet.overview import card, overview
from aaco.fleet.scan import FleetFilter
from aaco.report.renderers import fleet_page
from aaco.report.sections import fleet as tables_of
from benchmarks.fleet._bundles import FleetPlan, SessionPlan, sessions, write_session
from tests.fleets import bundles_of
from tests.unit.test_dashboard_pages import HOSTILE, Tags, text

PLAN = FleetPlan(48, models=2, devices=1, nodes=4, iterations=20, regressions=1, regression=1.25, stragglers=1,
                 straggler=1.2, seed=3)
FOLDER = "/home/ann/secret/device"


folder = bundles_of(PLAN)


@pytest.fixture(scope="module")
def lake(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of all of them; not to be changed."""
    path = tmp_path_factory.mktemp("lake")
    assert not ingest(path, bundles([folder])).refused
    return path


def client(folder: Path, lake: Path) -> TestClient:
    settings = config.resolve(None, None, {"storage": {
        "sessions_dir": folder / "sessions", "baselines_dir": folder / "baselines", "fleet_dir": lake}})
    return TestClient(create_app(ServerSettings(settings)), base_url="http://127.0.0.1")


def changed(row: SessionPlan, **names: str) -> SessionPlan:
    return replace(row, **names)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["fleet", *arguments])


def test_the_overview_says_what_the_verbs_say(lake: Path) -> None:
    choice = FleetFilter(model="bert")
    document = overview(lake, choice)
    assert document["status"] == answers.status(lake)
    for verb in ("regressions", "top", "trend", "heatmap", "scaling", "health", "labels"):
        assert document[verb] == getattr(answers, verb)(lake, choice=choice), verb


def test_what_was_planted_is_on_the_page(lake: Path, tmp_path: Path) -> None:
    planted = sessions(PLAN)[1]
    assert run("report", "--lake", str(lake), "-o", str(tmp_path / "fleet.html")).exit_code == 0
    page = (tmp_path / "fleet.html").read_text()
    parts = {part.id: part for part in tables_of.tables(overview(lake))}
    assert {row[0].text for row in parts["regressions"].rows} == planted.regressions
    assert {(row[0].text, int(row[1].text)) for row in parts["stragglers"].rows} == planted.stragglers
    assert all(session_id in page for session_id in planted.regressions | {row[0] for row in planted.stragglers})
    assert run("report", "--lake", str(lake)).stdout == page
    assert json.loads(run("report", "--lake", str(lake), "--json").stdout) == overview(lake)


def test_a_page_runs_nothing_and_loads_nothing(tmp_path: Path) -> None:
    """Mutation: names are not escaped."""
    row = changed(sessions(PLAN)[0][0], model=HOSTILE, device=HOSTILE, node=HOSTILE)
    session = write_session(tmp_path / "s", row, PLAN)
    page = fleet_page.render(card([session.folder]), HOSTILE)
    assert "<img" not in page and "\u202e" not in page
    assert "script-src" not in page and "default-src &#39;none&#39;" in page
    assert [tag for tag, attributes in Tags.of(page).found if "src" in attributes or tag in ("script", "link")] == []


def test_a_heat_map_tells_what_is_absent_from_what_is_fine(lake: Path) -> None:
    document = overview(lake)
    [cell, _] = document["heatmap"]["cells"]
    document["heatmap"]["absent"] = [cell | {"device": "MI250X", "judged": 0, "share": None, "band": None,
                                             "why_absent": "1 comparable session; a base takes 8"}]
    part = {part.id: part for part in tables_of.tables(document)}["heatmap"]
    assert part.columns == ("Model", "MI250X", "MI300X")
    first, second = part.rows
    assert [cell.look for cell in first] == ["", "absent", f"band {cell['band']}"]
    assert first[1].text == "n/a: 1 comparable session; a base takes 8"
    assert second[1].text == "no session"


def test_a_long_list_says_that_it_is_cut(lake: Path) -> None:
    """Mutation: a list that is cut looks whole."""
    document = overview(lake)
    [row] = document["regressions"]["worse"]
    document["regressions"]["worse"] = [row] * (tables_of.MOST_ROWS + 1)
    part = {part.id: part for part in tables_of.tables(document)}["regressions"]
    assert len(part.rows) == tables_of.MOST_ROWS
    assert "101 worse" in part.lead and "the first 100 are shown" in part.lead
    document["top"]["stragglers_found"] = 7
    assert "7 processes lag" in {part.id: part for part in tables_of.tables(document)}["stragglers"].lead


def test_clocks_that_are_ahead_are_on_the_page(lake: Path) -> None:
    status = overview(lake)["status"] | {"clocks_ahead": [{"node": None, "sessions": 2}]}
    assert tables_of.facts(status)[-1].text == "not recorded (2 sessions); their place in trends is wrong"


def test_the_card_judges_sessions_without_a_lake(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    planted = sessions(PLAN)[1]
    document = card([folder])
    assert {row["session_id"] for row in document["listed"] if row["verdict"] == "worse"} == planted.regressions
    assert len(document["listed"]) == 48 and "lake" not in document["status"]
    late = {row["session_id"]: row["slowest_process_pct"] for row in document["listed"]}
    [(session_id, _)] = planted.stragglers
    assert late[session_id] == max(late.values()) == pytest.approx(20, abs=4)
    assert list(tmp_path.iterdir()) == []


def test_a_card_of_few_sessions_gives_levels_and_no_verdict(folder: Path) -> None:
    """Mutation: a distance from a base of few sessions is given, which says nothing."""
    document = card(bundles([folder])[:3])
    assert [row["level"] is not None for row in document["listed"]] == [True] * 3
    assert all(row["verdict"] is row["change_pct"] is row["base"] is None for row in document["listed"])
    assert "comparable session" in document["listed"][0]["why_absent"]


def test_a_session_without_timed_inferences_is_on_the_card_with_the_reason(folder: Path, tmp_path: Path) -> None:
    """Mutation: what was not measured is not told."""
    from aaco.tracelake import manifest

    session = write_session(tmp_path / "s", sessions(PLAN)[0][0], PLAN)
    (session.folder / "metrics/inference_iters.parquet").unlink()
    manifest.write(session, {})
    document = card([session.folder, folder])
    assert "with other facts" in document["refused"][str(folder / f"{session.record.session_id}.tar.zst")]
    [row] = [row for row in document["listed"] if row["session_id"] == session.record.session_id]
    assert (row["level"], row["why_absent"]) == (None, "no timed inferences")
    assert document["unmeasured"] == [{"why_absent": "no timed inferences", "sessions": 1}]
    assert "No level: 1 session; no timed inferences." in fleet_page.render(document, "card")


def test_the_card_for_people_and_its_exit_codes(folder: Path, tmp_path: Path) -> None:
    [broken] = [tmp_path / "broken.tar.zst"]
    broken.write_bytes(b"nothing")
    done = run("card", str(folder), "--most", "2")
    assert (done.exit_code, done.stdout.splitlines()[0].split(" of ")[0]) == (0, "48 sessions: 1 worse, 0 better")
    assert "and 46 more" in done.stdout
    assert "no change" in done.stdout
    few = run("card", str(bundles([folder])[0]), str(broken), "-o", str(tmp_path / "card.html"))
    assert few.exit_code == 2
    assert "Refused: " in (tmp_path / "card.html").read_text()
    assert "not judged, 1 comparable session" in run("card", str(bundles([folder])[0])).stdout
    with pytest.raises(UsageError, match="no bundle"):
        card([tmp_path / "nowhere"])


def test_a_server_without_a_lake_says_so(tmp_path: Path) -> None:
    site = client(tmp_path, tmp_path / "nowhere")
    assert "No bundle is in the lake yet" in site.get("/fleet").text
    answer = site.get("/api/v1/fleet")
    assert answer.status_code == 404 and "no lake of a fleet" in answer.json()["error"]["what"]
    assert not (tmp_path / "nowhere").exists()


def test_the_page_of_the_dashboard_has_filters_and_links(lake: Path, tmp_path: Path) -> None:
    [slow] = sessions(PLAN)[1].regressions
    row = next(row for row in sessions(PLAN)[0] if row.session_id == slow)
    write_session(tmp_path / "sessions/2026-01-06" / slow, row, PLAN)
    site = client(tmp_path, lake)
    page = site.get("/fleet")
    assert "1 worse, 0 better of 48 judged sessions" in text(page)
    assert f'href="/sessions/{slow}"' in page.text
    other = "bert" if row.model == "resnet50" else "resnet50"
    assert "0 worse, 0 better of 24 judged sessions" in text(site.get(f"/fleet?model={other}"))
    assert site.get(f"/api/v1/fleet?model={other}").json()["regressions"]["judged"] == 24
    assert site.get("/api/v1/fleet?device=nothing").json()["regressions"]["judged"] == 0
    assert Tags.of(page.text).that_run() == []


def test_a_page_shows_what_was_ingested_since_and_is_computed_once(folder: Path, tmp_path: Path,
                                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: the first answer stays for ever."""
    computed: list[FleetFilter] = []
    monkeypatch.setattr(dashboard_fleet, "overview", lambda path, choice: [computed.append(choice),
                                                                          overview(path, choice)][1])
    ingest(tmp_path / "lake", bundles([folder])[:10])
    site = client(tmp_path, tmp_path / "lake")
    counts = [site.get("/api/v1/fleet").json()["status"]["sessions"] for _ in range(2)]
    ingest(tmp_path / "lake", bundles([folder]))
    assert [*counts, site.get("/api/v1/fleet").json()["status"]["sessions"]] == [10, 10, 48]
    assert len(computed) == 2


def test_a_page_names_no_folder_of_the_machine(tmp_path: Path) -> None:
    """Mutation: folders are shown."""
    session = write_session(tmp_path / "s", changed(sessions(PLAN)[0][0], device=FOLDER), PLAN)
    ingest(tmp_path / "lake", [session.folder])
    site = client(tmp_path, tmp_path / "lake")
    for path in ("/fleet", "/api/v1/fleet"):
        answer = site.get(path)
        assert answer.status_code == 200
        assert "/home/ann" not in answer.text and str(tmp_path) not in answer.text


def test_a_damaged_lake_is_a_page_of_its_own(lake: Path, tmp_path: Path) -> None:
    damaged = shutil.copytree(lake, tmp_path / "lake")
    next((damaged / "landing").iterdir()).unlink()
    site = client(tmp_path, damaged)
    assert site.get("/fleet").status_code == 422
    assert "missing" in site.get("/fleet").text
