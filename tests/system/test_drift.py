"""`aaco drift` and `aaco history import`: every command of the page on change points, exit codes, documents."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.system.conftest import Aaco

ROOT = Path(__file__).parents[2]
START = ROOT / "tests/captures/histories/start.csv"


@pytest.fixture
def aaco(tmp_path, cache):
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    return Aaco(tmp_path, cache)


def test_the_page_on_change_points(walked):
    page = walked("docs/concepts/change-points.md")
    said, folder = page.printed, page.aaco.folder
    assert "at 38 (r38)" in said[0] and said[0].startswith("1 history: 1 regressed")
    point = json.loads((folder / "drift/change_points.json").read_text())["series"][0]["change_points"][0]
    assert (point["at"]["commit"], point["worse"]) == ("r38", True)
    status = json.loads(said[3])
    assert status["status"] == "regressed"
    assert status["series"][0]["change_point"] == point
    assert json.loads((folder / "drift/drift_status.json").read_text())["counts"] == status["counts"]
    assert "58 values added" in said[2]
    assert "1 stable" in said[5] and "by Ada" in said[5]


def test_a_history_too_short_is_no_answer(aaco):
    short = "tests/captures/histories/hyperfine.json"
    assert "2 insufficient" in aaco.inside("drift", short).stdout
    aaco.inside("drift", short, "--strict", expect=4)
    aaco.inside("drift", expect=2)
    aaco.inside("drift", "--strict", expect=4)


@pytest.mark.parametrize(("arguments", "why"), [
    (["nowhere.csv"], "no such file"), (["tests/captures/histories/README.md"], "not a history"),
    ([str(START), "--benchmark", "other"], "no history of that name"),
    ([str(START), "--limit", "soon"], "not a number"),
    ([str(START), "--limit", "-5"], "no level"), ([str(START), "--min-change", "nan"], "not a number"),
    ([str(START), "--recent", "0"], "")])
def test_what_cannot_be_asked_is_refused(aaco, arguments, why):
    assert why in aaco.inside("drift", *arguments, expect=2).stderr


def test_names_do_not_steer_the_terminal(aaco, tmp_path):
    rows = [{"benchmark": "a\x1b[2Jb", "commit": f"c\x07{row}", "value": 1 + row % 3} for row in range(30)]
    (tmp_path / "evil.json").write_text(json.dumps(rows))
    shown = aaco.inside("drift", "evil.json").stdout
    assert "\x1b" not in shown and "\x07" not in shown


def test_a_file_that_says_no_time_is_named(aaco):
    done = aaco.inside("history", "import", "tests/captures/histories/hyperfine.json")
    assert "12 values added, 0 already there" in done.stdout and "when it was last written" in done.stderr
    again = aaco.inside("history", "import", "tests/captures/histories/hyperfine.json")
    assert "0 values added, 12 already there" in again.stdout


def test_a_clock_that_went_back_is_said(aaco, tmp_path):
    rows = "".join(f"b,1.0,2024-05-01T00:00:{second:02}Z\n" for second in (1, 2, 8, 5, 9))
    (tmp_path / "back.csv").write_text("benchmark,value,time\n" + rows)
    for words in (("drift", "back.csv"), ("history", "import", "back.csv")):
        assert "went back by 3 s" in aaco.inside(*words).stderr
    assert "went back" not in aaco.inside("history", "list").stderr
