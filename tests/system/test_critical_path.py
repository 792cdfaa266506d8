"""What bounded real traces: from import to table, command, report and export; the straggler of two ranks is on it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from tests import trace_processor

RECORDED = Path(__file__).parents[1] / "captures"
SPUN_NS = 2_040_000  # what the late rank's device was made to spin before each of twelve all-reduces


@pytest.fixture
def late(aaco):
    """A session of two ranks, the second of which was made late."""
    aaco.inside("import", *(RECORDED / f"torch_ranks_h100/late_rank{rank}.json.gz" for rank in range(2)), "--quiet")
    return aaco


def kept(aaco):
    return json.loads((aaco.latest / "metrics/critical_path.json").read_text())


def rows(aaco, sql):
    return json.loads(aaco.inside("sql", sql, "--format", "json").stdout)["rows"]


def test_the_path_fills_the_window_and_goes_through_the_straggler(late):
    """Its spinning is most of it, as long as it was planted. Mutation: edges between ranks left out."""
    (course,) = kept(late)["paths"]
    assert sum(course["bound_by_ns"].values()) == course["window_ns"] == course["t_end_ns"] - course["t_start_ns"]
    assert "spin_kernel" in course["dominant_symbol"]
    spin = course["contributions"][0]
    assert (spin["path_calls"], spin["calls"]) == (12, 12)
    assert spin["path_ns"] == pytest.approx(12 * SPUN_NS, rel=0.02)
    on_path = rows(late, "select coalesce(k.capture, c.capture), sum(p.dur_ns)::BIGINT from critical_path p left join "
                         "kernels k using (kernel_id) left join api_calls c using (call_id) group by 1 order by 2 desc")
    assert on_path[0][0] == 1
    assert on_path[0][1] > 0.95 * course["window_ns"]


def test_the_tables_say_the_same(late):
    """Segments follow each other without a hole; slack is where no path is. Mutation: rows of another path."""
    (course,) = kept(late)["paths"]
    assert rows(late, "select min(t_start_ns), max(t_end_ns), sum(dur_ns)::BIGINT, count(*) from critical_path") == [
        [course["t_start_ns"], course["t_end_ns"], course["window_ns"], course["segments"]]]
    assert rows(late, "select count(*) from (select t_start_ns - lag(t_end_ns) over (order by segment) as hole from "
                      "critical_path) where hole <> 0") == [[0]]
    assert rows(late, "select count(*), sum((slack_ns < 0)::int), sum((path_ns > 0 and slack_ns > 0)::int) "
                      "from kernel_slack") == [[course["dispatches"], 0, 0]]
    assert rows(late, "select sum(calls), sum(path_ns) from critical_kernels") == [
        [course["dispatches"], sum(one["path_ns"] for one in course["contributions"])]]


def test_the_command_answers_and_plays_it_again(late):
    """Without its spinning the late rank is not late: the window shrinks by what was planted, but for what then holds
    it instead."""
    said = late.inside("critical-path").stdout
    assert "On the path" in said
    assert "spin_kernel" in said
    found = json.loads(late.inside("critical-path", "--what-if", "spin_kernel=0", "--json").stdout)
    (answer,) = found["what_if"]
    assert 0.9 * 12 * SPUN_NS < answer["window_ns"] - answer["what_if_ns"] < 12 * SPUN_NS
    assert "instead of" in late.inside("critical-path", "--what-if", "spin_kernel=0.5").stdout


@pytest.mark.parametrize("given", ["spin_kernel", "spin_kernel=fast", "spin_kernel=-1", "=0.5", "no such kernel=0.5"])
def test_what_cannot_be_asked_is_refused(late, given):
    assert late.inside("critical-path", "--what-if", given, expect=2).stderr


def test_the_report_has_it(late):
    """The parts and their sum, in every form."""
    for form in ("terminal", "markdown"):
        assert "longest chain of kernels" in " ".join(late.inside("report", "--format", form).stdout.split())
    assert json.loads(late.inside("report", "--format", "json").stdout)["examined"]["critical_path"]["paths"]


def test_a_viewer_shows_it(late, tmp_path):
    """As a line of its own that fills the window, read by the viewer's own engine. Mutation: no maker for the table."""
    (course,) = kept(late)["paths"]
    late.inside("perfetto", "-o", tmp_path / "late.pftrace")
    (found,) = trace_processor.query(tmp_path / "late.pftrace", "select count(*), sum(dur) from slice "
                                     "join track on track_id = track.id where track.name = 'path'")
    assert found == [[course["segments"], course["window_ns"]]]


