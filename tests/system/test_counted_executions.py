"""Counted executions beside timed ones, in one file and in several: kernels that ran for counters are in no total."""

import json
import re
import shutil
from pathlib import Path

import pytest

from tests import csvs, kineto_files
from tests.fakes import ncu, rocpd, rocprofv3_json, rpd
from tests.system.test_trace import answer
from tests.third_party import captures
from tests.unit.test_pftrace import Made
from tests.unit.test_rocprof_json import intercepted, named
from tests.unit.test_rocprofv3_csv import COUNTER, KERNEL, counted, kernel

TOTAL = "select count(*), sum(dur_ns)::int from kernels"
COUNTED = "select counter, sum(value)::int from counters group by all order by 1"
WORK_ITEMS = 512  # as tests/kineto_files.py writes them
JIMW = "rocprofv3-csv/jimw567_llamacpp"


def rocpd_process(number, values, copies=0, **sizes):
    """A process with a dispatch per value; what has a counter takes ten times as long."""
    made = rocpd.Process(f"0000-{number}", number, first_event=1000 * number)
    made.agent(1)
    made.symbol(1, "gemm")
    if any(value is not None for value in values):
        made.counter(1, "SQ_WAVES")
    for at, value in enumerate(values, 1):
        begin = 1000 * at
        made.dispatch(at, begin, begin + (55 if value is None else 550),
                      **({} if value is None else {"_values": {1: value}}), **sizes)
    for at in range(copies):
        made.copy(at + 1, 10_000 + 10 * at, 10_005 + 10 * at, 64, None, 1)
    return made


def json_process(pid, values):
    """The same as rocprofv3's JSON."""
    ran = [rocprofv3_json.dispatch(at, 1000 * at, 1000 * at + (55 if value is None else 550))
           for at, value in enumerate(values, 1)]
    return rocprofv3_json.process(
        pid, kernel_dispatch=[one for one, value in zip(ran, values, strict=True) if value is None],
        counter_collection=[rocprofv3_json.counted(one, [(31, value)]) for one, value in zip(ran, values, strict=True)
                            if value is not None])


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("form", ["rocpd", "rocpd together", "json", "json same process"])
def test_a_file_of_timed_and_counted_processes_is_split(aaco, tmp_path, form, order):
    """Broken by: taking the whole file as counted, or as timed: 1210 ns of kernels."""
    runs = [([None, None], 5), ([8.0, 4.0], 6)]
    runs = [runs[at] for at in order]
    if form.startswith("rocpd"):
        path = rocpd.write(tmp_path / "m.db", *(rocpd_process(pid, values, copies=2) for values, pid in runs),
                           together="together" in form, keyed="together" not in form)
    else:
        path = rocprofv3_json.write(tmp_path / "m.json", *(
            json_process(7 if "same" in form else pid, values) for values, pid in runs))
    aaco.inside("import", path)
    assert answer(aaco, TOTAL) == [[2, 110]] and answer(aaco, COUNTED) == [["SQ_WAVES", 12]]
    if form.startswith("rocpd"):
        assert answer(aaco, "select count(*) from copies") == [[2]]
    told = json.loads((aaco.latest / "profiler/captures.json").read_text())
    assert (told["counted"][0]["dispatches"], told["counted"][0]["joined"]) == (2, 2) and not told["notes"]
    check = json.loads((aaco.latest / "metrics/trace_check.json").read_text())["captures"][0]["account"]
    assert check["dropped"] == {"count": 0, "ns": 0} and check["used"] == {"count": 2, "ns": 110}
    aaco.inside("analyze")
    assert answer(aaco, TOTAL) == [[2, 110]] and answer(aaco, COUNTED) == [["SQ_WAVES", 12]]


