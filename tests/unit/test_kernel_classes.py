"""Classes of kernels by planted facts, and of captures whose kernel is known."""

import gzip
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aaco import pipeline
from aaco.analytics.bottleneck.kernel_classes import CLASSES, classify, facts_of
from aaco.analytics.roofline import formulas
from aaco.core.config import resolve
from aaco.core.documents import encode
from aaco.profiler.launchers import ncu
from aaco.report.sections.finding_views import sections
from aaco.steps.findings.kernel_classes import MOST
from aaco.tracelake import layout, manifest
from aaco.tracelake.document_schemas.answers import KernelClasses, KernelFacts
from tests.fakes import ncu as fake_ncu

SPIN = "at::cuda::(anonymous namespace)::spin_kernel(long)"
LONG = KernelFacts(kernel_name="k", family="unknown", calls=10, total_ns=10**6, median_ns=100_000.0, short_ns=10_000.0)


@pytest.mark.parametrize(("facts", "expected"), [
    ({"median_ns": 3000.0, "compute_share": 0.9}, "tiny"),
    ({"lanes_ratio": 0.3, "compute_share": 0.6}, "divergence"),
    ({"conflict_ratio": 0.5}, "lds"), ({"lds_share": 0.7, "memory_share": 0.2, "compute_share": 0.1}, "lds"),
    ({"lds_share": 0.59, "compute_share": 0.76, "memory_share": 0.2}, "compute_throughput"),
    ({"lds_share": 0.59, "compute_share": 0.3, "memory_share": 0.7}, "memory_bandwidth"),
    ({"lds_share": 0.44, "compute_share": 0.25, "memory_share": 0.12, "occupancy_ratio": 0.06}, "lds"),
    ({"memory_share": 0.8, "compute_share": 0.6}, "memory_bandwidth"),
    ({"memory_share": 0.2, "compute_share": 0.7}, "compute_throughput"),
    ({"memory_share": 0.1, "compute_share": 0.1, "scalar_ratio": 2.0}, "scalar"),
    ({"memory_share": 0.1, "compute_share": 0.1, "occupancy_ratio": 0.03}, "memory_latency"),
    ({"memory_share": 0.1, "compute_share": 0.1, "occupancy_ratio": 0.2}, "occupancy"),
    ({"memory_share": 0.05, "compute_share": 0.05, "occupancy_ratio": 0.8}, "unclear"),
    ({"memory_share": 0.1, "compute_share": 0.05, "occupancy_ratio": 0.8}, "memory_bandwidth"),
    ({"memory_share": 0.05, "compute_share": 0.1, "family": "gemm", "occupancy_ratio": 0.03}, "compute_throughput"),
    ({"memory_share": 0.05, "compute_share": 0.05, "family": "conv", "occupancy_ratio": 0.03}, "unclear"),
    ({"memory_share": 0.05, "compute_share": 0.05, "family": "conv", "memory_wait_share": 0.9}, "memory_latency"),
    ({"ridge_ratio": 4.0, "family": "attention"}, "compute_throughput"),
    ({"ridge_ratio": 0.2, "family": "gemm", "tile_side": 256}, "memory_bandwidth"),
    ({"family": "gemm", "tile_side": 32}, "memory_bandwidth"),
    ({"family": "gemm", "tile_side": 64}, "compute_throughput"),
    ({"family": "conv"}, "compute_throughput"), ({"family": "sort"}, "unclear"),
    ({"communicates": True, "median_ns": 3000.0}, "communication"),
    ({"memory_share": 0.0, "compute_share": 0.0, "occupancy_ratio": 0.0, "memory_wait_share": 0.02}, "latency"),
    ({"memory_share": 0.0, "compute_share": 0.0, "occupancy_ratio": 0.0, "memory_wait_share": 0.97}, "memory_latency"),
    ({"memory_share": 0.1, "compute_share": 0.1, "occupancy_ratio": 0.8, "memory_wait_share": 0.1}, "latency"),
    ({"memory_share": 0.1, "compute_share": 0.1, "occupancy_ratio": 0.8, "memory_wait_share": 0.5}, "memory_latency"),
    ({"occupancy_ratio": 0.03, "memory_wait_share": 0.1}, "latency"),
    ({"memory_share": 0.7, "compute_share": 0.1, "memory_wait_share": 0.1}, "memory_bandwidth"),
    ({"occupancy_ratio": 0.03}, "memory_latency"), ({"family": "softmax"}, "memory_bandwidth"),
    ({"occupancy_ratio": 0.03, "kernel_name": SPIN}, "unclear"),
    ({"family": "gemm"}, "unclear"), ({"family": "gemm", "occupancy_ratio": 0.03}, "unclear"), ({}, "unclear"),
    ({"memory_share": 0.4, "compute_share": 0.4, "occupancy_ratio": 0.8}, "memory_bandwidth")])
