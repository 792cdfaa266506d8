"""`aaco diff` of two imported traces, and `aaco perfetto`, as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import kineto_files
from tests.system.conftest import Aaco

BEFORE = [("aten::linear", [("gemm", 100.0)]), ("aten::gelu", [("bias", 10.0), ("gelu<float, 4>(int)", 20.0)])]
AFTER = [("aten::linear", [("gemm", 104.0)]), ("aten::gelu", [("fused_gelu", 22.0)])]


@pytest.fixture
def traces(aaco: Aaco, tmp_path: Path) -> tuple[str, str]:
    """The session ids of both imported traces; they hold different numbers of steps."""
    ids = []
    for name, layers, steps in (("before", BEFORE, 2), ("after", AFTER, 3)):
        path = kineto_files.write(tmp_path / f"{name}.json", layers, steps)
        ids.append(json.loads(aaco.inside("import", str(path), "--json", "--quiet").stdout)["session_id"])
    return ids[0], ids[1]


def test_a_fusion_shows_in_every_part_of_the_difference(aaco, traces):
    document = json.loads(aaco.inside("diff", *traces, "--json").stdout)
    assert (document["steps_before"], document["steps_after"], document["steps"]) == (2, 3, 6)
    parts = document["delta_kernels_ns"] + document["delta_gaps_ns"] - document["delta_overlap_ns"]
    assert parts == document["delta_ns"] == document["span_after_ns"] - document["span_before_ns"]
    groups = {(group["kernel"], tuple(group["context"])[-1]): group for group in document["groups"]}
    gemm = groups["gemm", "aten::linear"]
    assert (gemm["count_before"], gemm["count_after"], gemm["delta_count_ns"], gemm["delta_duration_ns"]) == (
        6, 6, 0, 6 * 4_000)
    fused = groups["fused_gelu", "aten::gelu"]
    assert (fused["count_before"], fused["count_after"], fused["delta_ns"]) == (0, 6, 6 * 22_000)
    changed = {(tuple(item["before"]), tuple(item["after"])) for item in document["replacements"]}
    assert (("bias", "gelu<float, 4>(int)"), ("fused_gelu",)) in changed
    parts = {(part["operator"], part["family"]): part for part in document["families"]}
    assert parts["aten::linear", "gemm"]["delta_duration_ns"] == 6 * 4_000
    assert sum(part["delta_ns"] for part in document["families"]) == document["delta_kernels_ns"]
    assert document["gaps"] and sum(wait["delta_ns"] for wait in document["gaps"]) == document["delta_gaps_ns"]
    text = aaco.inside("diff", *traces).stdout
    assert "BY FAMILY AND OPERATOR" in text and "gemm in aten::linear" in text
    assert "BY OPERATION" in text and "gelu" in text and "fused_gelu" in text and "sum" in text


def test_the_difference_is_kept_in_the_later_session(aaco, traces):
    aaco.inside("diff", *traces)
    kept = json.loads(aaco.inside("info", traces[1], "--json").stdout)
    assert "regress/diff.json" in kept["files"] and not kept["damaged"]


def test_a_trace_and_a_run_do_not_compare(aaco, traces):
    aaco.inside("profile", "--runs", "2", "--quiet", "--", "true")
    done = aaco.inside("diff", "latest", traces[1], expect=2)
    assert "was imported" in done.stderr and "Traceback" not in done.stderr


def test_a_session_is_written_for_a_viewer(aaco, traces, tmp_path):
    for form, name in (("perfetto", "t.pftrace"), ("chrome", "t.json")):
        done = aaco.inside("perfetto", traces[0], "--format", form, "-o", str(tmp_path / name))
        assert "30 events" in done.stderr and (tmp_path / name).stat().st_size > 500
