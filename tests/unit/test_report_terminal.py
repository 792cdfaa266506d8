"""The terminal report: its golden text, its width, and what it must say or must not."""

import re
from collections.abc import Callable

import pytest
from rich.cells import cell_len

from aaco.report import terminal
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


def test_every_line_of_the_box_is_as_wide_as_its_frame() -> None:
    lines = terminal.render(explained.hostile()).split("\n")
    end = next(index for index, line in enumerate(lines) if line.startswith("╚"))
    assert {cell_len(line) for line in lines[:end + 1]} == {80}


def test_colour_changes_nothing_but_the_colour() -> None:
    explanation = Sample().explain()
    coloured = terminal.render(explanation, "colour")
    assert ESCAPE.search(coloured)
    assert ESCAPE.sub("", coloured) == terminal.render(explanation)


def test_a_run_without_a_gpu_claims_no_gpu_activity() -> None:
    text = " ".join(terminal.render(Sample().explain()).replace("║", " ").split())
    assert "GPU active: absent: no GPU kernels: every kernel of this session ran on the host CPU" in text
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
    assert text.count("absent: not profiled") >= 2
    assert "UNKNOWN" in text


def test_evidence_shows_value_threshold_and_outcome() -> None:
    text = terminal.render(Sample(ceilings=None).explain())
    flat = " ".join(text.split())
    assert " for little time passes outside kernels (dispatch_overhead_pct 3.85 %; asked: ≤ 20 %)" in flat
    assert " unknown most kernel time does enough arithmetic per byte (compute_side_pct absent: " in flat


def test_a_change_is_shown_with_what_it_rests_on() -> None:
    text = " ".join(terminal.render(Sample(verdict=regressed()).explain()).split())
    assert "Latency 2.29 -> 2.454 ms, +7.2 % [+5.5, +9.0] at 95 %" in text
    assert "Smallest detectable 3.1 %" in text
    assert "Part of the change conv: duration: 160 us per inference (97.5 % of it)" in text
    assert "CHANGE AGAINST THE BASELINE" not in terminal.render(Sample().explain())
