"""Replayed device graphs laid to what was launched when they were captured."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from aaco.analytics.attribution.framework import ARGUMENT_COLUMNS, COLUMNS, Attribution
from aaco.analytics.attribution.graphs import IN_TRACE, Captured, Graphs, ReplayedKernels, captured_graphs
from aaco.analytics.attribution.operators import REASONS, Why
from aaco.core import tables
from aaco.core.config import Analysis
from aaco.core.tables import EAGER_STEP, GRAPH_CAPTURE, REFERENCE_LAUNCHES
from aaco.steps import make_findings
from benchmarks.ordered import imported
from tests import timed

SGLANG = ("inference_sglang_decode_capture_traces_bs_32_rank0.json.gz",
          "inference_sglang_decode_sglang_Qwen3-8B_decode.json.gz")


def call(name, start, end, parent=None, correlation=None, **more):
    domain = "cpu_op" if "::" in name else "cuda_runtime"
    return timed.at(start, end, name=name, domain=domain, parent_id=parent, correlation_id=correlation, **more)


def captured(kernels, at=0, named=True):
    """Operators that launch these kernels while a stream is captured, 100 ns each."""
    calls = [call("cudaStreamBeginCapture_v10000", at, at + 5)]
    for place, _ in enumerate(kernels):
        start = at + 10 + 100 * place
        calls += [call(f"aten::op{place}", start, start + 50), call("cudaLaunchKernel", start + 10, start + 20,
                                                                   correlation=1000 + at + place)]
    calls.append(call("cudaStreamEndCapture_v10000", at + 10 + 100 * len(kernels), at + 15 + 100 * len(kernels)))
    said = {1000 + at + place: name for place, name in enumerate(kernels)} if named else {}
    return calls, said


def attribute(parts, kernels, cuts=()):
    """The operator and method of each kernel, by kernel_id, and the operators."""
    calls = sorted((one for part, _ in parts for one in part), key=lambda one: one["t_start_ns"])
    said = {key: name for _, names in parts for key, name in names.items()}
    for place, one in enumerate(calls):
        one["call_id"] = place
        one["parent_id"] = next((at for at in range(place - 1, -1, -1)
                                 if ("::" in calls[at]["name"] or calls[at]["domain"] in ("marker", "python"))
                                 and calls[at]["t_end_ns"] >= one["t_end_ns"]), None)
    api_calls = timed.calls(*calls)
    arguments = tables.CALL_ARGUMENTS.build(
        call_id=[one["call_id"] for one in calls],
        arguments=[json.dumps({"kernel": said[one["correlation_id"]]} if one["correlation_id"] in said else
                              {"Input Dims": [[one["call_id"]]]}) for one in calls])
    found = {"kernels": timed.kernels(*kernels), "api_calls": api_calls}
    pass_, maps = Attribution(), []
    for end, piece in timed.sliced(found, cuts):
        mine = arguments.filter(pc.is_in(arguments["call_id"], piece["api_calls"]["call_id"].combine_chunks()))
        maps.append(pass_.feed(piece["kernels"].select(COLUMNS["kernels"]),
                                     piece["api_calls"].select(COLUMNS["api_calls"]), mine.select(ARGUMENT_COLUMNS),
                                     end))
    mapped = pa.concat_tables([*maps, pass_.rest()]).sort_by("kernel_id").to_pylist()
    rows = {row["operator_id"]: row for row in pass_.operators().to_pylist()}
    return [(rows[one["operator_id"]]["operator"], one["method"]) for one in mapped], list(rows.values())


def replay(names, at, correlation, **more):
    return [timed.at(at + 10 * place, at + 10 * place + 5, kernel_name=name, correlation_id=correlation,
                     **{key: values[place] for key, values in more.items()}) for place, name in enumerate(names)]


def launch(at, correlation):
    return [call("cudaGraphLaunch_v10000", at, at + 10, correlation=correlation)], {}


@pytest.mark.parametrize("cuts", [(), (5,), (115,), (130,), (500,), (2005,), (2015,), range(0, 2100, 7)])
def test_the_nth_kernel_of_a_replay_is_the_nth_captured_launch_wherever_slices_are_cut(cuts):
    """Mutation: a capture that is open at a cut forgotten."""
    found, rows = attribute([captured("aba"), launch(1000, 7), launch(2000, 8)],
                            [*replay("aba", 1100, 7), *replay("aba", 2010, 8)], cuts)
    assert found == [(f"aten::op{place}", "exact_sequence") for place in (0, 1, 2, 0, 1, 2)]
    replayed = {row["operator"]: row for row in rows if row["method"] == "exact_sequence"}
    assert {(row["calls"], row["kernels"], row["host_ns"]) for row in replayed.values()} == {(2, 2, None)}
    assert replayed["aten::op1"]["shapes"] == "[[3]]"


def test_names_that_do_not_agree_are_refused():
    """Mutation: as many kernels taken for proof."""
    found, rows = attribute([captured("abc"), launch(1000, 7)], replay("abd", 1100, 7))
    assert found == [(None, "unattributed")] * 3
    assert {row["why_unattributed"] for row in rows if row["kernels"]} == {REASONS[Why.UNLIKE]}


def test_without_names_one_candidate_is_matched_by_position():
    found, rows = attribute([captured("ab", named=False), launch(1000, 7)], replay("ab", 1100, 7))
    assert found == [("aten::op0", "sequence"), ("aten::op1", "sequence")]
    assert {(row["method"], row["source"]) for row in rows if row["kernels"]} == {("sequence", IN_TRACE)}


def test_without_names_two_captures_of_the_same_operators_tell_these_but_no_shapes():
    """Captures of several batch sizes look alike. Mutation: shapes of the latest taken."""
    found, rows = attribute([captured("ab", named=False), captured("xy", at=400, named=False), launch(1000, 7)],
                            replay("ab", 1100, 7))
    assert found == [("aten::op0", "sequence"), ("aten::op1", "sequence")]
    assert {row["shapes"] for row in rows if row["kernels"]} == {None}


def test_without_names_two_captures_of_other_operators_tell_nothing():
    """Mutation: the latest capture of as many launches taken."""
    other, names = captured("xy", at=400, named=False)
    other[1]["name"] = "aten::other"
    found, _ = attribute([captured("ab", named=False), (other, names), launch(1000, 7)], replay("ab", 1100, 7))
    assert found == [(None, "unattributed")] * 2


def in_range(name, part):
    """The calls of a part inside a range of this name."""
    calls, names = part
    around = timed.at(min(one["t_start_ns"] for one in calls) - 2, max(one["t_end_ns"] for one in calls) + 2, name=name,
                      domain="marker", correlation_id=None)
    return [around, *calls], names


@pytest.mark.parametrize(("replayed", "shapes"), [
    ("step[DECODE bs=2]", "small"), ("step[DECODE bs=4]", "large"), ("step[DECODE bs=8]", None), ("my range", None),
    ("step[EXTEND bs=2 toks=2]", None), ("step[MIXED bs=4 toks=4]", None)])
def test_the_annotation_of_the_launch_tells_which_captured_batch_is_replayed(replayed, shapes):
    """Mutation: `fits` always true."""
    found, rows = attribute([in_range("capture_2_DECODE", captured("ab", named=False)),
                             in_range("capture_4_DECODE", captured("xy", at=400, named=False)),
                             in_range(replayed, launch(1000, 7))], replay("ab", 1100, 7))
    assert found == [("aten::op0", "sequence"), ("aten::op1", "sequence")]
    assert {row["shapes"] for row in rows if row["kernels"]} == {
        "small": {"[[2]]", "[[4]]"}, "large": {"[[9]]", "[[11]]"}, None: {None}}[shapes]


def test_kernels_on_several_streams_are_in_no_order_that_positions_could_tell():
    """Mutation: in_launch_order ignored."""
    found, _ = attribute([captured("ab", named=False), launch(1000, 7)], replay("ab", 1100, 7, stream_id=[1, 2]))
    assert found == [(None, "unattributed")] * 2


def test_names_on_several_streams_tell_operators_in_any_order():
    """Mutation: `_by_name` gives None."""
    found, _ = attribute([captured("abc"), launch(1000, 7)], replay("bac", 1100, 7, stream_id=[1, 2, 1]))
    assert found == [("aten::op1", "exact_sequence"), ("aten::op0", "exact_sequence"), ("aten::op2", "exact_sequence")]


def test_an_operator_that_launches_no_such_kernel_refutes_the_position():
    """Mutation: may_launch always true."""
    calls, names = captured("ab", named=False)
    calls[1]["name"] = "aten::add_"
    found, _ = attribute([(calls, names), launch(1000, 7)], replay("ab", 1100, 7, family=["gemm", "copy"]))
    assert found == [(None, "unattributed")] * 2


def test_of_two_graphs_the_names_tell_which():
    found, _ = attribute([captured("ab"), captured("bc", at=400), launch(1000, 7)], replay("ab", 1100, 7))
    assert [name for name, _ in found] == ["aten::op0", "aten::op1"]


def test_events_recorded_and_waited_for_while_capturing_end_no_capture():
    """Streams fork and join by events inside a capture. Mutation: any call after a capture's begin ends it."""
    calls, names = captured("abc")
    calls += [call("cudaEventRecord", 62, 64), call("cudaStreamWaitEvent", 65, 68)]
    found, _ = attribute([(calls, names), launch(1000, 7)], replay("abc", 1100, 7))
    assert found == [(f"aten::op{place}", "exact_sequence") for place in range(3)]