def test_a_trace_that_is_too_long_for_an_import_says_so(aaco):
    """And the command has no limit."""
    config = aaco.folder / "short.yaml"
    config.write_text("analysis:\n  critical_path_work: 10\n")
    aaco.inside("import", RECORDED / "torch_ranks_h100/even_rank0.json.gz", "--quiet", "--config", config)
    document = kept(aaco)
    assert document["paths"] == []
    assert "aaco critical-path" in document["why_absent"]
    assert not (aaco.latest / "attribution/critical_path.parquet").exists()
    assert "On the path" in aaco.inside("critical-path", "--config", config).stdout


def test_a_session_without_device_work_has_none(aaco):
    """Nor operators that kernels serve. Mutation: it is told to list the kernels, of which it has none, either."""
    aaco.inside("import", RECORDED / "jax_cpu/profile.xplane.pb", "--quiet")
    assert not (aaco.latest / "metrics/critical_path.json").exists()
    assert "no work of a device" in aaco.inside("critical-path", expect=2).stderr
    assert "try: aaco info" in aaco.inside("ops", expect=2).stderr


def test_it_is_a_reading(late):
    """Mutation: the first path's alone."""
    (course,) = kept(late)["paths"]
    readings = json.loads((late.latest / "metrics/derived_metrics.json").read_text())
    assert readings["critical_path_ns"]["value"] == course["critical_path_ns"]
    work = sum(course["bound_by_ns"][kind] for kind in ("compute", "communication", "copy"))
    assert readings["critical_path_device_pct"]["value"] == pytest.approx(100 * work / course["window_ns"])
    assert "longest chain" in late.inside("explain", "critical_path_ns").stdout


def test_captures_that_nothing_connects_have_a_path_each(aaco):
    """Two traces of one model in one session; the table has both. Mutation: `launch` not renumbered."""
    aaco.inside("import", *(RECORDED / f"torch_h200/resnet50_{form}.json.gz" for form in ("nchw", "nhwc")), "--quiet")
    first, second = kept(aaco)["paths"]
    assert (first["captures"], second["captures"]) == ([0], [1])
    for course in (first, second):
        assert sum(course["bound_by_ns"].values()) == course["window_ns"]
        assert course["edges"]["launch"][0] > 1000
    assert rows(aaco, "select path, sum(dur_ns)::BIGINT from critical_path group by 1 order by 1") == [
        [0, first["window_ns"]], [1, second["window_ns"]]]
    assert "Capture 1 " in aaco.inside("critical-path").stdout


@pytest.mark.parametrize("damage", ['{"schema_version": 1}', '{"schema_version": 1, "paths": [{}]}',
                                    '{"schema_version": 1, "paths": 7, "why_absent": 3}'])
def test_a_damaged_document_is_said_to_be_one(late, damage):
    (late.latest / "metrics/critical_path.json").write_text(damage)
    assert "critical_path.json" in late.inside("critical-path", expect=2).stderr


def test_what_to_try_next_runs_as_it_is_printed(late):
    """Of the session that was asked about, also where another is the latest. Mutation: the command without a session.
    """
    first = late.latest.name
    late.inside("import", RECORDED / "torch_scenarios/launch_tiny_mlp.trace.json.gz", "--quiet")
    for words in (("critical-path", first, "--what-if", "no_such_kernel=0"), ("what-if", first)):
        refused = late.inside(*words, expect=2)
        command = shlex.split(refused.stderr.partition("try: aaco ")[2], comments=True)
        assert first in command and late.inside(*command).stdout
