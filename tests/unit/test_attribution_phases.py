"""Training traces of our own with a known recomputation, and a graph captured in the trace."""

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from aaco.analytics.attribution.framework import ARGUMENT_COLUMNS, COLUMNS, Attribution
from aaco.core import tables
from benchmarks.ordered import imported
from tests import timed

CAPTURES = Path(__file__).parents[1] / "captures"
HERE = CAPTURES / "torch_training_h200"
LAUNCH, BACK = "cudaLaunchKernel", "autograd::engine::evaluate_function: "
PREFERENCES, LEAVES = (f"../torch_changes/{name}/before.trace" for name in ("preference_pairs", "features_of_leaves"))


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    """Of a recording, cut anywhere: the map with the operators' columns, and the operators."""
    sessions = {}

    def attribute(name, cuts=()):
        if name not in sessions:
            sessions[name] = imported([HERE / f"{name}.json.gz"], tmp_path_factory.mktemp(Path(name).name))
        session = sessions[name]
        found = {table: session.table(table) for table in ("kernels", "api_calls")}
        arguments = session.table("call_arguments")
        first = found["api_calls"]["t_start_ns"][0].as_py()
        pass_, maps = Attribution(), []
        for end, piece in timed.sliced(found, [first + cut for cut in cuts]):
            mine = arguments.filter(pc.is_in(arguments["call_id"], piece["api_calls"]["call_id"].combine_chunks()))
            maps.append(pass_.feed(piece["kernels"].select(COLUMNS["kernels"]),
                                   piece["api_calls"].select(COLUMNS["api_calls"]), mine.select(ARGUMENT_COLUMNS), end))
        mapped = pa.concat_tables([*maps, pass_.rest()]).sort_by("kernel_id").to_pylist()
        rows = {row["operator_id"]: row for row in pass_.operators().to_pylist()}
        return [rows[one["operator_id"]] | one for one in mapped], list(rows.values())

    return attribute


def phases(rows):
    found = Counter()
    for row in rows:
        found[row["phase"]] += row["kernels"]
    return dict(found)


@pytest.mark.parametrize(("name", "again"), [("plain", 0), ("reentrant", 21), ("unpack", 12), ("unpack_stack", 12)])
def test_what_is_computed_again_is_found_however_it_is_done(traced, name, again):
    """Mutations: an operator that is recorded counted without looking where; the outermost operation of the way back
    instead of the nearest (then the gradients of `reentrant` are computed again). The gradient of the loss is a tensor
    of ones, of which none is recorded.
    """
    _, operators = traced(name)
    expected = {"forward": 22, "no_grad": 1, "backward": 39, "optimizer": 1} | ({"recompute": again} if again else {})
    assert {phase: count for phase, count in phases(operators).items() if count} == expected


def test_a_network_without_gradients_is_apart_from_its_twin_that_learns(traced):
    """Of the same models, one learns and the other is read inside of torch.no_grad. Mutation: an operator in a numbered
    one counted as not recorded.
    """
    launched = {phase: Counter({(row["operator"], row["shapes"]): row["kernels"] for row in traced(PREFERENCES)[1]
                                if row["phase"] == phase and row["family"] in ("gemm", "attention")})
                for phase in ("forward", "no_grad")}
    assert launched["forward"] == launched["no_grad"] and launched["forward"].total() == 42
    layers = Counter(row["phase"] for row in traced(PREFERENCES)[1] for _ in range(row["calls"] or 0)
                     if row["operator"] == "aten::linear")
    assert layers == {"forward": 34, "no_grad": 34}


def test_frozen_weights_are_apart_whether_gradients_are_off_or_not(traced):
    """A head learns on what a network of frozen weights makes of pictures: nothing of that network is recorded."""
    convolved = [row["phase"] for row in traced(LEAVES)[1] if row["operator"] == "aten::cudnn_convolution"]
    assert len(convolved) > 10 and set(convolved) == {"no_grad"}
    multiplied = {row["phase"] for row in traced(LEAVES)[1] if row["outermost"] == "aten::linear" and row["kernels"]}
    assert multiplied == {"forward"}


