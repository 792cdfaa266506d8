"""`aaco diff` on real sessions: what is not a verdict, and what a copy of a session is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/concepts/regressions.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory, cache):
    from tests.system.conftest import Aaco

    made = Aaco(tmp_path_factory.mktemp("verdict"), cache)
    for processes in (5, 2):
        made.inside("run", "bert-tiny", "--processes", processes, "--warmup", 1, "--iterations", 3, "--no-profile",
             "--quiet")
    return made


def sessions(folder):
    found = json.loads(folder.inside("ls", "--json").stdout)["sessions"]
    return [item["session_id"] for item in reversed(found)]


def test_a_copied_session_is_no_replicate(folder):
    """Mutation: the folder's name in place of the record's session_id adds two sessions of five processes."""
    first, _ = sessions(folder)
    original = next((folder.folder / "sessions").glob(f"2*/{first}"))
    copy = folder.folder / "a-copy"
    shutil.copytree(original, copy)
    assert "1 session added" in folder.inside("baseline", "save", "with-copy", original, copy).stdout
    verdict = json.loads(folder.inside("diff", "with-copy", copy, "--json").stdout)
    assert verdict["status"] == "inconclusive" and "both sides" in verdict["why"]


def test_two_processes_are_no_verdict_and_the_next_command_is_said(folder):
    """Mutation: LEAST = 2 judges them."""
    first, second = sessions(folder)
    folder.inside("baseline", "save", "five", first)
    verdict = json.loads(folder.inside("diff", "five", second, "--force", "--json").stdout)
    assert verdict["status"] == "inconclusive" and "5 against 2 processes" in verdict["why"]
    assert "aaco run bert-tiny --processes 5" in verdict["recommendation"]
    folder.inside("diff", "five", second, "--strict", expect=4)


def test_a_baseline_is_pins_in_the_history_and_travels_as_a_file(folder):
    first, second = sessions(folder)
    folder.inside("baseline", "save", "moving", first, second)
    assert "2 sessions" in folder.inside("baseline", "export", "moving", "-o", "moving.json").stdout
    assert "moving is 1 session now" in folder.inside("baseline", "promote", "moving", second).stdout
    document = json.loads(folder.inside("baseline", "list", "--json").stdout)
    listed = {item["name"]: item for item in document["baselines"]}
    assert (listed["moving"]["version"], listed["moving"]["session_ids"]) == (2, [second])
    assert "1 session added to moving, 1 already there" in folder.inside("baseline", "import", "moving.json").stdout
    assert "1 session left" in folder.inside("baseline", "expire", "moving", first).stdout
    assert "no baseline any more" in folder.inside("baseline", "expire", "moving").stdout
    folder.inside("baseline", "show", "moving", expect=2)
    assert json.loads(folder.inside("diff", "moving.json", first, "--json").stdout)["baseline_ids"] == [first, second]


def test_the_history_is_listed_and_annotated(folder):
    first, second = sessions(folder)
    folder.inside("history", "add", first, second)
    assert "already there" in folder.inside("history", "add", first).stdout
    keys = json.loads(folder.inside("history", "list", "--json").stdout)["keys"]
    assert {key["metric"] for key in keys} == {"latency_ms", "throughput_per_s"}  # too short for tails, not profiled
    folder.inside("history", "accept", "bert-tiny", second, "--author", "Ada", "--reason", "two threads")
    shown = json.loads(folder.inside("history", "sessions", "bert-tiny", "--json").stdout)
    assert [row["session_id"] for row in shown["sessions"]] == [first, second]
    assert [row["processes"] for row in shown["sessions"]] == [5, 2]
    assert shown["accepted"][0]["reason"] == "two threads"
    assert "accepted by Ada" in folder.inside("history", "sessions", "bert-tiny").stdout
    folder.inside("history", "branch", "topic", "abc", "--parent", "main")
    for wrong in (("sessions", "none-such"), ("accept", "bert-tiny", "never", "--author", "a", "--reason", "b")):
        folder.inside("history", *wrong, expect=2)


def test_a_damaged_history_is_an_error_with_what_to_try(folder, tmp_path):
    (tmp_path / "history.db").write_text("")
    for command in (("diff", "five", "latest"), ("baseline", "save", "x"), ("baseline", "list"), ("history", "list")):
        said = folder.inside(*command, "--baselines-dir", tmp_path, expect=2).stderr
        assert "history.db" in said and "backup" in said


def test_regression_is_another_name_of_diff(folder):
    first, second = sessions(folder)
    found = json.loads(folder.inside("regression", first, second, "--force", "--json").stdout)
    assert found["schema_version"] == 2 and found["level"] == 0.99
    assert {item["metric"] for item in found["metrics"]} == {"latency_ms", "throughput_per_s"}
    assert "p99" in found["metrics_absent"]["latency_p99_ms"]