def test_each_class_from_planted_facts(facts, expected):
    """Mutations: asking compute before memory calls the eighth compute_throughput; asking local memory before both,
    whichever is nearer, calls the fifth and sixth lds; not asking whether its roof is far calls the seventh occupancy;
    not asking what waits are for calls every latency memory's; a latency without waits or few waves; the waves of a
    product asked, and of what waits for the clock.
    """
    found = classify(LONG.model_copy(update=facts))
    assert found.label == expected
    assert expected == "unclear" or (found.evidence and all(one.holds for one in found.evidence))


@pytest.mark.parametrize(("facts", "part"), [
    ({"median_ns": 3000.0, "family": "copy"}, "memory"), ({"median_ns": 3000.0, "family": "gemm"}, "kernel"),
    ({"median_ns": 3000.0, "compute_share": 0.02, "memory_share": 0.01}, "compute"),
    ({"compute_share": 0.02, "memory_share": 0.01}, "kernel"), ({"communicates": True}, "communication"),
    ({"memory_share": 0.0, "compute_share": 0.0, "memory_wait_share": 0.02}, "kernel"),
    ({"occupancy_ratio": 0.03}, "memory_latency"),
    ({"lds_share": 0.7, "memory_share": 0.2, "compute_share": 0.1}, "kernel"),
    ({"memory_share": 0.1, "compute_share": 0.05, "occupancy_ratio": 0.2}, "memory")])
def test_the_part_of_the_budget_is_that_of_the_class(facts, part):
    """Of a class that names no roof, the side of the ridge. Mutation: of every class its side."""
    assert classify(LONG.model_copy(update=facts)).part == part


shares = st.none() | st.floats(0, 1)


families = st.none() | st.sampled_from(["gemm", "copy", "sort"])


counts = st.integers(0, 2**63 - 1)
SHARES = ("compute_share", "memory_share", "lds_share", "lanes_ratio", "conflict_ratio", "scalar_ratio",
          "occupancy_ratio", "memory_wait_share")


@given(st.builds(KernelFacts, kernel_name=st.text(), family=families, calls=counts, total_ns=counts,
                 median_ns=st.floats(0, 1e9), short_ns=st.just(10_000.0), **dict.fromkeys(SHARES, shares)))
def test_any_facts_have_one_class_and_a_document(facts):
    found = classify(facts)
    assert found.label in CLASSES and found == classify(facts)
    (written,) = encode(KernelClasses(kernel_ns=0, kernels=[found]))["kernels"]
    assert written["class"] == found.label and written.keys() >= {"kernel_name", *SHARES}


STALLS = {"long_scoreboard": "memory", "lg_throttle": "memory", "wait": "own", "short_scoreboard": "own",
          "math_pipe_throttle": "own"}


@pytest.mark.parametrize(("waited", "expected"), [
    ({"wait": "9.50", "long_scoreboard": "0.05"}, "latency"),
    ({"wait": "1.20", "long_scoreboard": "30.00", "lg_throttle": "0.40"}, "memory_latency"),
    ({"short_scoreboard": "4.00", "math_pipe_throttle": "2.00", "lg_throttle": "1.00"}, "latency")])
