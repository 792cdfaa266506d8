"""The terminal report: its golden text, its width, and what it must say or must not."""

import re
from collections.abc import Callable

import numpy as np
import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from aaco.report.renderers import html, json_report, terminal
from aaco.report.sections import content, spikes
from tests import explained
from tests.explained import Sample, regressed

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def test_the_report_is_the_golden_one(golden: Callable[[str, str], None]) -> None:
    golden("report/terminal.txt", terminal.render(Sample(verdict=regressed()).explain()))


@pytest.mark.parametrize("session", [
    explained.hostile, explained.nothing, lambda: Sample(profiled=False).explain(), lambda: Sample(device=0).explain(),
    lambda: Sample(ceilings=None, status="incomplete").explain(), lambda: Sample(verdict=regressed()).explain()])
def test_no_line_is_wider_than_80_columns_and_nothing_steers_the_terminal(session: Callable[[], object]) -> None:
    text = terminal.render(session())  # type: ignore[arg-type]
    assert max(map(cell_len, text.split("\n"))) <= 80
    assert all(line.isprintable() for line in text.split("\n"))


def test_the_title_of_a_long_import_fits_the_box() -> None:
    """Mutation: one column more for the name."""
    explanation = Sample(device=0).explain()
    long = replace(explanation, captures={"captures": []}, model={"name": "m" * 90},
                               record={**explanation.record, "backend_ran": "imported: rocpd (rocprofv3) and more"})
    title = next(line for line in terminal._box(long, 80) if "Backend:" in line)  # written before any section
    assert cell_len(title) == 80 and title.startswith("║") and title.endswith("║")


def test_every_line_of_the_box_is_as_wide_as_its_frame() -> None:
    lines = terminal.render(explained.hostile()).split("\n")
    begin, end = (next(index for index, line in enumerate(lines) if line.startswith(corner)) for corner in "╔╚")
    assert {cell_len(line) for line in lines[begin:end + 1]} == {80}


def test_colour_changes_nothing_but_the_colour() -> None:
    explanation = Sample().explain()
    coloured = terminal.render(explanation, "colour")
    assert ESCAPE.search(coloured)
    assert ESCAPE.sub("", coloured) == terminal.render(explanation)


def test_a_run_without_a_gpu_claims_no_gpu_activity() -> None:
    text = " ".join(terminal.render(Sample().explain()).replace("║", " ").split())
    assert "GPU active: n/a: no GPU kernels: every kernel of this session ran on the host CPU" in text
    assert "TOP KERNELS BY TIME (host CPU: one kernel is one executed graph node)" in text
    assert "synthetic weights" in text


def test_a_run_on_a_gpu_shows_its_activity() -> None:
    text = terminal.render(Sample(device=0).explain())
    assert re.search(r"GPU active: +0\.961 \(device-bound\)", text)
    assert "host CPU" not in text


def test_an_incomplete_run_says_so_before_any_number() -> None:
    text = terminal.render(Sample(status="incomplete", failure="interrupted").explain())
    assert text.index("INCOMPLETE RUN (incomplete): interrupted") < text.index("SUMMARY")
    assert "INCOMPLETE" not in terminal.render(Sample().explain())


def test_without_a_capture_the_reason_stands_where_the_kernels_would() -> None:
    text = terminal.render(Sample(profiled=False).explain())
    assert text.count("n/a: not profiled") >= 2
    assert "UNKNOWN" in text


def test_evidence_shows_value_threshold_and_outcome() -> None:
    flat = " ".join(terminal.render(Sample(ceilings=None).explain()).split())
    assert " for nodes whose arithmetic limits them take most of the run's own time (node_compute_pct " in flat
    assert " %; asked: ≥ 40 %)" in flat
    flat = " ".join(terminal.render(Sample(profiled=False).explain()).split())
    assert " unknown the device itself is at work (device_limited_pct n/a: " in flat


