"""What examinations find in a run whose device was traced: a recording of an H200, planted kernels; none on a CPU."""

from __future__ import annotations

import json
from collections import defaultdict
from statistics import median

import pyarrow.compute as pc
import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from aaco import pipeline
from aaco.analytics.critical_path.summary import NOT_LOOKED_FOR
from aaco.analytics.graph.executed_work import executed_work
from aaco.analytics.timeline.activity import NO_HOST
from aaco.analytics.timeline.trace import NO_GPU
from aaco.cli.critical_path import critical_path
from aaco.core import inputs, tables
from aaco.core.config import resolve
from aaco.core.errors import BadBundle
from aaco.report.plots import plots
from aaco.report.renderers import html, json_report, markdown, terminal
from aaco.steps import analyze, make_findings, measured_part, seal
from aaco.steps.findings import fingerprints
from aaco.tracelake import documents, layout, manifest, queries, store
from tests import captured, models
from tests.unit.test_device_passes import RUNS, as_calls, planted

FOUND = ("kernel_classes", "critical_path", "launch_tax")
BERT_KERNELS = 61  # of one inference


def recorded(root, calls: bool):
    """bert-tiny on an H200, three measured inferences after two of warm-up, sealed."""
    root.mkdir(exist_ok=True)
    session = captured.session("ort_cuda_h200/bert-tiny", root)
    if calls:
        as_calls(session)
    return session, sealed(session)


def sealed(session):
    explained = seal.seal(session, resolve(), "complete")
    session.finish("complete")
    return explained


def rows_of(explained, name):
    """The rows of the measured inferences, by plain Python."""
    runs = [row for row in explained.tables["api_calls"].to_pylist() if row["name"] == "model_run"]
    begin, end = min(row["t_start_ns"] for row in runs), max(row["t_end_ns"] for row in runs)
    return [row for row in explained.tables[name].to_pylist()
            if begin <= row["t_start_ns"] <= end or row.get("iteration") is not None]


@pytest.mark.parametrize("calls", [True, False])
def test_a_recorded_run_is_examined_in_its_measured_inferences(tmp_path, calls):
    """Every number again by plain Python from the tables. Mutations: the warm-up examined, too; a median of all."""
    session, found = recorded(tmp_path / "a", calls)
    kernels = [row for row in rows_of(found, "kernels") if row["iteration"] is not None]
    lasted = [row["dur_ns"] for row in kernels]
    assert len(kernels) == 3 * BERT_KERNELS < found.tables["kernels"].num_rows
    tax, path, classes = (found.examined[name] for name in ("launch_tax", "critical_path", "kernel_classes"))

    assert (tax["kernels"], tax["kernel_ns"]) == (len(lasted), sum(lasted))
    assert [(each["from_us"], each["count"], each["ns"]) for each in tax["buckets"] if each["count"]] == [
        (low, len(mine), sum(mine)) for low, high in ((0, 1000), (1, 5000))
        if (mine := [ns for ns in lasted if 1000 * low <= ns < high])]
    assert tax["short"] == sum(ns < 10_000 for ns in lasted) and sum(gap["ns"] for gap in tax["gaps"].values()) == (
        tax["idle_ns"])
    work = kernels + rows_of(found, "copies")
    span = max(row["t_end_ns"] for row in work) - min(row["t_start_ns"] for row in work)
    assert (tax["span_ns"], tax["idle_ns"]) == (span, span - sum(row["dur_ns"] for row in work))  # there is one stream

    wall = sum(row["dur_ns"] for row in rows_of(found, "api_calls") if row["name"] == "model_run")
    assert tax["wall_ns"] == wall and tax["score"] == pytest.approx(tax["short"] / wall * 1e6)
    assert tax["score"] == pytest.approx(found.readings["launch_tax_score"].value)

    by_name = defaultdict(list)
    for row in kernels:
        by_name[row["kernel_name"]].append(row["dur_ns"])
    assert {one["kernel_name"]: (one["calls"], one["total_ns"], one["median_ns"]) for one in classes["kernels"]} == {
        name: (len(mine), sum(mine), median(mine)) for name, mine in by_name.items()}
    assert {one["class"] for one in classes["kernels"]} == {"tiny"} and classes["kernel_ns"] == sum(lasted)

    course, = path["paths"]
    began = [row["t_start_ns"] for row in (rows_of(found, "api_calls") if calls else work) if row["name" if calls else (
        "t_start_ns")] != "model_run"]
    assert course["window_ns"] == max(row["t_end_ns"] for row in work) - min(began) == sum(
        course["bound_by_ns"].values())
    assert course["critical_path_ns"] == sum(lasted) == found.readings["critical_path_ns"].value
    on_path = sum(course["bound_by_ns"][kind] for kind in ("compute", "communication", "copy"))
    assert found.readings["critical_path_device_pct"].value == 100 * on_path / course["window_ns"]

    prints = store.read(session, tables.FINGERPRINTS).to_pylist()
    assert sum(one["calls"] for one in prints) == len(lasted)
    assert json.loads(json.dumps(found.trace.documents())) == {name: session.read_json(file) for name, file in
                                                                layout.TRACE.items() if documents.holds(session, file)}
    assert found.truth["trusted"] and found.truth["captures"][0]["account"]["used"]["count"] == (
        found.tables["kernels"].num_rows)


