"""benchmarks.gpu.attribution: what it judges, on planted sessions and by hand; each judgement is broken once."""

import pytest

from aaco.core.config import Analysis
from aaco.steps import analyze, explain
from benchmarks.gpu import attribution
from benchmarks.gpu.attribution import Capture, Case
from tests import captured
from tests.unit.test_device_passes import RUNS, planted

ACCOUNT = {"profiled": {"inferences": 2, "kernels": 6}, "unnamed": {}, "named": 6, "identical": 2, "wall_ns": 1000,
           "timed": {"inferences": 2, "kernels": 6, "busy_ns": 400}, "problems": []}
RELU = "_ZN11onnxruntime4cuda17_UnaryElementWiseIffNS0_7OP_ReluIfEELi256ELi4EEEvPKT_"
ADD = "void onnxruntime::cuda::_BinaryElementWiseSimple<true, true, float, onnxruntime::cuda::OP_Add<float>>(float*)"
SOFTMAX = "_ZN11onnxruntime4cuda20softmax_warp_forwardIfffLi7ELb0EEEvPT_"
GEMM = "sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize32x32x64_stage3"


def claims_of(session, found):
    return {claim.claim.partition(": ")[2]: claim for claim in attribution.judged(
        Case("planted", "", 1, on_host=True), session, found.tables, found.examined["device_passes"])}


@pytest.mark.parametrize("calls", ["", "there"])
def test_a_whole_run_is_whole_on_every_road(tmp_path, calls):
    """Mutation of attribution.py: nodes by the clock from the runs of the warm-up."""
    session, _, kernels = planted(tmp_path, calls=calls)
    found = claims_of(session, explain.explain(session, Analysis(), analyze.recompute(session)))
    whole = f"{RUNS * kernels} of {RUNS * kernels}"
    assert found["kernels with a node"].met and f"{whole} and {whole}" in found["kernels with a node"].measured
    assert found["kernels and nodes by the clock alone"].met
    assert found["kernels and nodes by the clock alone"].measured == (
        f"{whole}, {kernels} an inference; {RUNS * kernels} in the capture of kernels alone")
    assert found["nodes of the CPU provider"].met


def test_a_run_on_an_h200_is_whole_on_every_road(tmp_path):
    """A CUDA graph, recorded there; its names pass ran without it. Mutation: demangled names are not taken apart."""
    session = captured.session("ort_cuda_h200/bert-tiny", tmp_path)
    found = claims_of(session, explain.explain(session, Analysis(), analyze.recompute(session)))
    assert found["kernels with a node"].measured.startswith("183 of 183 and 183 of 183, 3 of 3 sequences identical")
    assert found["kernels and nodes by the clock alone"].measured == (
        "183 of 183, 61 an inference; 183 in the capture of kernels alone")
    assert found["what kernels' names say fits their nodes"].measured == (
        "177 of 183 say what they do, 0 against; 0 of 59 nodes without a kernel of theirs")
    assert found["copies of an inference"].measured == "2 d2h, 3 h2d outside nodes; in nodes 2 d2d"
    assert [claim.met for name, claim in found.items() if "copies" not in name] == [True, True, True, False]


def test_a_kernel_more_is_missed_on_every_road(tmp_path):
    session, _, _ = planted(tmp_path, extra=1)
    found = claims_of(session, explain.explain(session, Analysis(), analyze.recompute(session)))
    assert found["kernels with a node"].met is False
    assert found["kernels and nodes by the clock alone"].met is False


def test_a_tracer_that_never_began_is_missed_with_its_reason(tmp_path):
    session, _, _ = planted(tmp_path, named=False)
    one, = claims_of(session, explain.explain(session, Analysis(), analyze.recompute(session))).values()
    assert one.met is False and "no libcupti.so is found" in one.measured


@pytest.mark.parametrize("change", [
    {"unnamed": {"launched outside the range of any node": 1}}, {"named": 5}, {"identical": 1}, {"wall_ns": 300},
    {"problems": ["12 records were dropped"]}, {"checked": {"kernels": 5, "busy_ns": 400, "wall_ns": 800}},
    {"checked": {"kernels": 6, "busy_ns": 400, "wall_ns": 300}}])
def test_one_kernel_without_a_node_is_one_too_many(change):
    assert attribution.in_all("x", ACCOUNT).met
    assert attribution.in_all("x", ACCOUNT | change).met is False


def test_sequences_of_both_captures_are_held_against_each_other():
    """Mutations: names without their nodes; the third capture is not looked at."""
    one = [("a", "n0"), ("b", "n1")]

    def by_clock(read, timed, inferences, alone=""):
        return attribution.by_clock("x", Capture(read, [], list(alone * 2), {}), timed, inferences)

    assert by_clock([("warm", None), *one, *one], one * 2, 2, "ab").met
    assert not by_clock([*one, *one], one * 2, 2, "az").met
    assert not by_clock([*one, ("a", "n0"), ("b", "n0")], one * 2, 2, "ab").met
    assert not by_clock(one, one * 2, 2, "ab").met
    assert not by_clock([*one, one[0]], [*one, one[0]], 2, "aba").met
    assert not by_clock([], [], 2).met


def test_names_of_kernels_fit_the_types_of_their_nodes():
    """Mutations: mangled functors are not read; a node needs no kernel of its own."""
    right = [("Relu", "r", RELU), ("Add", "a", ADD), ("Softmax", "s", SOFTMAX), ("FusedMatMul", "m", GEMM)]
    found = attribution.by_name("x", right)
    assert found.met and found.measured.startswith("4 of 4 say what they do, 0 against; 0 of 4")
    for wrong in (("Add", "a2", RELU), ("Relu", "r2", ADD), ("MatMul", "m2", SOFTMAX), (None, None, GEMM)):
        assert not attribution.by_name("x", [*right, wrong]).met
    assert "1 against" in attribution.by_name("x", [*right, ("Relu", "r", ADD)]).measured
    lacking = attribution.by_name("x", [*right, ("Conv", "c", "op_generic_tensor_kernel")])
    assert not lacking.met and lacking.measured.endswith("; c")
    assert not attribution.by_name("x", [("Flatten", "f", "copy")]).met  # nothing is told


def test_copies_outside_nodes_are_told():
    copies = [("h2d", None), ("memset", "n"), ("d2h", None)] * 2
    found = attribution.outside("x", copies, 2)
    assert found.met is None and found.measured == "1 d2h, 1 h2d outside nodes; in nodes 1 memset"