@pytest.mark.parametrize("name", ["reentrant", "unpack_stack", PREFERENCES])
def test_slices_do_not_matter(traced, name):
    """Mutation: numbers of calls that are open at a cut forgotten."""
    whole = sorted(str({key: value for key, value in row.items() if key != "operator_id"}) for row in traced(name)[1])
    for cuts in ([500_000], range(200_000, 5_000_000, 70_000)):
        cut = traced(name, cuts)[1]
        assert sorted(str({key: value for key, value in row.items() if key != "operator_id"}) for row in cut) == whole


def test_gradients_are_in_the_modules_of_what_they_are_of(traced):
    """Each of six linear layers has its two products on the way back."""
    kernels, _ = traced("plain")
    products = Counter(row["module"] for row in kernels if row["phase"] == "backward" and row["operator"] == "aten::mm")
    assert set(products) == {f"M_0/B_{block}/Linear_{2 * block + part}" for block in range(3) for part in range(2)}
    assert {row["module"] for row in kernels if row["operator"] == "aten::native_layer_norm_backward"} == {
        f"M_0/B_{block}/LayerNorm_{block}" for block in range(3)}


def test_a_graph_captured_in_the_trace_gives_its_replays_their_operators(traced):
    """CUDA names no kernels beside launches: one capture with as many launches. The same step run without the graph has
    the same operators in the same order, and the names of its kernels are those of the replays."""
    kernels, operators = traced("graph_capture")
    assert Counter(row["method"] for row in kernels) == {"exact_span": 23, "sequence": 84}
    replays = [row for row in kernels if row["method"] == "sequence"]
    eager = [row for row in kernels if row["method"] == "exact_span"][-21:]
    for begin in range(0, 84, 21):
        assert [(row["operator"], row["module"], row["shapes"]) for row in replays[begin:begin + 21]] == [
            (row["operator"], row["module"], row["shapes"]) for row in eager]
    assert {row["calls"] for row in operators if row["method"] == "sequence"} == {4}


def _attributed(*nested):
    """The operators of calls inside each other that launch one kernel: name, start, end, parent and arguments."""
    calls = timed.calls(*(timed.at(start, end, name=name, call_id=place, parent_id=parent,
                                   domain="cuda_runtime" if name == LAUNCH else "cpu_op",
                                   correlation_id=5 if name == LAUNCH else None)
                          for place, (name, start, end, parent, _) in enumerate(nested)))
    arguments = tables.CALL_ARGUMENTS.build(call_id=range(len(nested)), arguments=[one[4] for one in nested])
    pass_ = Attribution()
    pass_.feed(timed.kernels(timed.at(200, 210, correlation_id=5)).select(COLUMNS["kernels"]),
               calls.select(COLUMNS["api_calls"]), arguments, None)
    return [(row["operator"], row["phase"]) for row in pass_.operators().to_pylist() if row["kernels"]]


def test_a_way_back_inside_a_recorded_operator_is_no_repetition():
    """Mutation: whatever lies in a recorded operator is computed again."""
    recorded, gradient = '{"Sequence number": 1, "Fwd thread id": 0}', '{"Sequence number": 2, "Fwd thread id": 1}'
    nested = [("Outer", 0, 100, None, recorded), (f"{BACK}MmBackward0", 10, 90, 0, gradient),
              ("aten::mm", 20, 80, 1, "{}"), (LAUNCH, 30, 40, 2, "{}")]
    assert _attributed(*nested) == [("aten::mm", "backward")]


@pytest.mark.parametrize(("number", "phase"), [('{"Sequence number": 1, "Fwd thread id": 0}', "no_grad"),
                                               ("{}", "forward")])
def test_what_is_not_recorded_shows_only_where_others_are(number, phase):
    """A trace may have no numbers at all."""
    assert _attributed(("aten::add", 0, 10, None, number), ("aten::mm", 20, 80, None, "{}"), (LAUNCH, 30, 40, 1, "{}"),
                       (f"{BACK}AddBackward0", 90, 95, None, "{}")) == [("aten::mm", phase)]