def test_without_the_calls_nothing_is_said_of_launches(tmp_path):
    """Mutation: what the host was launching is 0 ns."""
    _, found = recorded(tmp_path / "a", calls=False)
    tax, course = found.examined["launch_tax"], found.examined["critical_path"]["paths"][0]
    assert tax["why_no_causes"] == NO_HOST
    assert course["edges"]["launch"] == [0, 0] and course["launch_latency_ns"] is None
    assert course["bound_by_ns"]["launch"] == course["bound_by_ns"]["host"] == 0 < course["bound_by_ns"]["unknown"]
    for name in ("launch_tax_pct", "host_limited_pct"):
        assert found.readings[name].why_absent == NO_HOST
    text = " ".join(terminal.render(found).split())
    assert f"; {NO_HOST}" in text and f"Launches n/a: {NO_HOST}" in text and "launching 0" not in text
    _, known = recorded(tmp_path / "b", calls=True)
    (lane,) = known.trace.idle.devices
    launching = lane.causes["host_wait"].ns - lane.paused_ns + lane.causes["launch"].ns
    idle_pct = 100 * (1 - known.readings["unprofiled_busy_ratio"].value)  # all its parts shrink by one factor
    assert known.readings["launch_tax_pct"].value == pytest.approx(idle_pct * launching / lane.idle_ns, rel=1e-3)


def test_every_report_the_manifest_and_a_second_look_have_what_was_found(tmp_path):
    """And `aaco critical-path` finds the same path again. Mutation: the whole trace looked at there."""
    session, found = recorded(tmp_path, calls=True)
    texts = (terminal.render(found).upper(), markdown.render(found).upper(),
             html.render(found, plots.drawings(found)).upper())
    for title in ("LAUNCH TAX", "CRITICAL PATH", "WHAT LIMITS THE LONGEST KERNELS", "TRACE CHECK"):
        assert all(title in text for text in texts)
    made = json_report.render(found)
    assert [name for name in made["examined"] if name in FOUND] == list(FOUND)
    assert made["readings"]["critical_path_ns"]["value"] == found.readings["critical_path_ns"].value
    files = [*(layout.finding(name) for name in FOUND), layout.TRACE_CHECK,
             *(tables.ALL[name].file for name in analyze.OF_DEVICE_WORK if name not in analyze.OF_COUNTERS)]
    listed = manifest.read(session)
    assert set(files) <= listed["files"].keys() and not set(files) & listed["absent"].keys()
    assert set(files) - {layout.TRACE_CHECK} <= {each["name"] for each in made["files"]}
    before = {name: (session.folder / name).read_bytes() for name in files}
    again = pipeline.analyze(session, resolve())
    assert {name: (session.folder / name).read_bytes() for name in files} == before
    read = pipeline.explain(session)
    for one in (again, read):
        assert one.examined == found.examined and one.readings == found.readings and one.truth == found.truth
    said = CliRunner().invoke(critical_path, [str(session.folder), "--what-if", "cutlass=0.5", "--json"])
    answer = json.loads(said.stdout)
    assert answer["paths"] == found.examined["critical_path"]["paths"]
    assert answer["what_if"][0]["window_ns"] == answer["paths"][0]["window_ns"]