@pytest.mark.parametrize("form", ["rocpd", "json"])
def test_dispatches_that_were_counted_beside_others_of_their_process_have_no_times(aaco, tmp_path, form):
    """They are executions of the program, with counters of their own. Broken by: their times stay: 1210 ns."""
    values = [None, 8.0, None, 4.0]
    if form == "rocpd":
        path = rocpd.write(tmp_path / "m.db", rocpd_process(5, values))
    else:
        path = rocprofv3_json.write(tmp_path / "m.json", json_process(5, values))
    aaco.inside("import", path)
    assert answer(aaco, "select count(*), count(dur_ns), sum(dur_ns)::int from kernels") == [[4, 2, 110]]
    assert answer(aaco, "select counter, value::int, dispatch_id from counters join kernels using (kernel_id) "
                        "order by dispatch_id") == [["SQ_WAVES", 8, 2], ["SQ_WAVES", 4, 4]]
    note, = json.loads((aaco.latest / "profiler/captures.json").read_text())["notes"]
    assert note == f"{path.name} ran some kernels one by one to be counted: the times of these are in no total"
    check = json.loads((aaco.latest / "metrics/trace_check.json").read_text())["captures"][0]["account"]
    assert check["dropped"] == {"count": 0, "ns": 0}


def test_a_dispatch_that_was_executed_again_for_counters_is_no_second_execution(aaco, tmp_path):
    """In any order in the file. Broken by: taking what comes first for the program's own: its times are of both."""
    made = rocpd_process(5, [])
    made.counter(1, "SQ_WAVES")
    for number, dispatch, value in ((1, 1, None), (2, 1, 8.0), (3, 2, 4.0), (4, 2, None)):
        begin = 1000 * number
        made.dispatch(number, begin, begin + (55 if value is None else 550), dispatch_id=dispatch,
                      **({} if value is None else {"_values": {1: value}}))
    aaco.inside("import", rocpd.write(tmp_path / "m.db", made))
    assert answer(aaco, TOTAL) == [[2, 110]] and answer(aaco, COUNTED) == [["SQ_WAVES", 12]]


def test_kernels_that_were_only_counted_keep_their_times_and_that_is_said(aaco, tmp_path):
    made = rocpd_process(5, [8.0, 4.0])
    made.symbol(2, "softmax")
    made.dispatch(3, 5000, 5055, kernel=2)
    aaco.inside("import", rocpd.write(tmp_path / "m.db", made))
    assert answer(aaco, TOTAL) == [[3, 1155]]
    note, = json.loads((aaco.latest / "profiler/captures.json").read_text())["notes"]
    assert note.startswith("m.db ran one by one to be counted: ")


def rpd_trace(took=55, values=()):
    """Two kernels, of no known size, with these counters."""
    made = rpd.Trace(3)
    for at in (1, 2):
        made.op(at, "KernelExecution", 1000 * at, 1000 * at + took, text="gemm")
    for at, value in enumerate(values, 1):
        made.add("counter", id=at, value=value, op_id=at, name_id=made.string("SQ_WAVES"))
    return made


def pftrace_run(path, took, counters):
    """The same as Perfetto's trace."""
    made = Made()
    made.track(3, 1, 'STREAM [" 2 "] ')
    for at in (1, 2):
        made.slice(1000 * at, 1000 * at + took, 3, "gemm", "kernel_dispatch", {
            "agent": "Agent-4", "corr_id": at, "queue": 1, "tid": 34, **counters})
    path.write_bytes(made.trace.SerializeToString())


def of_size(event):
    """An event of rocprof's JSON with as many work-items as the others here."""
    event["args"]["grd"] = str(WORK_ITEMS)
    return event


def test_a_lost_counter_makes_no_timed_kernel(aaco, tmp_path):
    """One of 20 was counted like the others. Broken by: their times in no total, because one is without a counter."""
    aaco.inside("import", rocpd.write(tmp_path / "m.db", rocpd_process(5, [8.0] * 19 + [None])))
    assert answer(aaco, "select count(*), count(dur_ns) from kernels") == [[20, 20]]
    assert answer(aaco, COUNTED) == [["SQ_WAVES", 19 * 8]]


