"""The figures: golden, well-formed, and each mark where the numbers say."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from importlib.resources import files
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from aaco.core import tables
from aaco.report import extremes
from aaco.report.plots import plots
from aaco.report.sections import changed, nodes
from aaco.report.svg import Drawing, Scale, round_step
from tests import explained
from tests.explained import CEILINGS, FLOPS, MICROSECONDS, OPERATORS, Sample

SVG = "{http://www.w3.org/2000/svg}"
NUMBERS = st.floats(-1e9, 1e9)


def test_the_figures_are_the_golden_ones(golden: Callable[[str, str], None]) -> None:
    found = plots.plots(Sample().explain())
    assert list(found) == ["latency_series.svg", "latency_histogram.svg", "kernels.svg", "roofline.svg", "timeline.svg",
                           "flame_graph.svg", "radar.svg"]
    for name, text in found.items():
        golden(f"report/plots/{name}", text)


def watched() -> pa.Table:
    """Telemetry of two devices: 40 samples each, one of them hot."""
    at = np.repeat(np.arange(40), 2)
    device = np.tile([0, 1], 40)
    return tables.GPU_EVENTS.build(
        t_ns=at * 10**8, device_id=device, gpu_util_pct=50.0 + at, power_w=300.0 + 40 * device + at % 7,
        temp_c=40.0 + at / 2 + 20 * device, sclk_mhz=pa.array([1980.0 if each else None for each in device]),
        vram_used_bytes=(1 + device) * 2**30, source=["nvml"] * 80)


def test_the_figures_of_a_comparison_and_of_telemetry_are_the_golden_ones(golden: Callable[[str, str], None]) -> None:
    session = Sample(verdict=explained.regressed()).explain()
    session.verdict["metrics"] = [  # type: ignore[index]
        {"metric": "latency_ms", "effect_pct": 7.25, "ci": [5.5, 9.0], "status": "regressed"},
        {"metric": "throughput_per_s", "effect_pct": -1.0, "ci": None, "status": "inconclusive"}]
    found = plots.plots(replace(session, tables={**session.tables, "gpu_events": watched()}))
    assert set(found) - set(plots.plots(Sample().explain())) == {"comparison.svg", "attribution.svg", "gpu_series.svg"}
    for name in ("comparison.svg", "attribution.svg", "gpu_series.svg"):
        golden(f"report/plots/{name}", found[name])


def bars(drawing: Drawing | None) -> dict[str, ElementTree.Element]:
    """The rectangles with a tip, by what the tip says before its colon."""
    assert drawing
    tree = ElementTree.fromstring(drawing.standalone())
    tips = ((one, one.find(f"{SVG}title")) for one in tree.iter(f"{SVG}rect"))
    return {(tip.text or "").split(":")[0]: one for one, tip in tips if tip is not None}


def test_the_parts_of_a_change_begin_where_the_one_before_ends_and_sum_to_the_last() -> None:
    verdict = explained.regressed()
    verdict["causes"] = [{"family": None, "kind": f"part {number}", "delta_ns": delta, "inferences": 10,
                          "share_pct": None} for number, delta in enumerate((4_000, -1_500, 700))]
    found = bars(changed.attribution(Sample(verdict=verdict).explain()))
    ends = {name: (float(one.attrib["x"]), float(one.attrib["x"]) + float(one.attrib["width"]))
            for name, one in found.items()}
    zero, top = ends["part 0"]
    per_ns = (top - zero) / 400
    assert ends["part 1"] == pytest.approx((top - 150 * per_ns, top), abs=0.02)
    assert ends["part 2"] == pytest.approx((top - 150 * per_ns, top - 80 * per_ns), abs=0.02)
    assert ends["all of it"] == pytest.approx((zero, top - 80 * per_ns), abs=0.02)


@pytest.mark.parametrize("session", [explained.hostile, Sample(iterations=5000).explain, Sample(device=0).explain])
def test_figures_are_well_formed_and_hold_no_script(session: Callable[[], object]) -> None:
    for text in plots.plots(session()).values():  # type: ignore[arg-type]
        tree = ElementTree.fromstring(text)
        assert {element.tag for element in tree.iter()} <= {
            SVG + name for name in ("svg", "style", "line", "polyline", "polygon", "rect", "circle", "text", "title")}
        assert not [name for element in tree.iter() for name in element.attrib if name.startswith("on")]


def test_without_data_there_is_no_figure() -> None:
    assert list(plots.plots(Sample(profiled=False).explain())) == ["latency_series.svg", "latency_histogram.svg",
                                                                  "radar.svg"]
    assert "roofline.svg" not in plots.plots(Sample(ceilings=None).explain())


def test_a_dot_lies_where_its_work_and_time_put_it() -> None:
    drawing = plots.roofline(Sample().explain())
    assert drawing
    tree = ElementTree.fromstring(drawing.standalone())
    dots = {(dot.find(f"{SVG}title").text or "").split(" ")[0]: dot for dot in tree.iter(f"{SVG}circle")}  # type: ignore[union-attr]
    assert len(dots) == sum(flops is not None for flops in FLOPS)
    rate = {name: FLOPS[index] / MICROSECONDS[index] / 1e3 for index, name in enumerate(Sample().names) if FLOPS[index]}
    heights = {name: float(dot.attrib["cy"]) for name, dot in dots.items()}
    # On a logarithmic axis equal ratios are equal distances: compare every dot with the first.
    per_decade = (plots.TALL - plots.BOTTOM - plots.TOP) / math.log10(100 / 0.1)
    for name, height in heights.items():
        expected = heights["conv1"] + per_decade * math.log10(rate["conv1"] / rate[name])
        assert height == pytest.approx(expected, abs=0.02)


def test_the_executed_nodes_are_those_of_the_session_with_their_mean_times() -> None:
    found = nodes.executed(Sample().explain())
    assert {node.name: node.time_ns for node in found} == dict(
        zip(Sample().names, (1000 * time for time in MICROSECONDS), strict=True))
    assert {node.name: node.op_type for node in found} == dict(zip(Sample().names, OPERATORS, strict=True))
    assert sum(node.share for node in found) == pytest.approx(1)
    assert [node.time_ns for node in found] == sorted((node.time_ns for node in found), reverse=True)
    slowest = found[0]
    assert slowest.roof
    assert slowest.roof.utilization == pytest.approx(30e6 / CEILINGS["fp32_flops"] / 900e-6)
    assert slowest.sources == ("conv1_src",)


def test_kernels_of_no_node_count_in_the_time_that_shares_are_of() -> None:
    explanation = Sample().explain()
    kernels = explanation.tables["kernels"]
    names = [None if name == "conv2_relu" else name for name in kernels["executed_node"].to_pylist()]
    index = kernels.schema.get_field_index("executed_node")
    loose = kernels.set_column(index, kernels.schema.field(index), pa.array(names).dictionary_encode())
    found = nodes.executed(replace(explanation, tables={**explanation.tables, "kernels": loose}))
    assert sum(node.share for node in found) == pytest.approx(1 - 640 / sum(MICROSECONDS))


def test_sources_that_nobody_recorded_are_unknown_and_not_none() -> None:
    explanation = Sample().explain()
    found = nodes.executed(explained.without(explanation, "executed_nodes"))
    assert {node.sources for node in found} == {None}


@given(NUMBERS, st.floats(1e-6, 1e9), st.integers(3, 12))  # a round step may be 2.5 times the rough one: two can miss
def test_ticks_are_round_and_inside(low: float, span: float, about: int) -> None:
    high = low + max(span, abs(low) * 1e-6)
    scale = Scale(low, high, 0, 100)
    found = scale.ticks(about)
    step = round_step((high - low) / about)
    assert 1 <= len(found) <= about + 1
    assert all(low - 1e-6 * step <= value <= high + 1e-6 * step for value in found)
    assert float(f"{step:.0e}")  # one significant digit
    assert step == pytest.approx(float(f"{step:.0e}"))
    assert np.diff(found) == pytest.approx(step, rel=1e-3, abs=1e-7 * abs(low))


@given(st.floats(1e-9, 1e9), st.floats(1.5, 1e6))
def test_ticks_of_a_logarithmic_scale_are_powers_of_ten_or_their_halves(low: float, ratio: float) -> None:
    found = Scale(low, low * ratio, 0, 100, log=True).ticks()
    assert all(low <= value * (1 + 1e-6) and value <= low * ratio * (1 + 1e-6) for value in found)
    assert all(round(value / 10 ** math.floor(math.log10(value * (1 + 1e-9)))) in (1, 2, 5) for value in found)


@given(st.lists(st.floats(0.01, 1e4), min_size=1, max_size=300))
def test_the_histogram_and_what_lies_beyond_it_count_every_value(values: list[float]) -> None:
    edges, counts, beyond = plots.bins(np.array(values))
    assert counts.sum() + beyond == len(values)
    assert len(counts) <= plots.MOST_BINS
    assert (np.diff(edges) > 0).all()
    assert beyond == sum(value > edges[-1] for value in values)


@given(st.integers(1, 40_000), st.integers(0, 2**31))
def test_thinning_keeps_the_extremes_and_the_order(count: int, seed: int) -> None:
    values = np.random.default_rng(seed).exponential(size=count)
    kept = extremes.extremes(values)
    assert len(kept) <= extremes.MOST_POINTS
    assert (np.diff(kept) > 0).all()
    assert values[kept].max() == values.max()
    assert values[kept].min() == values.min()


def test_text_in_a_drawing_is_escaped() -> None:
    drawing = Drawing(10, 10, "<a>\u202e")
    drawing.text(1, 2, "</text><script>")
    drawing.rect(0, 0, 1, 1, "c0", "<b>\"'&")
    tree = ElementTree.fromstring(drawing.standalone())
    assert tree.attrib["aria-label"] == "<a>\\u202e"
    assert [element.text for element in tree.iter(f"{SVG}text")] == ["</text><script>"]
    assert [element.text for element in tree.iter(f"{SVG}title")] == ["<b>\"'&"]


def test_the_vendored_library_is_the_one_on_record() -> None:
    folder = files("aaco.report") / "vendor"
    record = json.loads((folder / "VENDOR.json").read_text())
    assert (record["name"], record["version"], record["licence"]) == ("uplot", "1.6.32", "MIT")
    assert {item.name for item in folder.iterdir()} == {"VENDOR.json", *record["files"]}
    for name, digest in record["files"].items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    assert "Permission is hereby granted, free of charge" in (folder / "LICENSE").read_text()