def test_a_session_without_its_files_says_what_would_make_them(tmp_path):
    """Sealed by a version that did not look, or never sealed; its fingerprints are those of the inferences still."""
    session, found = recorded(tmp_path, calls=True)
    kept = store.read(session, tables.FINGERPRINTS)
    documents.remove(session, layout.finding("critical_path"), tables.FINGERPRINTS.file)
    assert pipeline.explain(session).readings["critical_path_ns"].why_absent == NOT_LOOKED_FOR
    assert fingerprints.kept(session) == kept
    assert pipeline.analyze(session, resolve()).readings == found.readings


def test_more_work_than_is_looked_at_is_said_in_every_place(tmp_path):
    session = captured.session("ort_cuda_h200/bert-tiny", tmp_path)
    settings = resolve()
    few = settings.config.analysis.model_copy(update={"critical_path_work": 10})
    found = seal.seal(session, replace(settings, config=settings.config.model_copy(update={"analysis": few})))
    why = found.readings["critical_path_ns"].why_absent
    assert "more than analysis.critical_path_work (10)" in why
    assert {manifest.read(session)["absent"][tables.ALL[name].file] for name in analyze.OF_PATHS} == {why}


def test_a_run_on_the_cpu_has_none_of_it_and_says_why(tmp_path, monkeypatch):
    """Mutation: examined all the same."""
    make = make_findings._make
    monkeypatch.setattr(make_findings, "_make", lambda session, finding, settings: make(session, finding, settings)
                        if finding.on_host else pytest.fail("a CPU run was examined"))
    settings = resolve(overrides={"storage": {"sessions_dir": tmp_path / "sessions"}}, environment={})
    plan = pipeline.plan(settings, str(models.chain(tmp_path / "chain.onnx")), warmup=1, iterations=3, processes=1)
    session, found = pipeline.run(plan, settings)
    assert not set(found.examined) & set(FOUND) and not found.truth and found.trace is None
    for name in ("critical_path_ns", "critical_path_device_pct"):
        assert found.readings[name].why_absent == NO_GPU
    reasons = manifest.read(session)["absent"]
    assert {reasons[tables.ALL[name].file] for name in ("copies", *analyze.OF_DEVICE_WORK)} == {NO_GPU}


def test_what_an_earlier_look_found_does_not_stay_where_the_device_is_not_traced_any_more(tmp_path):
    """The reason is the tracer's own."""
    session, _, _ = planted(tmp_path)
    assert sealed(session).examined.keys() >= set(FOUND)
    for path in (session.folder / layout.CUPTI_NAMES).iterdir():
        path.unlink()
    found = pipeline.analyze(session, resolve())
    left = [*(layout.finding(name) for name in FOUND), *layout.TRACE.values(), layout.TRACE_CHECK]
    assert not [name for name in left if (session.folder / name).exists()]
    assert not set(found.examined) & set(FOUND) and not found.truth
    reasons = manifest.read(session)["absent"]
    assert {reasons[tables.ALL[name].file] for name in analyze.OF_DEVICE_WORK} == {
        found.examined["device_passes"]["why_absent"]}