def test_of_pieces_with_as_many_launches_the_one_is_meant_that_launches_such_kernels():
    """The first piece of a model looks an embedding up where the others add. Mutation: all that may be are equal."""
    first, names = captured("ab", named=False)
    first[1]["name"] = "aten::embedding"
    later, _ = captured("ab", at=400, named=False)
    later[1]["name"] = "aten::add"
    found, _ = attribute([(first, names), (later, names), launch(1000, 7), launch(2000, 8)],
                         [*replay("ab", 1100, 7, family=["elementwise", "gemm"]),
                          *replay("cb", 2100, 8, family=["embedding", "gemm"])])
    assert [name for name, _ in found] == ["aten::add", "aten::op1", "aten::embedding", "aten::op1"]


def test_nodes_of_the_graph_go_before_the_order_in_which_streams_ran_them():
    """Mutation: kernels in the order of their starts."""
    found, _ = attribute([captured("ab"), launch(1000, 7)], replay("ba", 1100, 7, graph_node_id=[12, 11]))
    assert found == [("aten::op1", "exact_sequence"), ("aten::op0", "exact_sequence")]


def test_without_a_capture_in_the_trace_that_is_said():
    found, rows = attribute([launch(1000, 7)], replay("ab", 1100, 7))
    assert found == [(None, "unattributed")] * 2
    assert {row["why_unattributed"] for row in rows if row["kernels"]} == {REASONS[Why.REPLAYED]}


