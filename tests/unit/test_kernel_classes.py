"""Classes of kernels by planted facts, and of captures whose kernel is known."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aaco import pipeline
from aaco.analytics.bottleneck.kernel_classes import CLASSES, Facts, classify, facts_of
from aaco.core.config import resolve
from aaco.examinations.kernel_classes import MOST
from aaco.report.kernel_classes import sections
from aaco.tracelake import layout, manifest

LONG = Facts("k", "unknown", 10, 10**6, 100_000.0, 10_000.0)


@pytest.mark.parametrize(("facts", "expected"), [
    ({"median_ns": 3000.0, "compute_share": 0.9}, "tiny"),
    ({"lanes_ratio": 0.3, "compute_share": 0.6}, "divergence"),
    ({"conflict_ratio": 0.5}, "lds"), ({"lds_share": 0.7, "memory_share": 0.2, "compute_share": 0.1}, "lds"),
    ({"lds_share": 0.59, "compute_share": 0.76, "memory_share": 0.2}, "compute_throughput"),
    ({"lds_share": 0.59, "compute_share": 0.3, "memory_share": 0.7}, "memory_bandwidth"),
    ({"lds_share": 0.44, "compute_share": 0.25, "memory_share": 0.12, "occupancy_ratio": 0.06}, "unclear"),
    ({"memory_share": 0.8, "compute_share": 0.6}, "memory_bandwidth"),
    ({"memory_share": 0.2, "compute_share": 0.7}, "compute_throughput"),
    ({"memory_share": 0.1, "compute_share": 0.1, "scalar_ratio": 2.0}, "scalar"),
    ({"memory_share": 0.1, "compute_share": 0.1, "occupancy_ratio": 0.03}, "memory_latency"),
    ({"memory_share": 0.1, "compute_share": 0.1, "occupancy_ratio": 0.2}, "occupancy"),
    ({"memory_share": 0.1, "compute_share": 0.1, "occupancy_ratio": 0.8}, "memory_latency"),
    ({"occupancy_ratio": 0.03}, "memory_latency"), ({"family": "softmax"}, "memory_bandwidth"),
    ({"family": "gemm"}, "unclear"), ({"family": "gemm", "occupancy_ratio": 0.03}, "unclear"), ({}, "unclear"),
    ({"memory_share": 0.4, "compute_share": 0.4, "occupancy_ratio": 0.8}, "unclear")])
def test_each_class_from_planted_facts(facts, expected):
    """Mutations: asking compute before memory calls the eighth compute_throughput; asking local memory before both,
    whichever is nearer, calls the fifth and sixth lds; not asking whether its roof is far calls the seventh occupancy.
    """
    found = classify(replace(LONG, **facts))
    assert found.label == expected
    assert expected == "unclear" or (found.evidence and all(one.holds for one in found.evidence))


shares = st.none() | st.floats(0, 1)


families = st.none() | st.sampled_from(["gemm", "copy", "sort"])


@given(st.builds(Facts, st.text(), families, st.integers(0), st.integers(0), st.floats(0, 1e9), st.just(10_000.0),
                 *[shares] * 7))
def test_any_facts_have_one_class_and_a_document(facts):
    found = classify(facts)
    assert found.label in CLASSES and found == classify(facts)
    assert found.document()["class"] == found.label


def test_counters_that_read_zero_give_no_ratio():
    """A divisor of zero is a counter that did not count, as METHODS section 5 has it."""
    row = {"kernel_name": "k", "family": None, "calls": 1, "total_ns": 1, "median_ns": 1.0, "occupancy_pct": 0.0}
    found = facts_of(row, 10.0, {"SQ_INSTS_SALU": 5.0, "SQ_INSTS_VALU": 0.0}, None, None)
    assert (found.scalar_ratio, found.occupancy_ratio, found.by) == (None, None, "name")


@pytest.mark.captures
@pytest.mark.parametrize("capture", ["vcopy_MI100", "vcopy_MI200", "vcopy_MI350"])
def test_a_copy_kernel_is_limited_by_memory(captures, tmp_path, capture):
    settings = resolve(overrides={"storage": {"sessions_dir": str(tmp_path)}}, environment={})
    run = pipeline.import_captures([captures / "rocprof-compute" / capture], settings)
    (found,) = run.session.read_json(layout.EXAMINED["kernel_classes"])["kernels"]
    assert found["class"] == "memory_bandwidth"


def test_shares_are_of_all_kernels_and_not_of_those_that_are_listed(tmp_path):
    """Mutation: a total over the listed kernels alone gives each a share that is half too large."""
    count = 3 * MOST // 2
    events = [{"ph": "X", "cat": "kernel", "name": f"kernel_{n}", "pid": 0, "tid": 7, "ts": 100 * n, "dur": 50,
               "args": {"device": 0, "stream": 7, "correlation": n + 1}} for n in range(count)]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [], "traceEvents": events}))
    settings = resolve(overrides={"storage": {"sessions_dir": str(tmp_path / "sessions")}}, environment={})
    document = pipeline.import_captures([path], settings).session.read_json(layout.EXAMINED["kernel_classes"])
    assert (len(document["kernels"]), document["kernel_ns"]) == (MOST, 50_000 * count)
    ((_, rows),) = sections(document)
    assert f" {100 / count:.1f} %;" in rows[0].text


def test_a_session_of_an_older_version_is_analysed_anew(tmp_path):
    """What an older version sealed differs from what this one writes. Mutation: tables that analyze has just written
    are held against the seal before, so that it ends half way and leaves the session damaged.
    """
    operator = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 0, "dur": 50, "args": {
        "External id": 1, "Input Dims": [[64, 64], [64, 64]], "Input type": ["float", "float"]}}
    launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 5, "dur": 5,
              "args": {"correlation": 1, "External id": 1}}
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 20, "dur": 50,
              "args": {"device": 0, "stream": 7, "correlation": 1, "External id": 1}}
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}],
                                "traceEvents": [operator, launch, kernel]}))
    settings = resolve(overrides={"storage": {"sessions_dir": str(tmp_path / "sessions")}}, environment={})
    session = pipeline.import_captures([path], settings).session
    sealed = session.read_json("manifest.json")
    for name in ("attribution/operators.parquet", "attribution/op_to_kernel_map.parquet"):
        sealed["files"][name]["sha256"] = "0" * 64
    session.write_json("manifest.json", sealed)
    pipeline.analyze(session, settings)
    assert manifest.check(session) == {}