def test_a_part_of_a_session_is_what_its_tables_have_inside(tmp_path, monkeypatch):
    """In any row groups. Mutation: slices or batches of the whole."""
    monkeypatch.setattr(store, "ROW_GROUP", 7)
    session, found = recorded(tmp_path, calls=True)
    part = measured_part.of(session)
    inside = inputs.inside_runs(found.tables)
    for name in tables.OF_INFERENCES:
        wanted = inside[name].select(["t_start_ns", "dur_ns"]).to_pylist()
        assert len(wanted) < found.tables[name].num_rows
        read = [row for rows in queries.batches(part, tables.ALL[name], ["t_start_ns", "dur_ns"])
                for row in rows.to_pylist()]
        cut = [row for piece in queries.slices(part, {name: ["t_start_ns", "dur_ns"]})
               for row in piece.tables[name].to_pylist()]
        assert read == cut == wanted
    groups = queries.batches(part, tables.KERNEL_GROUPS, ["calls"])
    assert sum(pc.sum(rows["calls"]).as_py() for rows in groups) == 3 * BERT_KERNELS


def test_a_search_for_the_path_is_of_the_work_of_inferences(tmp_path):
    """Mutation: warm-up counts as work, too."""
    session, _, kernels = planted(tmp_path, calls="there")
    work = RUNS * kernels
    for most, why in ((work, None), (work - 1, f"{work:,} pieces of device work are more than")):
        found = seal.seal(session, resolve(overrides={"analysis": {"critical_path_work": most}}), "complete")
        said = found.readings["critical_path_ns"]
        assert said.value if why is None else why in said.why_absent


def test_inferences_that_are_gone_are_said_to_be(tmp_path):
    """Mutation: a table made of no rows at all, which is a traceback."""
    session, _, _ = planted(tmp_path, calls="there")
    sealed(session)
    (session.folder / tables.API_CALLS.file).unlink()
    with pytest.raises(BadBundle, match="has no inferences"):
        measured_part.of(session)


def test_kernels_of_products_have_the_shares_of_their_nodes_under_the_measured_roofs(tmp_path):
    """Planted kernels, by plain Python; ceilings of a host are none. Mutation: those of the host taken, too."""
    session, _, _ = planted(tmp_path, calls="there")
    ceilings = {"fp32_flops": 5e12, "dram_bytes_per_s": 4e12}
    session.write_json(layout.ENVIRONMENT, {"machine": {"ceilings": ceilings}})
    assert {one["by"] for one in sealed(session).examined["kernel_classes"]["kernels"]} == {"name"}
    session.write_json(layout.ENVIRONMENT, {"machine": {"ceilings": ceilings, "card": {"device": {"name": "x"}}}})
    found = pipeline.analyze(session, resolve())
    executed, graph, edges = (found.tables[name] for name in ("executed_nodes", "graph_nodes", "graph_edges"))
    done = executed_work(executed, graph, edges)
    spent, mine = defaultdict(int), defaultdict(lambda: defaultdict(int))
    for row in found.tables["kernels"].to_pylist():
        if row["iteration"] is not None:
            spent[row["executed_node"]] += row["dur_ns"]
            mine[row["kernel_name"]][row["executed_node"]] += row["dur_ns"]
    products = [one for one in found.examined["kernel_classes"]["kernels"] if one["family"] == "gemm"]
    assert products and {one["by"] for one in products} == {"shapes"}
    for one in products:
        parts = mine[one["kernel_name"]]
        flops, moved = (sum(RUNS * getattr(done[node], amount) * ns / spent[node] for node, ns in parts.items())
                        for amount in ("flops", "bytes"))
        seconds = sum(parts.values()) * 1e-9
        assert one["compute_share"] == pytest.approx(flops / 5e12 / seconds)
        assert one["memory_share"] == pytest.approx(moved / 4e12 / seconds)