def timing_side(path, form):
    """Two kernels of 55 us, or ns, called gemm."""
    if form == "kineto":
        kineto_files.write(path / "t.json", [("aten::mm", [("gemm", 55.0), ("gemm", 55.0)])], steps=1)
    elif form == "rpd":
        rpd_trace().write(path / "t.rpd")
    elif form == "pftrace":
        pftrace_run(path / "t.pftrace", 55, {})
    else:
        events = [*named()[1:], *(of_size(intercepted(1000 * at, 1000 * at + 55, "gemm")) for at in (1, 2))]
        (path / "t.json").write_text('{ "traceEvents":[{}\n' + "".join(f",{json.dumps(one)}\n" for one in events)
                                     + '],\n"otherData": {}\n}')


def counter_side(path, form):
    """The same two kernels, counted, as slow as can be."""
    if form == "csv":
        table = [COUNTER, *(counted(at, "SQ_WAVES", value, 1000 * at, 1000 * at + 999)
                            for at, value in ((1, 8), (2, 4)))]
        as_traced = {"k": "gemm", 2048: WORK_ITEMS}
        csvs.write(path / "1_counter_collection.csv", [[as_traced.get(cell, cell) for cell in row] for row in table])
    elif form == "ncu":
        metrics = {"gpu__time_duration.sum": ("ns", "999"), "sm__waves.sum": ("", "6")}
        (path / "c.csv").write_text(ncu.page([("gemm", metrics)] * 2, block="(64, 1, 1)", grid="(8, 1, 1)"))
    elif form == "json":
        ran = [rocprofv3_json.dispatch(at, 1000 * at, 1000 * at + 550) for at in (1, 2)]
        for one in ran:
            one["dispatch_info"]["grid_size"] = {"x": WORK_ITEMS, "y": 1, "z": 1}
        rocprofv3_json.write(path / "1_results.json", rocprofv3_json.process(
            counter_collection=[rocprofv3_json.counted(one, [(31, value)]) for one, value in zip(ran, (8, 4),
                                                                                                  strict=True)]))
    elif form == "rpd":
        rpd_trace(999, (8.0, 4.0)).write(path / "c.rpd")
    elif form == "pftrace":
        pftrace_run(path / "c.pftrace", 999, {"SQ_WAVES": 6.0})
    else:
        rocpd.write(path / "1_results.db", rocpd_process(5, [8.0, 4.0], grid_size_x=WORK_ITEMS, grid_size_y=1))


@pytest.mark.parametrize(("form", "counters"), [  # each form of either side: the join does not know the forms
    *(("kineto", counters) for counters in ("csv", "rocpd", "json", "ncu", "rpd", "pftrace")),
    ("rpd", "rpd"), ("pftrace", "pftrace"), ("rocprof", "csv")])
def test_every_trace_with_kernels_is_a_timing_side(aaco, tmp_path, form, counters):
    """The totals are those without the counter pass. Broken by: a format of which no parser says what it was for."""
    for name in ("time", "count"):
        (tmp_path / "run" / name).mkdir(parents=True)
    timing_side(tmp_path / "run/time", form)
    aaco.inside("import", tmp_path / "run")
    alone = answer(aaco, TOTAL)
    counter_side(tmp_path / "run/count", counters)
    aaco.inside("import", tmp_path / "run")
    assert answer(aaco, TOTAL) == alone and alone[0][0] == 2
    name = "sm__waves.sum" if counters == "ncu" else "SQ_WAVES"
    assert [name, 12] in answer(aaco, COUNTED)


