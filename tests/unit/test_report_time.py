"""Where the time went, in the report: parts that sum to the whole, stacks of kernels, one inference, the outliers."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from msgspec.structs import replace

from aaco import pipeline
from aaco.analytics.explanation import Explanation
from aaco.analytics.kernels.stacks import MOST, stacks
from aaco.core import inputs
from aaco.core.config import resolve
from aaco.core.tables import OPERATORS
from aaco.report.plots import flame_graph as flame
from aaco.report.sections import breakdown, kernels, outliers, roofline_headroom
from tests import explained
from tests.explained import MICROSECONDS, RUNS, Sample
from tests.explained import OPERATORS as NAMES

HERE = Path(__file__).parents[1]
TRACE = HERE / "captures" / "torch_h200" / "resnet50_nchw.json.gz"


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Explanation:
    root = tmp_path_factory.mktemp("imported")
    settings = resolve(overrides={"storage": {"sessions_dir": str(root)}})
    return pipeline.import_captures([TRACE], settings).explanation


def test_the_wall_time_is_the_families_and_what_is_outside_kernels() -> None:
    (found,) = breakdown.every(Sample().explain())
    inside = {part.name: part.ns for part in found.parts}
    assert inside.pop("outside kernels") == RUNS * 90_000
    assert sum(inside.values()) == RUNS * 1000 * sum(MICROSECONDS)
    assert found.ns == RUNS * (1000 * sum(MICROSECONDS) + 90_000)
    assert inside["conv"] == RUNS * 1000 * (900 + 640 + 410)
    ends = [start + width for _, start, width in found.placed()]
    assert ends[-1] == pytest.approx(1000)


def test_kernels_that_overlap_are_not_said_to_be_parts_of_the_wall_time() -> None:
    session = Sample().explain()
    calls = session.tables["api_calls"]
    short = pc.subtract(calls["t_end_ns"], calls["t_start_ns"]).to_numpy() // 2
    halved = calls.set_column(calls.schema.get_field_index("dur_ns"), "dur_ns", pa.array(short))
    (found,) = breakdown.every(replace(session, tables={**session.tables, "api_calls": halved}))
    assert found.whole == f"the kernel time of {RUNS} profiled inferences, by family"
    assert found.ns == RUNS * 1000 * sum(MICROSECONDS)


def test_the_span_of_devices_is_what_ran_alone_and_idle_time_by_cause(imported: Explanation) -> None:
    assert imported.trace
    span, family = breakdown.every(imported)
    (device,) = imported.trace.devices
    assert span.ns == device.t_end_ns - device.t_start_ns
    assert sum(part.ns for part in span.parts if part.name.startswith("idle")) == device.idle_ns
    assert family.ns == sum(row["total_ns"] for row in kernels.groups(imported))


def test_stacks_sum_to_the_kernels_of_the_measured_inferences_and_end_in_them() -> None:
    session = Sample().explain()
    found = flame.of(session)
    used = inputs.measured(session.tables["kernels"])
    assert sum(one.ns for one in found) == pc.sum(used["dur_ns"]).as_py()
    by_kernel: dict[str, int] = defaultdict(int)
    for one in found:
        by_kernel[one.path[-1]] += one.ns
    assert by_kernel == {name: RUNS * 1000 * sum(time for each, time in zip(NAMES, MICROSECONDS, strict=True)
                                                 if each == name) for name in NAMES}


def test_stacks_of_a_trace_are_those_of_a_join_by_hand(imported: Explanation) -> None:
    mapped, operators, every = (imported.tables[name] for name in ("op_to_kernel_map", "operators", "kernels"))
    name_of = dict(zip(every["kernel_id"].to_pylist(), every["kernel_name"].to_pylist(), strict=True))
    operator_of = {row["operator_id"]: row["operator"] for row in operators.to_pylist()}
    wanted: dict[tuple[str, str], int] = defaultdict(int)
    for row in mapped.to_pylist():
        wanted[operator_of[row["operator_id"]] or "of no operator", name_of[row["kernel_id"]]] += row["share_ns"]
    found: dict[tuple[str, str], int] = defaultdict(int)
    for one in flame.of(imported):
        found[one.path[-2], one.path[-1]] += one.ns
    assert found == {key: ns for key, ns in wanted.items() if ns}
    assert flame.files(imported) == ["metrics/stacks.json"]


def test_without_a_map_of_kernels_the_stacks_are_by_operator_or_by_family() -> None:
    session = Sample().explain()
    total = RUNS * 1000 * sum(MICROSECONDS)
    loose = explained.without(session, "op_to_kernel_map")
    assert sum(one.ns for one in flame.of(loose)) == pc.sum(session.tables["operators"]["device_ns"]).as_py()
    bare = explained.without(loose, "operators")
    assert sum(one.ns for one in flame.of(bare)) == total
    assert {one.path[0] for one in flame.of(bare)} == set(kernels.families(session))
    assert flame.draw(explained.nothing()) is None


def test_more_stacks_than_are_kept_are_summed() -> None:
    spent = {(0, f"kernel {number}", "gemm"): (number + 1, 1) for number in range(MOST + 50)}
    found = stacks(OPERATORS.build(), spent)
    assert len(found) == MOST + 1
    assert sum(one.ns for one in found) == sum(ns for ns, _ in spent.values())
    assert found[-1].ns == sum(range(1, 51))


def test_frames_lie_inside_the_frame_above_and_fill_it(imported: Explanation) -> None:
    drawing = flame.draw(imported)
    assert drawing
    frames = [(float(one.attrib["y"]), float(one.attrib["x"]), float(one.attrib["width"]))
              for one in ElementTree.fromstring(drawing.standalone()).iter("{http://www.w3.org/2000/svg}rect")]
    rows = sorted({y for y, _, _ in frames})
    assert len(rows) == 4
    for above, below in pairwise(rows):
        for _, x, width in (frame for frame in frames if frame[0] == below):
            assert any(left - 0.02 <= x and x + width <= left + wide + 0.02 for y, left, wide in frames if y == above)
    assert sum(width for y, _, width in frames if y == rows[1]) == pytest.approx(frames[0][2], abs=0.1)


def test_layers_that_differ_in_their_number_alone_are_one_frame() -> None:
    operators = OPERATORS.build(operator_id=list(range(6)), operator=["mm"] * 6, outermost=["mm"] * 6,
                                module=[f"Model/Layer_{number}" for number in range(5)] + ["Model/Head_0"])
    found = stacks(operators, {(number, "gemm", "gemm"): (100, 1) for number in range(6)})
    whole = flame.Frame("all")
    for one in found:
        whole.add(one.path, one)
    (model,) = flame.alike(whole.inside)
    assert [(frame.name, frame.ns) for frame in flame.alike(model.inside)] == [("Layer_* × 5", 500), ("Head_0", 100)]


def test_the_longest_iterations_are_those_beyond_the_fence() -> None:
    session = Sample().explain()
    found = outliers.outliers(session)
    table = session.tables["inference_iters"]
    measured = table.filter(pc.equal(table["phase"].cast(pa.string()), "measurement"))["latency_ms"].to_numpy()
    low, high = np.percentile(measured, [25, 75])
    assert [one.latency_ms for one in found] == sorted(measured[measured > high + 1.5 * (high - low)], reverse=True)
    assert {one.turn % 37 for one in found} == {36}
    assert all(one.iteration == one.turn - 20 and not one.explained for one in found)
    assert {one.why for one in found} == {outliers.UNWATCHED}


def test_an_outlier_says_what_was_recorded_of_it() -> None:
    session = Sample(processes=1).explain()
    table = session.tables["inference_iters"]
    size = table.num_rows
    worst = outliers.outliers(session)[0].turn
    for name, values in (("clean", [row != worst for row in range(size)]),
                         ("noise_reasons", [["waiting for a CPU"] if row == worst else [] for row in range(size)]),
                         ("noise_impact_pct", [21.25 if row == worst else 0.0 for row in range(size)])):
        at = table.schema.get_field_index(name)
        table = table.set_column(at, table.schema.field(at), pa.array(values, table.schema.field(at).type))
    first, *others = outliers.outliers(replace(session, tables={**session.tables, "inference_iters": table}))
    assert (first.turn, first.explained) == (worst, True)
    assert first.why == "waiting for a CPU, estimated to cost 21.2 % of it"
    assert {one.why for one in others} == {outliers.QUIET}


def test_a_kernel_reaches_what_its_nodes_reach_together() -> None:
    found = roofline_headroom.by_kernel(Sample().explain())
    ideal = 30e6 / 6e10 + 14e6 / 6e10
    assert found["Conv"].share == pytest.approx(ideal / 1310e-6)
    assert "ReorderInput" not in found


def test_a_kernel_of_a_trace_reaches_the_nearer_of_its_roofs(imported: Explanation) -> None:
    known = {"family": "gemm", "calls": 1, "total_ns": 1, "median_ns": 1.0, "class": "unclear", "evidence": []}
    rows = [{**known, "kernel_name": "both", "compute_share": 0.2, "memory_share": 0.6, "by": "counters"},
            {**known, "kernel_name": "one", "compute_share": 0.3, "memory_share": None, "by": "shapes"},
            {**known, "kernel_name": "none", "compute_share": None, "memory_share": None, "by": "name"}]
    found = roofline_headroom.by_kernel(replace(imported, examined={"kernel_classes": {"kernels": rows}}))
    assert found == {"both": roofline_headroom.Reach(0.6, "memory", "counters"),
                     "one": roofline_headroom.Reach(0.3, "compute", "shapes")}
