"""profiler.ncu against csv and plain numbers, on pages of our own and on pages that were made."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import pytest

from aaco.core.errors import BadCapture
from aaco.profiler.formats import registry
from aaco.profiler.formats.nvidia import ncu
from tests.fakes import ncu as fake
from tests.parsed import gather, rows

RECORDED = Path(__file__).parents[1] / "captures" / "ncu_h200"
FILES = ("roofline.csv.gz", "ort_resnet50_b1.csv.gz")


@pytest.fixture(scope="module", params=FILES)
def recorded(request):
    """(rows as csv reads them, tables, facts)."""
    path = RECORDED / request.param
    assert registry.recognise(path) is ncu
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith('"ID"'))
    header, _, *found = csv.reader(lines[at:])
    return [dict(zip(header, row, strict=True)) for row in found], *gather(ncu.parse(path))


def number(text):
    return float(text.replace(",", ""))


def test_every_kernel(recorded):
    raw, tables, facts = recorded
    found = tables["kernels"]
    assert rows(found, "dispatch_id", "process_id", "kernel_name", "dur_ns") == [
        (int(row["ID"]), int(row["Process ID"]), row["Kernel Name"], int(number(row["gpu__time_duration.sum"])))
        for row in raw]
    blocks = [tuple(map(int, row["Block Size"].strip("()").split(","))) for row in raw]
    grids = [tuple(map(int, row["Grid Size"].strip("()").split(","))) for row in raw]
    assert rows(found, "block_x", "block_y", "block_z") == blocks
    assert rows(found, "grid_x", "grid_y", "grid_z") == [
        tuple(one * other for one, other in zip(block, grid, strict=True))
        for block, grid in zip(blocks, grids, strict=True)]
    assert found["t_start_ns"].null_count == found.num_rows
    assert facts.kernels.count == len(raw)


def test_every_number_is_a_counter_or_left_out(recorded):
    """Mutation: read "1,073,773,312" up to its first comma."""
    raw, tables, facts = recorded
    names = [name for name in raw[0] if "__" in name and not name.startswith("device__") and ":" not in name]
    expected = []
    for kernel, row in enumerate(raw):
        for name in names:
            try:
                expected.append((kernel, name, number(row[name])))
            except ValueError:
                continue
    found = rows(tables["counters"], "kernel_id", "counter", "value")
    assert sorted(found) == sorted(expected)
    assert facts.records["counter"] == len(raw) * len(names)
    assert facts.left_out["counter: no number stands there"].count == len(raw) * len(names) - len(expected)


def test_the_device(recorded):
    _, tables, facts = recorded
    (device,) = facts.devices
    assert (device.name, device.arch, device.compute_units) == ("NVIDIA H200", "sm_90", 132)
    known = dict(rows(tables["device_facts"], "name", "value"))
    assert known["max_clock_mhz"] == pytest.approx(1980)
    assert (known["lds_bytes"], known["registers_per_cu"], known["max_waves_per_cu"]) == (233_472, 65_536, 64)


@pytest.mark.parametrize(("unit", "text", "ns"), [
    ("ns", "12,345", 12_345), ("us", "12.345", 12_345), ("usecond", "1.5", 1_500), ("ms", "2", 2_000_000),
    ("s", "0.25", 250_000_000), ("ns", "n/a", None), ("ns", "", None)])
def test_durations_are_in_ns_whatever_their_unit(tmp_path, unit, text, ns):
    """Mutation: take the number as it stands."""
    path = tmp_path / "page.csv"
    path.write_text(fake.page([("k", {"gpu__time_duration.sum": (unit, text)})]))
    tables, facts = gather(ncu.parse(path))
    assert tables["kernels"]["dur_ns"].to_pylist() == [ns]
    assert facts.kernels.ns == (ns or 0)


@pytest.mark.parametrize(("text", "why"), [
    (str(2**60), "it lasts longer than 104 days"), ("-5", "'-5' is no number")])
def test_a_duration_that_cannot_be_is_none_and_is_said(tmp_path, text, why):
    """Found by benchmarks.hostile. Mutation: every whole number is a duration."""
    path = tmp_path / "page.csv"
    path.write_text(fake.page([(name, {"gpu__time_duration.sum": ("ns", took)}) for name, took in (
        ("k", text), ("l", "7"))]))
    tables, facts = gather(ncu.parse(path))
    assert tables["kernels"]["dur_ns"].to_pylist() == [None, 7] and facts.kernels.ns == 7
    assert f"1 kernel has no duration: {why}" in facts.problems


@pytest.mark.parametrize(("unit", "text", "value"), [
    ("byte", "1,048,576", 1_048_576), ("Mbyte", "1.5", 1.5e6), ("Gbyte/second", "2.25", 2.25e9),
    ("Ghz", "1.98", 1.98e9), ("%", "95.06", 95.06), ("Kbyte/block", "32.77", 32_770), ("inst/cycle", "0.12", 0.12),
    ("register/thread", "168", 168)])
def test_values_are_in_base_units(tmp_path, unit, text, value):
    path = tmp_path / "page.csv"
    path.write_text(fake.page([("k", {"some__metric.sum": (unit, text)})]))
    tables, _ = gather(ncu.parse(path))
    assert tables["counters"]["value"].to_pylist() == [pytest.approx(value, rel=1e-15)]


def test_two_tables_in_one_file_are_read_under_their_own_headers(tmp_path):
    path = tmp_path / "page.csv"
    one = fake.page([("first", {"a__x.sum": ("byte", "1")})])
    path.write_text(one + "==PROF== again\n" + fake.page([("second", {"b__y.sum": ("Kbyte", "2")})]))
    tables, facts = gather(ncu.parse(path))
    assert rows(tables["kernels"], "kernel_id", "kernel_name") == [(0, "first"), (1, "second")]
    assert rows(tables["counters"], "kernel_id", "counter", "value") == [
        (0, "a__x.sum", 1.0), (1, "b__y.sum", 2000.0)]
    assert facts.kernels.count == 2


def test_what_is_no_row_is_left_out_and_counted(tmp_path):
    path = tmp_path / "page.csv"
    path.write_text(fake.page([("k", {"a__x.sum": ("", "1")})]) + 'the program says "hello"\n')
    _, facts = gather(ncu.parse(path))
    assert facts.kernels.count == 2
    assert facts.left_out["kernel: not a whole row under its header"].count == 1


def test_the_details_page_is_refused(tmp_path):
    path = tmp_path / "details.csv"
    path.write_text('"ID","Process ID","Process Name","Host Name","Kernel Name","Section Name","Metric Name",'
                    '"Metric Unit","Metric Value"\n"0","1","p","h","k","Speed","Duration","ns","5"\n')
    assert not ncu.recognises(path)
    for read in (registry.read, lambda page: list(ncu.parse(page))):
        with pytest.raises(BadCapture):
            read(path)