def test_a_change_is_shown_with_what_it_rests_on() -> None:
    text = " ".join(terminal.render(Sample(verdict=regressed()).explain()).split())
    assert "Latency 2.29 -> 2.454 ms, +7.2 % [+5.5, +9.0] at 95 %" in text
    assert "Smallest detectable 3.1 %" in text
    assert "Part of the change conv: duration: 160 us per inference (97.5 % of it)" in text
    assert "CHANGE AGAINST THE BASELINE" not in terminal.render(Sample().explain())


def test_the_ceilings_stand_beside_what_is_derived_from_them():
    """Mutations: the conditions of the measurement, or the doubts about it, left out of the report."""
    quiet = terminal.render(Sample().explain())
    assert "60.0 GFLOP/s, converged, others used 1.2 % of the" in quiet
    assert "20.0 GB/s, converged" in quiet and "in doubt" not in quiet and "Reservation" not in quiet
    busy = " ".join(terminal.render(Sample(others_cpu_pct=34.0, converged=False).explain()).split())
    for part in ("did NOT converge, others used 34.0 % of the CPUs",
                 "Reservation: unsure roofs: fp32_flops, dram_bytes_per_s not",
                 "of roof: unsure roofs"):
        assert part in busy, part
    evidence = busy[busy.index("EVIDENCE"):]
    assert "node_compute_pct" in evidence and "others used 34 % of the CPUs; asked" in evidence


def test_a_node_without_a_roof_says_why():
    text = " ".join(terminal.render(Sample().explain()).split())
    assert "of roof: n/a for 1 node (1.0 % of the time): its work is not modelled" in text


@pytest.mark.parametrize(("overhead_pct", "flagged"), [(-10.5, True), (-9.5, False), (0.0, False), (24.5, False),
                                                       (25.5, True), (291.0, True), (None, False)])
def test_a_profiled_pass_unlike_the_clean_one_is_said_at_the_top(overhead_pct, flagged):
    """Mutations: one side only; a limit of 2; the reading alone, further down."""
    found = Sample().explain()
    reading = replace(found.readings["profiling_overhead_pct"], value=overhead_pct)
    found = replace(found, readings={**found.readings, "profiling_overhead_pct": reading})
    above = " ".join(terminal.render(found).split("SUMMARY")[0].split())
    assert ("the profiled pass took" in above) == flagged
    assert any("do not describe the clean run" in text for text in content.banners(found)) == flagged


@pytest.mark.parametrize("processes", [1, 2, 5, 40])
def test_the_medians_of_the_processes_stand_beside_the_median(processes):
    """Mutation: the median over all only, which describes none of two unlike processes."""
    found = Sample(processes=processes).explain()
    rows = found.tables["inference_iters"].to_pylist()
    expected = [np.median([row["latency_ms"] for row in rows if row["process"] == index and row["phase"] != "warmup"])
                for index in range(processes)]
    text = " ".join(terminal.render(found).split())
    assert json_report.render(found)["process_medians_ms"] == (pytest.approx(expected) if processes > 1 else [])
    if processes == 1:
        assert "Median by process" not in text and found.readings["process_spread_pct"].value is None
        return
    spread = 100 * (max(expected) - min(expected)) / found.readings["latency_p50_ms"].value
    assert found.readings["process_spread_pct"].value == pytest.approx(spread)
    shown = (", ".join(f"{value:.2f}" for value in expected) + " ms;" if processes <= 16 else
             f"{min(expected):.2f} to {max(expected):.2f} ms in {processes} processes;")
    assert f"Median by process: {shown}" in text
    assert "; by process " in html.render(found)


def test_a_spike_keeps_its_number_on_a_terminal():
    """Mutation: "Iteration 1234, process 12", of which the terminal showed "Iteration … process 12"."""
    assert all(len(spikes.spot(1234, process)) < terminal.LABEL for process in (0, 12))