def test_a_kernel_of_one_thread_waits_for_memory_only_where_it_does(waited, expected, tmp_path):
    """From ncu's page to the class, and what the session's time went to. Mutations: the metrics not asked for by name;
    the launch asked where the waits are known."""
    quantities = sorted(formulas.NVIDIA.counters)
    metrics = dict.fromkeys(quantities, ("", "0")) | {
        "gpu__time_duration.sum": ("ns", "2,000,000"), "smsp__cycles_elapsed.avg": ("cycle", "3,900,000"),
        "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum": ("inst", "100,000"),
        "dram__bytes_read.sum": ("byte", "4,096"), "dram__bytes_write.sum": ("byte", "1,024"),
        "lts__t_bytes.sum": ("byte", "8,192"), "l1tex__t_bytes.sum": ("byte", "8,192"),
        "sm__warps_active.avg.pct_of_peak_sustained_active": ("%", "1.56"), **fake_ncu.DEVICE,
        **{f"smsp__average_warps_issue_stalled_{name}_per_issue_active.ratio": ("inst", waited.get(name, "0.00"))
           for name in STALLS}}
    path = tmp_path / "ncu.csv"
    path.write_text(fake_ncu.page([("chain(float *)", metrics)], block="(1, 1, 1)", grid="(1, 1, 1)"))
    settings = resolve(overrides={"storage": {"sessions_dir": str(tmp_path / "sessions")}}, environment={})
    session = pipeline.import_captures([path], settings).session
    (found,) = session.read_json(layout.finding("kernel_classes"))["kernels"]
    assert (found["class"], found["by"]) == (expected, "counters")
    memory = sum(float(value) for name, value in waited.items() if STALLS[name] == "memory")
    assert found["memory_wait_share"] == pytest.approx(memory / sum(map(float, waited.values())))


@pytest.mark.captures
def test_waits_have_the_names_that_a_real_page_and_a_real_chip_have(captures, tmp_path):
    """Mutation: a reason as program counters spell it (no_instructions)."""
    listing = gzip.decompress((captures / "h200/ncu/ncu_metrics_gh100.txt.gz").read_bytes()).decode()
    wanted = [name for one in formulas.NVIDIA.quantities if one.quantity in (formulas.MEMORY_WAIT, formulas.OWN_WAIT)
              for name in one.weights]
    assert len(wanted) == 5 and ncu.had(ncu.tool("ncu", {"counters": listing}), wanted) == tuple(wanted)
    settings = resolve(overrides={"storage": {"sessions_dir": str(tmp_path)}}, environment={})
    session = pipeline.import_captures([captures / "h200/ncu/ncu_full.csv.gz"], settings).session
    found = {one["family"]: one for one in session.read_json(layout.finding("kernel_classes"))["kernels"]}
    assert found["norm"]["memory_wait_share"] > 0.8 and found["norm"]["class"] == "memory_bandwidth"


def test_counters_that_read_zero_give_no_ratio():
    """A divisor of zero is a counter that did not count."""
    row = {"kernel_name": "k", "family": None, "calls": 1, "total_ns": 1, "median_ns": 1.0, "occupancy_pct": 0.0}
    found = facts_of(row, 10.0, {"SQ_INSTS_SALU": 5.0, "SQ_INSTS_VALU": 0.0}, None, None)
    assert (found.scalar_ratio, found.occupancy_ratio, found.by) == (None, None, "name")


@pytest.mark.captures
@pytest.mark.parametrize("capture", ["vcopy_MI100", "vcopy_MI200", "vcopy_MI350"])
def test_a_copy_kernel_is_limited_by_memory(captures, tmp_path, capture):
    settings = resolve(overrides={"storage": {"sessions_dir": str(tmp_path)}}, environment={})
    run = pipeline.import_captures([captures / "rocprof-compute" / capture], settings)
    (found,) = run.session.read_json(layout.finding("kernel_classes"))["kernels"]
    assert found["class"] == "memory_bandwidth"


def test_shares_are_of_all_kernels_and_not_of_those_that_are_listed(tmp_path):
    """Mutation: a total over the listed kernels alone gives each a share that is half too large."""
    count = 3 * MOST // 2
    events = [{"ph": "X", "cat": "kernel", "name": f"kernel_{n}", "pid": 0, "tid": 7, "ts": 100 * n, "dur": 50,
               "args": {"device": 0, "stream": 7, "correlation": n + 1}} for n in range(count)]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "deviceProperties": [], "traceEvents": events}))
    settings = resolve(overrides={"storage": {"sessions_dir": str(tmp_path / "sessions")}}, environment={})
    document = pipeline.import_captures([path], settings).session.read_json(layout.finding("kernel_classes"))
    assert (len(document["kernels"]), document["kernel_ns"]) == (MOST, 50_000 * count)
    ((_, rows),) = sections({"kernel_classes": document})
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
