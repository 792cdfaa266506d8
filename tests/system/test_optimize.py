"""`aaco optimize --list` on real recordings, against the tables that it reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

RECORDED = Path(__file__).parents[1] / "captures"


def listed(aaco, *options):
    return json.loads(aaco.inside("optimize", "--list", "--json", *options).stdout)


def test_kernels_of_a_network_are_refused_for_what_limits_them(aaco):
    """Two convolutions have the headroom and the share; arithmetic limits them, so the class alone refuses them, and a
    setting that admits it makes them worth the effort. Mutation: the class not asked for."""
    aaco.inside("import", RECORDED / "torch_shapes_h200/resnet50_fp32.json.gz", "--quiet")
    first, second, third = listed(aaco, "--top", "3")["kernels"]
    assert list(first["refused"]) == list(second["refused"]) == ["class"]
    assert list(third["refused"]) == ["path_share", "class"]
    said = " ".join(aaco.inside("optimize", "--list").stdout.split())
    assert "0 of 15 kernels on the critical path worth optimising" in said
    assert "gate class: compute_throughput is none of memory_latency" in said
    wider = aaco.folder / "wider.yaml"
    wider.write_text("optimize:\n  classes: [memory_latency, compute_throughput]\n")
    found = listed(aaco, "--config", wider)
    assert [one["kernel_name"] for one in found["kernels"] if not one["refused"]] == [
        first["kernel_name"], second["kernel_name"]]
    assert found["gates"]["classes"] == ["memory_latency", "compute_throughput"]


def test_figures_are_those_of_the_tables(aaco):
    """Mutation: headroom in place of its product with the share."""
    aaco.inside("import", RECORDED / "torch_shapes_h200/resnet50_fp32.json.gz", "--quiet")
    found = listed(aaco, "--top", "100")
    path = {row[0]: row[1] for row in json.loads(aaco.inside(
        "sql", "select kernel_name, fraction from critical_kernels", "--format", "json").stdout)["rows"]}
    classes = {one["kernel_name"]: one for one in json.loads(
        (aaco.latest / "metrics/kernel_classes.json").read_text())["kernels"]}
    assert {one["kernel_name"] for one in found["kernels"]} == set(path)
    assert found["others"] == 0
    by_shapes = [one for one in found["kernels"] if one["headroom_by"] == "shapes"]
    assert len(by_shapes) > 5
    for one in by_shapes:
        facts = classes[one["kernel_name"]]
        reached = max(share for name in ("compute_share", "memory_share") if (share := facts[name]) is not None)
        assert one["headroom"] == pytest.approx(1 - reached)
        assert one["priority"] == pytest.approx((1 - reached) * path[one["kernel_name"]])
        assert one["speedup_at_most"] == pytest.approx(1 / (1 - one["priority"]))


def test_without_counters_or_shapes_there_is_no_headroom(aaco):
    """The spinning kernel is most of the path, and nothing says what it could gain. Mutation: a headroom of 1."""
    aaco.inside("import", *(RECORDED / f"torch_ranks_h100/late_rank{rank}.json.gz" for rank in range(2)), "--quiet")
    (first, *_) = listed(aaco)["kernels"]
    assert "spin_kernel" in first["kernel_name"]
    assert (first["headroom"], first["priority"], first["speedup_at_most"]) == (None, None, None)
    assert "neither counters nor operators' shapes" in first["refused"]["headroom"]


def test_a_path_that_an_import_left_out_is_looked_for(aaco):
    """With the same answer. Mutation: an empty list where the table is not there."""
    short = aaco.folder / "short.yaml"
    short.write_text("analysis:\n  critical_path_work: 10\n")
    answers = []
    for options in ((), ("--config", short)):
        aaco.inside("import", RECORDED / "torch_shapes_h200/resnet50_fp32.json.gz", "--quiet", *options)
        answers.append(listed(aaco)["kernels"])
    assert answers[0] and answers[0] == answers[1]


def test_what_has_no_path_says_so(aaco):
    aaco.inside("import", RECORDED / "ncu_h200/roofline.csv.gz", "--quiet")
    assert "has no critical path" in aaco.inside("optimize", "--list", expect=2).stderr
    assert "aaco optimize --list" in aaco.inside("optimize", expect=2).stderr