@pytest.mark.parametrize(("functions", "frame"), [
    (["model.py(7): forward", "triton/runtime/jit.py(3): run", "<built-in function launch>"], "model.py(7): forward"),
    (["/usr/lib/python3/site-packages/torch/nn/modules/module.py(3): _call_impl"], None),
    (["aiter/ops/triton/gemm.py(30): gemm"], "aiter/ops/triton/gemm.py(30): gemm"), ([], None)])
def test_a_launch_outside_any_operator_is_known_by_the_python_function_around_it(functions, frame):
    """Of those inside each other the innermost that is the program's own. Mutation: no kind of its own for frames."""
    calls = [call(name, at, 100 - at) | {"domain": "python"} for at, name in enumerate(functions)]
    for depth, one in enumerate(calls):
        one["name"] = functions[depth]
    part = [*calls, call("cudaLaunchKernel", 40, 50, correlation=7)]
    _, rows = attribute([(part, {})], [timed.at(60, 70, kernel_name="k", correlation_id=7)])
    assert [row["frame"] for row in rows if row["kernels"]] == [frame]


@pytest.mark.captures
def test_a_real_decode_step_is_laid_to_the_capture_recorded_before_it(captures: Path, tmp_path):
    """SGLang on an MI300X: 544 kernels by one hipGraphLaunch, captured in another file; every name agrees."""
    session = imported([captures / "kineto" / name for name in SGLANG], tmp_path)
    make_findings.make_one(session, "attribution", Analysis())
    operators, kernels = session.table("operators"), session.kernels()
    exact = operators.filter(pc.equal(operators["method"].cast(pa.string()), "exact_sequence"))
    assert (pc.sum(exact["kernels"]).as_py(), pc.sum(exact["device_ns"]).as_py()) == (544, 9_656_404)
    assert pc.sum(operators["device_ns"]).as_py() == pc.sum(kernels["dur_ns"]).as_py()


def test_a_piece_of_a_step_is_told_by_the_kernels_that_follow_each_other_in_an_eager_one():
    """Of two layers the operator of a place is told where both have the same row. Mutations: the first occurrence
    tells; no occurrence is looked for."""
    step = Captured(0, rows=[0, 1, 2, 1, 3], operators=[0, 1, 2, 3, 4], names=["e", "a", "b", "a", "b"],
                    called=["emb", "add", "mm", "add", "mm"], inputs=[-1] * 5, families=["embedding", *["gemm"] * 4])
    assert step.launches_of_piece(["a", "b"]) == [1, -1]
    assert step.launches_of_piece(["e", "a"]) == [0, 1]
    assert step.launches_of_piece(["b", "b"]) == [] == step.launches_of_piece(["a", None])
    graphs = Graphs()
    graphs.captured.append(step)
    matched = graphs.of_replay(0, ReplayedKernels(["a", "b"], ["gemm", "gemm"]))
    assert matched and matched.launches == [1, -1] and not matched.named


def test_the_kind_of_a_reference_says_what_it_is_whatever_its_file_is_called():
    references = REFERENCE_LAUNCHES.build(
        kind=[EAGER_STEP, GRAPH_CAPTURE], source=["graph capture of ours.json", "eager step.json"], graph=[0, 1],
        kernel_name=["k", "k"])
    eager, capture = captured_graphs(references, np.zeros(2, np.int64), np.zeros(2, np.int64))
    assert eager.is_eager and not capture.is_eager
