"""Kernels laid to nodes by the ranges around their launches, and to nodes of another run by position."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from aaco.analytics import attribution
from aaco.analytics.attribution import spans, transfer
from aaco.core import tables
from aaco.core.readings import Absent
from benchmarks import recordings
from tests import timed

NODES = ("conv", "relu", "loop", "body")


def node(name, start, end, thread=1):
    return timed.at(start, end, name=name, domain="ort", thread_id=thread)


def launch(correlation, start, end, thread=9):
    return timed.at(start, end, correlation_id=correlation, thread_id=thread)


def found(ranges, launches, tolerance=0):
    ids = [call["correlation_id"] for call in launches] or [1]
    kernels = timed.kernels(*(timed.at(10_000 + place, 10_001 + place, correlation_id=one)
                              for place, one in enumerate(ids)))
    result = spans.launched_in(kernels, timed.calls(*ranges, *launches), NODES, tolerance)
    return list(zip(result.kernels["executed_node"].to_pylist(), result.why.to_pylist(), strict=True))


def test_a_kernel_is_the_node_that_contains_its_launch():
    """Mutation: the launch's start alone; then the last one is relu's."""
    assert found([node("conv", 0, 100), node("relu", 100, 200)],
                 [launch(1, 10, 20), launch(2, 110, 120), launch(3, 195, 205)]) == [
        ("conv", None), ("relu", None), (None, spans.NO_NODE)]


def test_ranges_in_whole_microseconds_get_their_tolerance_but_strict_containment_goes_first():
    """Mutation: with the tolerance at once; then the second is relu's, which begins 0.5 us after it."""
    ranges = [node("conv", 0, 10_000), node("relu", 10_500, 20_000)]
    assert found(ranges, [launch(1, 20_100, 20_900), launch(2, 9_900, 10_000), launch(3, 22_000, 22_100)], 1000) == [
        ("relu", None), ("conv", None), (None, spans.NO_NODE)]


def test_the_innermost_of_nested_nodes_has_it():
    """A Loop's range is around those of its body. Mutation: no way back to the wider range."""
    assert found([node("loop", 0, 100), node("body", 10, 20), node("body", 30, 40)],
                 [launch(1, 12, 14), launch(2, 25, 28), launch(3, 33, 34)]) == [
        ("body", None), ("loop", None), ("body", None)]


def test_threads_decide_where_they_can_and_nobody_guesses_where_they_cannot():
    ranges = [node("conv", 0, 100, thread=1), node("relu", 0, 100, thread=2)]
    assert found(ranges, [launch(1, 10, 20, thread=2)]) == [("relu", None)]
    assert found(ranges, [launch(1, 10, 20, thread=9)]) == [(None, spans.SEVERAL)]


def test_without_launch_or_ranges_there_is_a_reason():
    assert found([node("conv", 0, 100)], []) == [(None, spans.NO_LAUNCH)]
    assert found([node("a user's range", 0, 100)], [launch(1, 10, 20)]) == [(None, spans.NO_NODE)]


def test_a_driver_call_inside_a_runtime_call_does_not_matter():
    assert found([node("conv", 0, 100)], [launch(1, 10, 20), launch(1, 12, 18)])[0] == ("conv", None)


@pytest.mark.captures
@pytest.mark.parametrize("model", recordings.MODELS)
def test_every_kernel_of_recorded_inferences_is_laid_to_its_node(captures: Path, model):
    """All but what feeds and fetches. The recorder's own join, made apart from this one, says the same of each."""
    recording = recordings.ort_cuda(captures / "h200/ort_cuda", model)
    result = spans.launched_in(recording.kernels, recording.api_calls, recording.executed_nodes["name"].to_pylist())
    assert result.kernels["executed_node"].to_pylist() == recording.truth
    outside = result.kernels.filter(result.kernels["executed_node"].is_null())
    assert set(outside["kernel_name"].to_pylist()) == {"memcpy1", "memcpy2"}
    assert outside.num_rows == 2 * 15
    mapped = attribution.map_nodes(result.kernels, recording.executed_nodes, recording.graph_nodes,
                                   ["exact_span"] * result.kernels.num_rows)
    assert pc.sum(mapped["share_ns"]).as_py() == pc.sum(recording.kernels["dur_ns"]).as_py()
    assert set(mapped["method"].to_pylist()) == {"exact_span", "unattributed"}


