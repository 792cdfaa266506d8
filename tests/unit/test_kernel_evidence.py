"""Captures of counters or instruction traces have a headline of their own, and a class where counters decide."""

from __future__ import annotations

import pytest

from aaco import pipeline
from aaco.analytics.bottleneck.kernel_classes import classify
from aaco.analytics.bottleneck.limited_time import kernel_evidence
from aaco.analytics.instructions import inside
from aaco.core.config import resolve
from aaco.core.documents import decode
from aaco.report.sections import content, health
from aaco.report.sections.findings.kernel_evidence import headline
from aaco.tracelake import layout
from aaco.tracelake.document_schemas.answers import KernelFacts


def kernel(name, ns, **facts):
    return classify(KernelFacts(kernel_name=name, family="gemm", calls=1, total_ns=ns, median_ns=float(ns),
                                short_ns=10_000.0, **facts))


def test_time_is_weighed_and_only_counters_count():
    """By plain arithmetic. Mutations: shares not weighted by time; kernels told by shapes counted, too."""
    kernels = [kernel("a", 300_000, compute_share=0.8, memory_share=0.1, by="counters", rate="matrix_bf16"),
               kernel("b", 100_000, compute_share=0.6, memory_share=0.1, by="counters", rate="matrix_bf16"),
               kernel("c", 100_000, compute_share=0.1, memory_share=0.7, by="shapes")]
    found = kernel_evidence(kernels, 500_000, ())
    assert found.counted_pct("compute") == 80.0 and found.counted_pct("memory") == 0.0
    first, second = found.limits
    assert first.roof_share == pytest.approx((0.8 * 3 + 0.6) / 4) and (first.limit, second.ns) == (
        "compute_throughput", 100_000)
    assert headline(found) == ("3 kernels: compute throughput 80.0 % of the time (75.0 % of the matrix bf16 "
                                       "roof), memory bandwidth 20.0 % of the time (70.0 % of the memory roof)")
    assert kernel_evidence((), 0, ()) is None


@pytest.mark.captures
@pytest.mark.parametrize(("capture", "label", "said"), [
    ("h200/ncu/ncu_full.csv.gz", "compute_bound", "4 kernels: compute throughput 92.4 % of the time"),
    ("h200/ncu/ncu_unroll4.csv", "memory_bound", "1 kernel: memory bandwidth 100.0 % of the time"),
    ("rocprof-compute/vcopy_MI200", "memory_bound", "1 kernel: memory bandwidth 100.0 % of the time"),
    ("rocprof-compute/vcopy_MI300X_A1", "unknown", "3 kernels counted, without a time"),
    ("pcsampling_viewer", "unknown", "1 kernel traced: ")])
def test_a_capture_of_kernels_has_a_headline(captures, tmp_path, capture, label, said):
    """The same in every place. Mutation: the class that a trace of the program would need asked for."""
    settings = resolve(overrides={"storage": {"sessions_dir": str(tmp_path)}}, environment={})
    explained = pipeline.import_captures([captures / capture], settings).explanation
    assert explained.diagnosis.label == label and explained.diagnosis.confidence is None
    document = health.summary_document(explained)
    assert document["kernel_headline"].startswith(said)
    (classification,) = [row for row in content.bottleneck(explained) if row.label == "Classification"]
    assert document["kernel_headline"] in classification.text
    assert "kernel_evidence" in explained.examined


@pytest.mark.captures
def test_waits_of_traced_waves_are_shares_of_all_their_cycles(captures, tmp_path):
    """By the listing itself. Mutation: of the stalled cycles alone."""
    settings = resolve(overrides={"storage": {"sessions_dir": str(tmp_path)}}, environment={})
    run = pipeline.import_captures([captures / "att/gfx950_aiter_mxfp4_BM32-BN128_orig"], settings)
    (traced,) = decode(run.session.read_json(layout.finding("instructions")), inside.InstructionTraces).kernels
    vmem = next(loads for loads in traced.loads if loads.category == "vmem")
    share = 100 * vmem.stall_cycles / (traced.whole.latency_cycles + traced.whole.idle_cycles)
    assert f"{share:.1f} % of wave cycles wait for vmem" in content.kernel_headline(run.explanation)