def passes(folder, layout, forms=(("SQ_A", "SQ_B"), ("SQ_C",), ("SQ_D", "SQ_E"))):
    """An execution for each group of counters, longer the more it counts; the second counts least."""
    for number, names in enumerate(forms, 1):
        took = 100 * len(names)
        if layout == "ncu":
            folder.mkdir(parents=True, exist_ok=True)
            metrics = {"gpu__time_duration.sum": ("ns", str(took)), **{f"sm__{name}": ("", "6") for name in names}}
            (folder / f"ncu{number}.csv").write_text(ncu.page([("gemm", metrics)] * 2))
        else:
            at = folder / f"pmc_{number}"
            at.mkdir(parents=True)
            csvs.write(at / f"{number}_counter_collection.csv", [COUNTER, *(
                counted(dispatch, name, 6, 1000 * dispatch, 1000 * dispatch + took)
                for dispatch in (1, 2) for name in names)])


@pytest.mark.parametrize("layout", ["rocprofv3", "ncu"])
def test_passes_without_a_trace_are_one_execution(aaco, tmp_path, layout):
    """The one with fewest counters gives the times, all give counters. Broken by: six kernels; the first pass's times.
    """
    passes(tmp_path / "run", layout)
    done = aaco.inside("import", tmp_path / "run")
    assert answer(aaco, TOTAL) == [[2, 200]]
    assert [[name.removeprefix("sm__"), value] for name, value in answer(aaco, COUNTED) if "SQ_" in name] == [
        [f"SQ_{letter}", 12] for letter in "ABCDE"]
    assert "ran one by one to be counted" in " ".join(done.stdout.split())
    aaco.inside("analyze")
    assert answer(aaco, TOTAL) == [[2, 200]]


def test_processes_that_counted_the_same_are_of_one_execution(aaco, tmp_path):
    """Broken by: taking the second for the first again, which is none of it: two kernels, not four."""
    for process in (33, 34):
        csvs.write(tmp_path / f"{process}_counter_collection.csv", [
            COUNTER, *(counted(at, "SQ_A", 6, 1000 * at, 1000 * at + 100) for at in (1, 2))])
    aaco.inside("import", tmp_path)
    assert answer(aaco, TOTAL) == [[4, 400]]


def test_replays_of_a_dispatch_are_one_execution(aaco, tmp_path):
    """As rocprofv3 numbers the replays of a kernel. Broken by: a kernel per replay."""
    header = [*COUNTER, "Replay_Pass"]
    rows = [[*counted(at, f"SQ_{number}", 6, 1000 * at, 1000 * at + 100), number]
            for number in (0, 1) for at in (1, 2)]
    aaco.inside("import", csvs.write(tmp_path / "1_counter_collection.csv", [header, *rows]))
    assert answer(aaco, TOTAL) == [[2, 200]] and answer(aaco, COUNTED) == [["SQ_0", 12], ["SQ_1", 12]]


def test_counters_of_another_program_are_a_capture_by_themselves(aaco, tmp_path):
    """Broken by: leaving out its kernels, though nothing else shows that program's."""
    for name in ("time", "count"):
        (tmp_path / name).mkdir()
    csvs.write(tmp_path / "time/1_kernel_trace.csv", [KERNEL, kernel(1, 100, 155, name="gemm")])
    counter_side(tmp_path / "count", "ncu")
    page = (tmp_path / "count/c.csv").read_text().replace('"gemm"', '"softmax"')
    (tmp_path / "count/c.csv").write_text(page)
    aaco.inside("import", tmp_path)
    assert answer(aaco, TOTAL) == [[3, 55 + 2 * 999]]
    told = json.loads((aaco.latest / "profiler/captures.json").read_text())
    assert told["counted"] == [] and told["notes"][0].startswith("c.csv ran one by one ")