@pytest.mark.captures
@pytest.mark.parametrize("model", recordings.MODELS)
def test_names_of_one_inference_are_those_of_the_others(captures: Path, model):
    """Each recorded inference takes its names from the others, and they are its own."""
    recording = recordings.ort_cuda(captures / "h200/ort_cuda", model)
    known = spans.launched_in(recording.kernels, recording.api_calls, recording.executed_nodes["name"].to_pylist())
    for left_out in range(15):
        mine = pc.equal(known.kernels["iteration"], left_out)
        result = transfer.by_position(known.kernels.filter(pc.invert(mine)), recording.kernels.filter(mine))
        assert (result.identical, result.aligned) == (1, 0)
        assert result.kernels["executed_node"].to_pylist() == known.kernels.filter(mine)["executed_node"].to_pylist()


@pytest.mark.captures
@pytest.mark.parametrize("model", recordings.MODELS)
def test_the_recorded_pass_without_a_profile_has_the_same_sequence(captures: Path, model):
    folder = captures / "h200/ort_cuda"
    recording, rows = recordings.ort_cuda(folder, model), recordings.twopass(folder, model)
    first = recording.kernels.filter(pc.equal(recording.kernels["iteration"], 0))
    clean = run([row["kernel"] for row in rows], 1)
    clean = clean.set_column(1, clean.schema.field(1), pa.array([row["kernel"] for row in rows]).dictionary_encode())
    cut = pa.array([name[:60] for name in first["kernel_name"].to_pylist()]).dictionary_encode()
    profiled = spans.launched_in(first.set_column(1, first.schema.field(1), cut), recording.api_calls,
                                 recording.executed_nodes["name"].to_pylist()).kernels
    result = transfer.by_position(profiled, clean)
    assert result.identical == 1
    assert [name or "None" for name in result.kernels["executed_node"].to_pylist()] == [row["node"] for row in rows]


def run(names, iterations, nodes=None, graph_nodes=None):
    count = len(names) * iterations
    return tables.KERNELS.build(
        kernel_id=range(count), kernel_name=list(names) * iterations,
        executed_node=list(nodes or [None] * len(names)) * iterations,
        graph_id=None if graph_nodes is None else [5] * count,
        graph_node_id=None if graph_nodes is None else list(graph_nodes) * iterations,
        iteration=np.repeat(np.arange(iterations), len(names)), dur_ns=[1] * count)


def nodes_of(result):
    return list(zip(result.kernels["executed_node"].to_pylist(), result.method.to_pylist(), strict=True))


def test_a_sequence_that_differs_is_aligned_and_says_where():
    """Mutation: position alone; then the kernel behind the new one is laid to conv."""
    result = transfer.by_position(run("abc", 3, ["conv", "relu", "gemm"]), run("axbc", 1))
    assert nodes_of(result) == [("conv", "sequence"), (None, None), ("relu", "sequence"), ("gemm", "sequence")]
    assert (result.identical, result.aligned, result.differences) == (0, 1, {0: 1})


def test_a_profiled_run_that_contradicts_itself_is_refused():
    twice = pa.concat_tables([run("ab", 1, ["conv", "relu"]), run("ab", 2, ["relu", "conv"])])
    with pytest.raises(Absent, match=r"[12] of 3"):
        transfer.by_position(renumbered(twice), run("ab", 1))
    with pytest.raises(Absent, match="no inferences"):
        transfer.by_position(run("", 0), run("ab", 1))


def test_nodes_of_a_captured_graph_keep_their_names_in_any_order():
    """Streams may run the nodes of a graph in another order: its node ids say which is which."""
    profiled = run("aab", 2, ["first", "second", "last"])
    replayed = pa.concat_tables([run("aab", 1, graph_nodes=[11, 12, 13]), run("aba", 1, graph_nodes=[12, 13, 11])])
    assert nodes_of(transfer.by_position(profiled, renumbered(replayed)))[3:] == [
        ("second", "exact_sequence"), ("last", "exact_sequence"), ("first", "exact_sequence")]


def renumbered(table):
    """Each stretch that begins with a kernel_id of 0 is an iteration of its own."""
    ids = np.asarray(table["kernel_id"])
    lengths = np.asarray(table["iteration"])
    starts = np.r_[True, (ids[1:] == 0) | (lengths[1:] != lengths[:-1])]
    place = table.schema.get_field_index("iteration")
    return table.set_column(place, table.schema.field(place), pa.array(np.cumsum(starts) - 1))
