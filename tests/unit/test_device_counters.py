"""Counters of a run's kernels on NVIDIA: a recorded run of an H200, and pages of ncu made from its own kernels."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from aaco import pipeline
from aaco.core.config import Analysis, resolve
from aaco.core.errors import AacoError, Missing, UsageError
from aaco.core.plan import Plan
from aaco.core.show import SILENT
from aaco.core.tables import KERNEL_ROOFLINE
from aaco.profiler.launchers import Tool, Wanted, ncu
from aaco.report.sections import finding_views
from aaco.runner import ort
from aaco.steps import analyze, explain, make_findings, recorded_tables, run
from aaco.steps.device import counter_passes
from aaco.steps.device.choose_profiler import ProfilerShare
from aaco.tracelake import documents, layout, store
from tests import captured, models
from tests.fakes import ncu as page
from tests.fakes import profilers

READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
FOLDER = "profiler/raw/ncu/counters-01"
FACTS = {"tool": "ncu", "version": "2025.3.1.0", "counters": [READ, WRITTEN], "folder": FOLDER, "warmup": 2,
         "iterations": 1, "providers": ["CUDAExecutionProvider"]}


def of_inference(session, number=0):
    """The kernels that the recorded run had in a measured inference, in order of launch."""
    kernels = explain.explain(session, Analysis(), analyze.recompute(session)).tables["kernels"]
    return [row for row in kernels.to_pylist() if row["iteration"] == number]


def rows(kernels):
    """Rows of ncu's page: each kernel reads its number of KiB, and is as large as it was."""
    found = []
    for place, one in enumerate(kernels):
        metrics = {READ: ("byte", f"{1024 * (place + 1):,}"), WRITTEN: ("byte", "512"), "gpu__time_duration.sum":
                   ("ns", "9,999"), **page.DEVICE}
        block, grid = ([one[f"{kind}_{axis}"] or 1 for axis in "xyz"] for kind in ("block", "grid"))
        sizes = (tuple(block), tuple(whole // each for whole, each in zip(grid, block, strict=True)))
        found.append((one["kernel_name"], metrics, *(str(size) for size in sizes)))
    return found


def counted(session, lines, **facts):
    """The session, explained with a page of these rows."""
    if lines is not None:
        text = "".join(page.page([(name, metrics)], block, grid) for name, metrics, block, grid in lines)
        (session.folder / FOLDER).mkdir(parents=True)
        (session.folder / FOLDER / "ncu.csv").write_text(page.BEFORE + text)
    runtime = session.read_json(layout.ORT_CONFIG)
    session.write_json(layout.ORT_CONFIG, runtime | {"device_counters": [FACTS | facts]})
    return explain.explain(session, Analysis(), analyze.recompute(session))


@pytest.fixture
def session(tmp_path):
    return captured.session("ort_cuda_h200/bert-tiny", tmp_path)


def test_counters_are_those_of_the_first_measured_inference_in_order_of_launch(session):
    """Each kernel its own, at its node; others have none. Mutations: the warm-up's kernels; keys of the page."""
    kernels = of_inference(session)
    found = counted(session, rows(kernels))
    values = {row["kernel_id"]: row["value"] for row in found.tables["counters"].to_pylist() if row["counter"] == READ}
    assert values == {one["kernel_id"]: 1024. * (place + 1) for place, one in enumerate(kernels)}
    nodes = {row["kernel_id"]: row["executed_node"] for row in found.tables["kernels"].to_pylist()}
    assert len(values) == 61 and all(nodes[kernel] for kernel in values)
    one, = found.examined["device_passes"]["counters"]
    assert (one["dispatches"], one["joined"], one["why_not"], one["inferences"]) == (61, 61, None, 1)
    shown = {row.label: row.text for _, some in finding_views.sections(found.examined) for row in some}
    assert "61 of 61 kernels of 1 inference; others have no counters" in shown["Counted"]
    known = {row["name"]: row["value"] for row in found.tables["device_facts"].to_pylist()}
    assert known["max_clock_mhz"] == 1980


def test_kernels_of_a_run_stand_under_the_roofs_of_the_device_that_counted_them(session):
    """By the device's own word. Mutation: no identity of a run's devices, so no place."""
    counted(session, rows(of_inference(session)))
    analyzed = analyze.recompute(session)
    recorded_tables.write(session, analyzed)
    make_findings.make(session, Analysis(), analyzed.tables)
    device, = documents.read(session, layout.finding("roofline"))["devices"]
    assert (device["arch"], device["compute_units"], device["name"]) == ("sm_90", 132, "NVIDIA H200")
    placed = store.read(session, KERNEL_ROOFLINE)
    assert sorted(placed["dram_read_bytes"].drop_null().to_pylist()) == [1024. * place for place in range(1, 62)]
    found = explain.explain(session, Analysis(), analyze.recompute(session))
    assert "Kernels under their ceilings" in [title for title, _ in finding_views.sections(found.examined)]


def swapped(lines):
    place = next(at for at, (one, two) in enumerate(pairwise(lines)) if one[0] != two[0])
    return [*lines[:place], lines[place + 1], lines[place], *lines[place + 2:]]


@pytest.mark.parametrize(("spoil", "why"), [
    (swapped, "other launches than in the trace"),
    (lambda lines: lines[:-1], "the program does not do the same each time"),
    (lambda lines: [*lines[:-1], (*lines[-1][:3], "(77, 1, 1)")], "other launches than in the trace")])
def test_another_order_another_number_or_another_size_joins_nothing(session, spoil, why):
    """And all else is as it was. Mutations: joined as far as they agree; sizes not looked at."""
    found = counted(session, spoil(rows(of_inference(session))))
    one, = found.examined["device_passes"]["counters"]
    assert why in one["why_not"] and one["joined"] == 0 and "counters" not in found.tables
    assert found.examined["device_passes"]["named"] == 3 * 61


@pytest.mark.parametrize(("lines", "facts", "why"), [
    (None, {"why_absent": "ncu: it may not"}, "ncu: it may not"), (None, {}, "ncu left no counters"),
    (None, {"tool": "other"}, "'other', which this version does not read")])
def test_what_was_not_counted_has_its_reason(session, lines, facts, why):
    found = counted(session, lines, **facts)
    one, = found.examined["device_passes"]["counters"]
    assert why in one["why_not"] and why in found.absent["profiler/counters.parquet"]


def test_without_it_counters_are_absent_as_they_were_not_asked_for(session):
    found = explain.explain(session, Analysis(), analyze.recompute(session))
    assert found.absent["profiler/counters.parquet"] == "the run was made without --pmc"
    assert "counters" not in found.examined["device_passes"]


OPTIONS = frozenset({*ncu.ASKED, "--csv", "--metrics", "--log-file", "--profile-from-start"})


def test_ncu_is_told_to_count_between_the_programs_marks_alone(tmp_path):
    """Mutation: the load and the warm-up counted, too."""
    tool = Tool("ncu", "2025.3", OPTIONS)
    one, = ncu.passes(tool, Wanted((READ,), region=True), (), tmp_path)
    assert one.argv[one.argv.index("--profile-from-start") + 1] == "off"
    assert "--profile-from-start" not in ncu.passes(tool, Wanted((READ,)), ("p",), tmp_path)[0].argv
    with pytest.raises(Missing, match="does not know --profile-from-start"):
        ncu.passes(Tool("ncu", "2018", OPTIONS - {"--profile-from-start"}), Wanted((READ,), region=True), (), tmp_path)


@pytest.mark.parametrize("refused", [False, True])
def test_the_worker_is_counted_by_ncu_in_one_inference(tmp_path, monkeypatch, refused):
    """The road that a run on CUDA takes, under a fake ncu that starts the worker as its child. Mutations: all
    inferences counted; what ncu says in its own file not read; the worker told of no region.
    """
    table = tmp_path / "page.csv"
    table.write_text("==ERROR== ERR_NVGPUCTRPERM - no\n" if refused else page.BEFORE + page.page([("k", page.DEVICE)]))
    log = profilers.ncu(tmp_path, [table], **({"counters": {"code": 1}} if refused else {}))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    settings = resolve()
    plan = pipeline.plan(settings, str(models.chain(tmp_path / "chain.onnx")), warmup=2, profile_iterations=3)
    workload = run.prepare(plan, settings).workload
    share = counter_passes.asked(plan.model_copy(update={"counters": (READ,)}), "CUDAExecutionProvider", tmp_path)
    told = []
    traced_pass = ort.traced_pass
    monkeypatch.setattr(ort, "traced_pass", lambda *given: told.append(given[5:]) or traced_pass(*given[:6]))
    facts, = counter_passes.count(tmp_path, workload, plan, share, SILENT)
    assert told == [(1, True)] and facts["folder"] == FOLDER and facts["version"] == "2025.3.1.0"
    call = json.loads(log.read_text().splitlines()[-1])
    assert call["given"]["--profile-from-start"] == "off" and call["rest"][-2:] == ["-m", "aaco.runner.worker"]
    if refused:
        assert "only an administrator" in facts["why_absent"] and "SYS_ADMIN" in facts["fix"]
    else:
        assert (facts["warmup"], facts["iterations"]) == (2, 1) and "why_absent" not in facts
    assert (tmp_path / FOLDER / "ncu.csv").is_file()


def test_a_disk_that_is_full_is_the_runs_own_failure(tmp_path):
    """Mutation: taken for the profiler's."""
    (tmp_path / "profiler").write_text("in the way")
    with pytest.raises(AacoError, match="profiler"):
        counter_passes.count(tmp_path, None, Plan(model="m"), ProfilerShare(ncu, Tool("ncu", None, OPTIONS), Wanted(
            (READ,), region=True)), SILENT)


@pytest.mark.parametrize(("plan", "provider", "says"), [
    ({"profile": False}, "CUDAExecutionProvider", "--no-profile"),
    ({}, "CPUExecutionProvider", "no kernels on a device")])
def test_what_has_no_kernels_to_count_is_refused(tmp_path, plan, provider, says):
    with pytest.raises(UsageError, match=says):
        counter_passes.asked(Plan(model="m", counters=("memory",), **plan), provider, tmp_path)
    assert counter_passes.asked(Plan(model="m", **plan), provider, tmp_path) is None