def test_every_counted_program_finds_its_own_trace(aaco, tmp_path):
    """Of two programs. Broken by: comparing with the first trace only."""
    for name in ("a", "b"):
        for kind in ("time", "count"):
            (tmp_path / f"{name}_{kind}").mkdir()
        csvs.write(tmp_path / f"{name}_time/1_kernel_trace.csv", [
            KERNEL, *(kernel(at, 100 * at, 100 * at + 55, name=f"{name}{at % 2}") for at in (1, 2, 3))])
        csvs.write(tmp_path / f"{name}_count/1_counter_collection.csv", [COUNTER, *(
            [f"{name}{at % 2}" if cell == "k" else cell for cell in counted(at, f"SQ_{name}", 6)] for at in (1, 2, 3))])
    aaco.inside("import", tmp_path)
    assert answer(aaco, TOTAL) == [[6, 330]] and answer(aaco, COUNTED) == [["SQ_a", 18], ["SQ_b", 18]]


def test_a_real_folder_of_traces_and_counters_has_the_totals_of_its_traces(aaco, tmp_path):
    """Two phases of llama.cpp, each traced, and counted twice."""
    shutil.copytree(captures() / JIMW, tmp_path / "all")
    for path in (tmp_path / "all").rglob("*counter*"):
        path.unlink()
    aaco.inside("import", tmp_path / "all")
    alone = answer(aaco, TOTAL)
    aaco.inside("import", captures() / JIMW)
    assert answer(aaco, TOTAL) == alone


def test_every_counted_program_is_one_execution_without_a_trace(aaco, tmp_path):
    """The same without the traces. Broken by: one program for both phases, or four executions."""
    names = sorted((captures() / JIMW).rglob("*counter*"))
    for path in names:
        shutil.copy(path, tmp_path / path.name)
    aaco.inside("import", tmp_path)
    together = answer(aaco, "select count(*) from kernels")[0][0]
    each = []
    for path in names:
        aaco.inside("import", path)
        each.append(answer(aaco, "select count(*) from kernels")[0][0])
    assert together == each[0] + each[2]


def test_a_workload_of_rocprof_compute_has_times_of_its_own(aaco):
    """Its folder holds a run without counters. Broken by: saying that nothing timed it."""
    aaco.inside("import", captures() / "rocprof-compute/vcopy_MI200")
    told = json.loads((aaco.latest / "profiler/captures.json").read_text())
    assert not any("one by one" in note for note in told["notes"]), told["notes"]
    assert answer(aaco, "select count(*) > 0 from counters") == [[True]]


def test_what_says_that_times_are_missing_counts_the_files_that_it_does_not_name(aaco):
    """Broken by: a list that ends in points, which the screen takes for the end of the sentence."""
    done = aaco.inside("import", captures() / "rocprof-compute/vcopy_MI300X_A1")
    assert "SQ_INST_LEVEL_LDS.csv and 4 more." in " ".join(done.stdout.split()), done.stdout


def test_kernels_without_times_take_no_0_ns(aaco):
    """Absent is not zero. Mutations: "3, 0 ns in all"; no kernel capture, where one is that has no times."""
    aaco.inside("import", captures() / "rocprof-compute/vcopy_MI300X_A1", "--quiet")
    screens = [aaco.inside(verb).stdout for verb in ("summary", "roofline", "report")]
    assert not any(re.search(r"\b0 ns( in all|:|  )", screen) for screen in screens)
    assert "kernels 3 without a time" in screens[0] and "n/a: no kernel has a time" in screens[2]


def test_counters_that_were_not_recorded_are_named_as_no_metrics(aaco):
    """Mutation: `aaco explain NAME`, which knows no counter's name."""
    aaco.inside("import", Path(__file__).parents[1] / "captures/ncu_h200/ort_resnet50_b1.csv.gz", "--quiet")
    screen = aaco.inside("roofline").stdout
    absent = json.loads((aaco.latest / "metrics/roofline.json").read_text())["devices"][0]["absent"]
    assert absent and "aaco explain" not in screen and "Not counted" in screen
    words = " ".join(screen.split())
    assert all(name.replace("_", " ") in words for name in absent)
