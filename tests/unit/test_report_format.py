"""How numbers and names look: read back, measured against the terminal library, and at their edges."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from aaco.cli import say
from aaco.core.readings import Reading
from aaco.report import format

POWERS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}


@pytest.mark.parametrize(("value", "unit", "text"), [
    (42.123, "ms", "42.1 ms"), (0.0421, "ms", "42.1 us"), (1234.5, "ms", "1.23 s"), (0.000062, "ms", "62 ns"),
    (2.8, "us", "2.80 us"), (94.2, "pct", "94.2 %"), (0.942, "ratio", "0.942"), (1.0, "ratio", "1.00"),
    (58.0, "1", "58"), (1.25, "1", "1.25"), (407.3, "1/s", "407 /s"), (12345.6, "1/s", "12,346 /s"),
    (0.0, "pct", "0 %"), (-0.0, "ratio", "0"), (-4.217, "pct", "-4.22 %"), (1536.0, "bytes", "1.50 KiB"),
    (3.2e-7, "ratio", "3.20e-07"), (math.nan, "ms", "not finite ms"), (math.inf, "ratio", "not finite"),
    (31.54, "GFLOP/s", "31.5 GFLOP/s"),
])
def test_a_value_has_three_digits_and_the_unit_that_fits(value: float, unit: str, text: str) -> None:
    assert format.quantity(value, unit) == text


@given(st.floats(1e-6, 1e9), st.sampled_from(["ns", "us", "ms", "s"]))
def test_a_printed_time_reads_back_within_its_precision(value: float, unit: str) -> None:
    shown, suffix = format.quantity(value, unit).replace(",", "").split(" ")
    assert math.isclose(float(shown) * POWERS[suffix], value * POWERS[unit], rel_tol=5.1e-3, abs_tol=0.51)


@given(st.floats(1, 1e6), st.floats(1e-4, 0.5))
@example(5000.0, 1e-4)
def test_an_interval_is_precise_enough_to_see_its_width(value: float, relative: float) -> None:
    text = format.quantity(value, "1/s", value * (1 - relative), value * (1 + relative))
    low, high = (float(end.replace(",", "")) for end in text.split("[")[1].rstrip("]").split(", "))
    assert low < high
    assert math.isclose(high - low, 2 * relative * value, rel_tol=0.75)


def test_a_reading_shows_its_interval_or_its_reason() -> None:
    assert format.reading(Reading("m", "ms", 42.1, low=41.8, high=42.5)) == "42.1 ms [41.8, 42.5]"
    assert format.reading(Reading("m", "ms", None, "not recorded")) == "n/a: not recorded"
    assert format.banded(Reading("m", "ratio", 1.3, band="good")) == "1.30 (good)"


def test_a_threshold_keeps_its_own_digits_as_far_as_readings_have_them() -> None:
    assert format.threshold(Reading("m", "pct", 70.0).above(60, "why")) == "≥ 60 %"
    assert format.threshold(Reading("m", "ratio", 70.0).below(0.05, "why")) == "≤ 0.05"
    assert format.threshold(Reading("m", "pct", 70.0).above(36.3551, "why")) == "≥ 36.4 %"
    assert format.threshold(Reading("m", "1", 70.0).above(1024, "why")) == "≥ 1024"


@pytest.mark.parametrize(("share", "text"), [(0, "0.0 %"), (0.0001, "<0.1 %"), (0.584, "58.4 %"), (3.077, "307.7 %")])
def test_a_share_is_a_percentage(share: float, text: str) -> None:
    assert format.percent(share) == text


@given(st.text())
def test_clean_text_is_printable_and_printable_text_is_left_alone(text: str) -> None:
    assert format.clean(text).isprintable()
    assert format.clean(text) == text or not text.isprintable()


@given(st.text(max_size=60), st.integers(3, 40))
def test_a_cut_name_fits_and_keeps_both_ends(text: str, columns: int) -> None:
    shown = format.cut(text, columns)
    assert format.cells(shown) <= columns
    if shown != format.clean(text):
        head, tail = shown.split("…", 1) if "…" not in text else (shown[0], shown[-1])
        assert format.clean(text).startswith(head)
        assert format.clean(text).endswith(tail)


@given(st.text(st.characters(codec="ascii")) | st.text("ab éü名前かな한글…█≥ "), st.integers(4, 40))
def test_wrapped_lines_fit_and_lose_nothing_but_spaces(text: str, columns: int) -> None:
    lines = format.wrap(text, columns)
    assert all(format.cells(line) <= columns for line in lines)
    assert "".join(lines).replace(" ", "") == format.clean(text).replace(" ", "")


def test_a_line_is_folded_at_blanks_and_a_command_stays_whole() -> None:
    """Mutation: a command in two lines, which a shell takes for two."""
    assert format.fold("  idle time   of the device, ns", 20) == ["  idle time   of the", "    device, ns"]
    assert format.fold("x" * 30 + " y", 20) == ["x" * 30, "  y"]
    assert " ".join(line.strip() for line in format.fold("word " * 20_000, 44)) == ("word " * 20_000).strip()
    for command in ("aaco report 20261130_161532_814d79", "  try: aaco report 20261130_161532_814d79"):
        assert format.fold(command, 20) == [command]


def test_lines_of_a_result_follow_a_narrow_terminal_and_no_other(monkeypatch, capsys) -> None:
    """`COLUMNS=40 aaco check` printed 80 columns. Mutation: lines of a file are folded, too."""
    words = "twenty words of a result " * 6
    monkeypatch.delenv("COLUMNS", raising=False)
    say.lines([words])
    assert capsys.readouterr().out == words + "\n"
    monkeypatch.setenv("COLUMNS", "40")
    say.answer(False, {}, lambda _: words + "\n")
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 40


def test_a_wrapped_line_fits_a_terminal_of_plain_letters_too() -> None:
    """Mutation: wrapped by its cells, and written with >= for its sign."""
    assert format.wrap("x" * 77 + " ≥5", 80) == ["x" * 77, "≥5"]
    assert format.wrap("x" * 76 + " ≥5", 80) == ["x" * 76 + " ≥5"]


@given(st.text(st.sampled_from("ab é…█≥│名前한글ｱＡ\u0301")))
def test_cells_agree_with_the_terminal_library(text: str) -> None:
    assert format.cells(text) == cell_len(text)


@given(st.floats(-1, 2), st.integers(1, 60))
def test_a_bar_is_as_wide_as_asked(share: float, columns: int) -> None:
    assert len(format.bar(share, columns)) == columns


def test_counts_agree_with_their_noun() -> None:
    assert [format.plural(1, "process"), format.plural(2, "process"), format.plural(1200, "iteration")] == [
        "1 process", "2 processes", "1,200 iterations"]


@pytest.mark.parametrize(("name", "shown"), [
    ("void at::native::reduce<512, at::Op<float, (int)1>>(at::Op, int)", "at::native::reduce"),
    ("void at::native::(anonymous namespace)::pool<c10::Half>(int const*)", "at::native::{anonymous}::pool"),
    ("Cijk_Ailk_Bljk_MT64x64", "Cijk_Ailk_Bljk_MT64x64"), ("<lambda>", "<lambda>"), ("a>b", "a>b"),
    ("", "(empty name)"),
])
def test_a_symbol_is_shown_without_what_makes_it_long(name, shown):
    """Mutation: depth not counted leaves the inner template's end behind."""
    assert format.symbol(name, 60) == shown


@pytest.mark.parametrize(("text", "shown"), [
    ("void at::reduce<512, at::Op<float, (int)1>>(at::Op, int)", "at::reduce<512, at::Op<float,…"),
    ("void pool<int>(int const*)", "pool<int>"), ("f(int)", "f"), ("(x)", "(x)"), ("<lambda()#1>", "<lambda()#1>"),
    ("Cijk_Ailk_Bljk_HHS_BH_MT64x64x32_SN", "Cijk_Ailk_Bljk…H_MT64x64x32_SN"), ("", "(empty name)"),
])
def test_a_kernel_keeps_what_tells_it_from_its_siblings(text, shown):
    """Mutation: parameters taken from the first bracket cut `(int)1` out of the template arguments."""
    assert format.kernel(text, 30) == shown


def test_one_metric_without_a_value_is_named():
    """Mutation: `aaco explain NAME`, of a name that nothing on the screen says."""
    assert format.not_measured({"latency_p99_ms": "too few"}) == (
        "not measured: latency_p99_ms (too few); `aaco explain latency_p99_ms` says why")
    assert format.not_measured({"a": "x", "b": "x"}) == "not measured: 2 metrics (x); `aaco explain NAME` says why"
