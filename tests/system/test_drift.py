"""`aaco drift` and `aaco history import`: every command of the page on change points, exit codes, documents."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.system.conftest import Aaco

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/concepts/change-points.md").read_text()
START = ROOT / "tests/captures/histories/start.csv"


@pytest.fixture
def aaco(tmp_path, cache):
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    return Aaco(tmp_path, cache)


def test_the_page_on_change_points(aaco, tmp_path):
    commands = "".join(re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)).splitlines()
    done = [aaco.inside(*shlex.split(line)[1:], expect=expect)
            for line, expect in zip(commands, (3, 3, 0, 3, 0, 0), strict=True)]
    assert "at 38 (r38)" in done[0].stdout and done[0].stdout.startswith("1 history: 1 regressed")
    point = json.loads((tmp_path / "drift/change_points.json").read_text())["series"][0]["change_points"][0]
    assert (point["at"]["commit"], point["worse"]) == ("r38", True)
    status = json.loads(done[3].stdout)
    assert status["status"] == "regressed"
    assert status["series"][0]["change_point"] == point
    assert json.loads((tmp_path / "drift/drift_status.json").read_text())["counts"] == status["counts"]
    assert "58 values added" in done[2].stdout
    assert "1 stable" in done[5].stdout and "by Ada" in done[5].stdout


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
