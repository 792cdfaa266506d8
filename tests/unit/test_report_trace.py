"""The sections on what the devices did: in every form of the report, for planted traces, hostile names and none."""

import json

import pytest
from msgspec.structs import replace

from aaco.analytics.measure import measure
from aaco.analytics.timeline import trace as tracing
from aaco.core import tables
from aaco.core.config import Analysis
from aaco.core.tables import COLLECTIVES
from aaco.report import format
from aaco.report.plots import utilisation
from aaco.report.renderers import html, json_report, markdown, terminal
from aaco.report.sections import catalogue, inventory, trace
from tests import explained, timed
from tests.timed import at

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
STEP = ("embed", "gemm", "gelu", "gemm", "softmax", NCCL)


def planted(names=STEP, ranks=2):
    """Two ranks of four steps; in each a synchronisation, a copy, an all-reduce that rank 1 comes last to."""
    kernels, copies, calls = [], [], []
    for rank in range(ranks):
        now, number = 1_000_000, 0
        where = {"capture": rank, "rank": rank, "device_id": rank}
        for step in range(4):
            calls.append(at(now, now + 900_000, name=f"ProfilerStep#{step + 3}", domain="marker", capture=rank))
            for place, name in enumerate(names):
                number += 1
                wait = 5_000 if name == NCCL and rank == 1 else 0
                begin = now + 40_000 + 25_000 * place + wait
                calls.append(at(begin - 12_000, begin - 7_000, correlation_id=number, capture=rank))
                kernels.append(at(begin, begin + 20_000 - wait, kernel_name=name, correlation_id=number, **where))
            calls.append(at(now + 150_000, now + 210_000, name="cudaStreamSynchronize", capture=rank))
            number += 1
            copies.append(at(now + 220_000, now + 260_000, correlation_id=number, capture=rank, device_id=rank))
            calls.append(at(now + 212_000, now + 215_000, name="cudaMemcpyAsync", correlation_id=number, capture=rank))
            now += 1_000_000
    table = timed.kernels(*kernels)
    said = [row for row in table.to_pylist() if row["kernel_name"] == NCCL]
    return {"kernels": table, "copies": timed.copies(*copies), "api_calls": timed.calls(*calls),
            "collectives": COLLECTIVES.build(
                kernel_id=[row["kernel_id"] for row in said], operation=["allreduce"] * len(said),
                group=["0"] * len(said), group_size=[ranks] * len(said), bytes_in=[2**20] * len(said),
                bytes_out=[2**20] * len(said))}


def explanation(**given):
    found = tracing.trace(**planted(**given), settings=Analysis())
    why = dict.fromkeys(tables.ALL, "imported capture: it does not hold this")
    readings = measure({}, None, Analysis(), why, examined={"trace": found})
    return replace(explained.Sample().explain(), trace=found, readings=readings)


def test_the_sections_are_the_golden_ones(golden):
    text = terminal.render(explanation())
    start = text.index("GPU TIMELINE")
    golden("report/devices.txt", text[start:text.index("\nSLOWEST EXECUTED NODES")])


def test_idle_time_that_is_a_part_of_gaps_of_another_cause_is_not_of_no_gap():
    """Mutation: "33.8 ms, 0 gaps"."""
    found = explanation()
    lanes = [replace(lane, causes={name: replace(part, count=0) for name, part in lane.causes.items()})
             for lane in found.trace.idle.devices]
    rows = trace.idle(replace(found, trace=replace(found.trace, idle=replace(found.trace.idle, devices=tuple(lanes)))))
    assert "of the span, parts of other gaps; " in rows[0].text and not any("0 gaps" in row.text for row in rows)


def test_no_line_is_wider_than_a_terminal():
    assert all(format.cells(line) <= 80 for line in terminal.render(explanation()).splitlines())


def test_every_form_has_every_section():
    found = explanation()
    titles = [title for title, _ in catalogue.rows_of_part("devices", found)]
    assert titles == [section.title for section in catalogue.on_page("devices") if section.rows]
    page, text = html.render(found), markdown.render(found)
    for title in titles:
        assert f"<h3>{title}</h3>" in page and f"## {title}" in text
    made = json.loads(json.dumps(json_report.render(found), allow_nan=False))
    assert set(made["trace"]) == {"timeline", "idle", "launches", "queues", "collectives", "steady_state"}
    assert {"metrics/timeline.json", "metrics/idle.json"} <= {file.name for file in inventory.every(found)}


def test_a_session_without_device_work_has_none_of_it():
    found = explained.Sample().explain()
    assert catalogue.rows_of_part("devices", found) == []
    assert json_report.render(found)["trace"] is None
    page = html.render(found)
    assert "GPU timeline" not in page and "Devices: no device was recorded" in page
    assert utilisation.draw(None) is None


def test_hostile_names_stay_text():
    found = explanation(names=(*explained.HOSTILE, NCCL))
    page = html.render(found)
    assert "<script>document.title" not in page and "onerror=\"" not in page
    text = terminal.render(found)
    assert all(letter.isprintable() or letter == "\n" for letter in text)
    assert all(format.cells(line) <= 80 for line in text.splitlines())


def test_the_page_stays_small_with_many_devices():
    rows = [at(1000 * number, 1000 * number + 700, device_id=device) for device in range(64) for number in range(300)]
    found = replace(explained.Sample().explain(),
                                trace=tracing.trace(timed.kernels(*rows), Analysis()))
    assert len(html.render(found).encode()) < 1_000_000
    assert any("56 more devices" in row.text for _, rows in catalogue.rows_of_part("devices", found) for row in rows)


@pytest.mark.parametrize("kernels", [[at(5, 5)], [at(0, 10)], [at(0, 10, capture=3), at(0, 10)]])
def test_the_smallest_traces_can_be_shown(kernels):
    found = replace(explained.Sample().explain(), trace=tracing.trace(timed.kernels(*kernels), Analysis()))
    assert "GPU TIMELINE" in terminal.render(found)
    assert html.render(found)


@pytest.mark.parametrize(("starts", "axis"), [((0, 500), "the first start"), ((0, 10**15), "each device")])
def test_devices_of_different_times_have_an_axis_of_their_own(starts, axis):
    rows = [at(start, start + 1000, capture=capture) for capture, start in enumerate(starts)]
    drawing = utilisation.draw(tracing.trace(timed.kernels(*rows), Analysis())).inline()
    assert f"time from {axis}" in drawing.replace("&#39;", "'")


def test_the_picture_is_as_high_as_the_device_was_busy():
    """Half of each moment computed, half idle: the compute bars are half a lane high."""
    rows = [at(1000 * number, 1000 * number + 500) for number in range(2000)]
    drawing = utilisation.draw(tracing.trace(timed.kernels(*rows), Analysis()))
    heights = [float(part.split('height="')[1].split('"')[0]) for part in drawing.inline().split("<rect")
               if 'class="c0"' in part]
    assert sorted(heights)[len(heights) // 2] == pytest.approx(utilisation.LANE / 2, rel=0.05)
