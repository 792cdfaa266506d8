"""`aaco trace` with a rocprofv3 on the PATH that takes the real one's arguments and leaves real or planted captures."""

import json
import os
import re
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import csvs
from tests.fakes import ncu, nsys, profilers, rocpd, rocprofv3, rocprofv3_json
from tests.third_party import captures
from tests.unit.test_rocprof_db import KERN, kern
from tests.unit.test_rocprof_db import make as make_rocprof_db
from tests.unit.test_rocprofv3_csv import COUNTER, KERNEL, counted, kernel

SLEEPER = [sys.executable, "-c", "import time; time.sleep(60)"]


@pytest.fixture
def planted(tmp_path):
    """Two kernels traced; the same counted twice, and once with another kernel in the second place."""
    rows = {"trace": [KERNEL, kernel(1, 100, 150), kernel(2, 200, 260)],
            "counted": [COUNTER, counted(1, "SQ_WAVES", 8, 1000, 1900), counted(2, "SQ_WAVES", 4, 2000, 2900)],
            "counted_2": [COUNTER, counted(1, "TA_A", 1, 1000, 1900), counted(2, "TA_A", 2, 2000, 2900)]}
    other = counted(2, "TA_A", 2, 2000, 2900)
    other[8] = "another"
    rows["other"] = [COUNTER, counted(1, "TA_A", 1), other]
    return {name: csvs.write(tmp_path / f"{name}.csv", table) for name, table in rows.items()}


def installed(aaco, files, **rest):
    log = rocprofv3.install(aaco.folder, files, version="6.3.0", **rest)
    path = f"{aaco.folder / 'bin'}:{os.environ['PATH']}"
    return path, lambda: [json.loads(line) for line in log.read_text().splitlines()]


def answer(aaco, query):
    return json.loads(aaco.inside("sql", "--format", "json", query).stdout)["rows"]


def test_counters_are_of_further_runs_and_stand_at_the_kernels_of_the_first(aaco, planted):
    """Mutation: import the executions of the counters like any other capture: kernels count three times."""
    files = {"trace": [{"kernel_trace.csv": planted["trace"]}], "counters": [
        {"counter_collection.csv": planted["counted"]}, {"counter_collection.csv": planted["counted_2"]}]}
    path, calls = installed(aaco, files)
    done = aaco.inside("trace", "--pmc", "TA_A,SQ_WAVES", "--pmc", "TA_B TA_C", "--json", "--", "true",
                       "--password", "tiger", PATH=path)
    document = json.loads(done.stdout)
    assert [call["kind"] for call in calls()] == ["trace", "counters", "counters"]
    assert calls()[1]["argv"][:4] == ["--pmc", "TA_A", "SQ_WAVES", "TA_B"]
    assert calls()[0]["argv"][-3:] == ["true", "--password", "tiger"]
    assert document["status"] == "complete"
    assert answer(aaco, "select count(*), sum(dur_ns)::int from kernels") == [[2, 110]]
    assert answer(aaco, "select dispatch_id, counter, value, pass from counters join kernels using (kernel_id) "
                        "order by pass, dispatch_id") == [
        [1, "SQ_WAVES", 8, 1], [2, "SQ_WAVES", 4, 1], [1, "TA_A", 1, 2], [2, "TA_A", 2, 2]]
    executions = json.loads((aaco.latest / "profiler/executions.json").read_text())
    assert [one["counters"] for one in executions["executions"]] == [[], ["TA_A", "SQ_WAVES", "TA_B"], ["TA_C"]]
    assert "tiger" not in (aaco.latest / "profiler/executions.json").read_text()
    assert executions["tools"]["rocprofv3"]["version"] == "6.3.0"
    again = aaco.inside("analyze", "--json")
    assert json.loads(again.stdout)["status"] == "complete"
    assert answer(aaco, "select count(*) from counters") == [[4]]


def test_an_import_keeps_counter_passes_out_of_the_totals(aaco, planted, tmp_path):
    """Mutation: each execution that counted as kernels of its own: three times the kernel time."""
    for name, content in (("trace", "kernel_trace"), ("counted", "counter_collection"),
                          ("counted_2", "counter_collection")):
        (tmp_path / "run" / name).mkdir(parents=True)
        shutil.copy(planted[name], tmp_path / "run" / name / f"1_{content}.csv")
    aaco.inside("import", tmp_path / "run", "--keep")
    assert answer(aaco, "select count(*), sum(dur_ns)::int from kernels") == [[2, 110]]
    assert answer(aaco, "select counter, sum(value)::int from counters group by all order by 1") == [
        ["SQ_WAVES", 12], ["TA_A", 3]]
    kept = json.loads((aaco.latest / "profiler/captures.json").read_text())["counted"]
    assert all((aaco.latest / file["kept"]).is_file() for run in kept for file in run["captures"][0]["files"])
    aaco.inside("analyze")
    assert answer(aaco, "select count(*), sum(dur_ns)::int from kernels") == [[2, 110]]
    shutil.rmtree(tmp_path / "run/trace")
    aaco.inside("import", tmp_path / "run/counted")
    assert answer(aaco, "select count(*) from kernels") == [[2]]  # without a trace its times are all there are


def rocpd_run(path, counters):
    """Two dispatches; those that count take ten times as long."""
    made = rocpd.Process()
    made.agent(0)
    made.symbol(1, "gemm")
    made.counter(1, "SQ_WAVES", agent=0)
    for number, values in enumerate(counters or [None, None], 1):
        begin, took = 1000 * number, 55 * (10 if counters else 1)
        made.dispatch(number, begin, begin + took, agent_id=0, **({"_values": {1: values}} if counters else {}))
    return rocpd.write(path, made)


def json_run(path, counters):
    """The same as rocprofv3's JSON."""
    made = [rocprofv3_json.dispatch(number, 1000 * number, 1000 * number + (550 if counters else 55))
            for number in (1, 2)]
    counted_dispatches = [rocprofv3_json.counted(record, [(31, value)]) for record, value in zip(
        made[:len(counters)], counters, strict=True)]
    return rocprofv3_json.write(path, rocprofv3_json.process(
        **({"counter_collection": counted_dispatches} if counters else {"kernel_dispatch": made})))


def rocprof_rows(counters):
    """The same as rocprof (v1) tabulates it, with a column for a counter where it counts."""
    return [[*KERN, *(["SQ_WAVES"] if counters else [])], *(
        kern(number, '"gemm"', 1000 * number, 1000 * number + (550 if counters else 55), *counters[number - 1:number])
        for number in (1, 2))]


def rocprof_db_run(path, counters):
    """Those rows as its database."""
    return make_rocprof_db(path, KERN=rocprof_rows(counters))


def rocprof_csv_run(path, counters):
    """Those rows as its table."""
    return csvs.write(path, rocprof_rows(counters))


@pytest.mark.parametrize(("name", "write"), [
    ("1_results.db", rocpd_run), ("1_results.json", json_run), ("results.db", rocprof_db_run),
    ("results.csv", rocprof_csv_run)])
def test_counter_passes_of_every_format_stay_out_of_the_totals(aaco, tmp_path, name, write):
    """Mutation: any of these formats says that its counted dispatches were timed: 1210 ns of kernels, not 110."""
    for folder, counters in (("trace", []), ("counted", [8.0, 4.0])):
        (tmp_path / "run" / folder).mkdir(parents=True)
        write(tmp_path / "run" / folder / name, counters)
    aaco.inside("import", tmp_path / "run")
    assert answer(aaco, "select count(*), sum(dur_ns)::int from kernels") == [[2, 110]]
    assert answer(aaco, "select counter, sum(value)::int from counters group by all") == [["SQ_WAVES", 12]]
    aaco.inside("import", tmp_path / "run/counted")
    assert answer(aaco, "select sum(dur_ns)::int from kernels") == [[1100]]  # without a trace: all there is


def test_a_folder_that_rocprof_left_counts_each_kernel_once(aaco):
    """A database, a picture and a table of one run. Mutation: each is a capture by itself: three times the kernels."""
    aaco.inside("import", captures() / "legacy-rocprof/llamacpp_joursbleu")
    assert answer(aaco, "select count(*), count(distinct source) from kernels") == [[1963, 1]]


def test_a_counter_pass_beside_a_real_trace_adds_no_kernel_time(aaco, tmp_path):
    """A capture of llama.cpp, and the same with a counter at every dispatch and ten times its time. Mutation: as above.
    """
    real = captures() / "rocprofv3-rocpd/gfx1201_rocm720_llamacpp_32432_results.db"
    for folder in ("trace", "counted"):
        (tmp_path / "run" / folder).mkdir(parents=True)
        shutil.copy(real, tmp_path / "run" / folder / real.name)
    with sqlite3.connect(tmp_path / "run/counted" / real.name) as database:
        names = {name.rpartition("_0000")[0]: name for (name,) in database.execute(
            "SELECT name FROM sqlite_master WHERE type = 'table' AND name LIKE 'rocpd_%'")}
        dispatches, values, kinds = (names[f"rocpd_{kind}"] for kind in ("kernel_dispatch", "pmc_event", "info_pmc"))
        took = database.execute(f'SELECT sum("end" - start), count(*) FROM "{dispatches}"').fetchone()
        database.execute(f'UPDATE "{dispatches}" SET "end" = start + 10 * ("end" - start)')
        guid, nid, pid, agent = database.execute(f'SELECT guid, nid, pid, agent_id FROM "{dispatches}"').fetchone()
        database.execute(f'INSERT INTO "{kinds}" (id, guid, nid, pid, agent_id, target_arch, name, symbol) '
                         "VALUES (1, ?, ?, ?, ?, 'GPU', 'SQ_WAVES', 'SQ_WAVES')", (guid, nid, pid, agent))
        database.execute(f'INSERT INTO "{values}" (guid, event_id, pmc_id, value) '
                         f'SELECT guid, event_id, 1, 2.0 FROM "{dispatches}"')
    database.close()
    aaco.inside("import", tmp_path / "run")
    assert answer(aaco, "select sum(dur_ns)::bigint, count(*) from kernels") == [list(took)]
    assert answer(aaco, "select count(*), sum(value)::int from counters") == [[took[1], 2 * took[1]]]


def test_what_the_program_prints_is_passed_through_once(aaco, planted):
    """To standard error, as it comes; standard output is the result. Mutation: printed by every execution."""
    files = {"trace": [{"kernel_trace.csv": planted["trace"]}],
             "counters": [{"counter_collection.csv": planted["counted"]}]}
    path, _ = installed(aaco, files)
    program = ("--", "sh", "-c", "echo to-out; echo to-err >&2")
    done = aaco("trace", "--pmc", "SQ_WAVES", "--json", *program, PATH=path)
    assert done.stderr.count("to-out") == done.stderr.count("to-err") == 1
    assert json.loads(done.stdout)["status"] == "complete"
    assert "to-out" not in aaco("trace", "--quiet", *program, PATH=path).stderr


def test_the_guide(aaco, planted, tmp_path):
    """Each command as it stands there; the profiler leaves nothing for the samplings, which is said."""
    files = {"trace": [{"kernel_trace.csv": planted["trace"]}],
             "counters": [{"counter_collection.csv": planted["counted"]}]}
    names = ("SQ_WAVES", "TCC_HIT", "TCC_MISS", "L2CacheHit", "TCC_EA_WRREQ_sum", "TCC_EA_WRREQ_64B_sum", "TCC_REQ_sum")
    listing = "Name:gfx90a\n" + "".join(f"Counter_Name : {name}\nBlock : {name.split('_')[0]}\n" for name in names)
    path, calls = installed(aaco, files, listing=listing + "Method : host_trap\nUnit : time\nMin_Interval : 1\n"
                            "Max_Interval : 9999\n")
    (aaco.folder / "app").write_text("#!/bin/sh\n")
    (aaco.folder / "app").chmod(0o755)
    (aaco.folder / "model.onnx").write_bytes(b"")
    compiled, timed = (captures() / "migraphx" / name for name in ("doc_debug_symbols_mnist_compiled.txt",
                                                                   "perf_test_rocm702_gfx1100.txt"))
    profilers.nsys(aaco.folder, [nsys.example(tmp_path / "export.sqlite")])
    profilers.ncu(aaco.folder, [ncu.example(tmp_path / "table.csv")])
    profilers.migraphx(aaco.folder, compiled, timed)
    guide = (Path(__file__).parents[2] / "docs/guides/trace.md").read_text()
    lines = "".join(re.findall(r"```bash\n(.*?)```", guide, re.DOTALL)).splitlines()
    said = [aaco.inside(*shlex.split(line)[1:], PATH=path).stderr for line in lines]
    assert "profiler: rocprofv3, the first installed" in said[0]
    assert "not imported" in said[4] and "thread-trace" in said[4]
    assert "counters of execution 1 are left out" in said[6]  # the two were planted apart
    kinds = [(call["tool"], call["kind"]) for call in calls()]
    assert kinds == [("rocprofv3", kind) for kind in (
        "trace", *("trace", "counters") * 2, *("trace", "thread_trace", "pc_sampling") * 2)] + [
        ("nsys", "trace"), ("nsys", "export"), ("nsys", "trace"), ("nsys", "export"), ("ncu", "counters"),
        ("migraphx-driver", "compile"), ("migraphx-driver", "trace")]
    assert calls()[4]["given"]["--pmc"] == ["TCC_EA_WRREQ_sum", "TCC_EA_WRREQ_64B_sum", "TCC_REQ_sum"]
    assert calls()[10]["sampling"] == "on" and calls()[10]["given"]["--pc-sampling-interval"] == "2000"


def test_a_program_that_does_another_thing_each_time_has_no_counters(aaco, planted):
    files = {"trace": [{"kernel_trace.csv": planted["trace"]}],
             "counters": [{"counter_collection.csv": planted["other"]}]}
    path, _ = installed(aaco, files)
    done = aaco.inside("trace", "--pmc", "TA_A", "--", "true", PATH=path)
    assert "counters of execution 1 are left out: 1 of its 2 dispatches are other kernels" in done.stderr
    assert not (aaco.latest / "profiler/counters.parquet").exists()


def test_real_captures_are_read_as_an_import_reads_them(aaco):
    real = captures() / "rocprofv3-csv" / "jimw567_llamacpp"
    files = {"trace": [{name: real / f"decode_{name}" for name in ("kernel_trace.csv", "hip_api_trace.csv")}],
             "counters": [{"counter_collection.csv": real / "decode_fetch_counter_collection.csv"}]}
    path, _ = installed(aaco, files)
    done = aaco.inside("trace", "--pmc", "FETCH_SIZE", "--json", "--", "true", PATH=path)
    traced = json.loads(done.stdout)
    named = [{row["Dispatch_Id"]: row["Kernel_Name"] for row in csvs.rows(real / f"decode_{name}.csv")}
             for name in ("kernel_trace", "fetch_counter_collection")]
    common = named[0].keys() & named[1].keys()  # the two are of different stretches of one program
    assert 0 < len(common) < len(named[1]) and all(named[0][key] == named[1][key] for key in common)
    assert f"{len(named[1]) - len(common)} of the {len(named[1])} dispatches counted" in done.stderr
    assert answer(aaco, "select count(*) from counters") == [[len(common)]]
    folder = aaco.folder / "plain"
    folder.mkdir()
    for name in ("kernel_trace.csv", "hip_api_trace.csv"):
        shutil.copy(real / f"decode_{name}", folder / f"1_{name}")
    imported = json.loads(aaco.inside("import", folder, "--json").stdout)
    values = [{name: one["value"] for name, one in each["readings"].items()} for each in (traced, imported)]
    assert values[0] == values[1]  # counters change reasons of absence only: one alone tells no roofline
    for name in ("kernel_trace.csv", "hip_api_trace.csv"):
        kept = next((aaco.folder / "sessions").rglob(f"rocprof_raw/trace/host/*_{name}"))
        assert kept.read_bytes() == (real / f"decode_{name}").read_bytes()


def test_the_environment_that_rocpd_keeps_is_withheld(aaco, tmp_path):
    """Mutation: leave out VACUUM, or the update: the token stands in the file."""
    database = rocpd.write(tmp_path / "one.db", rocpd.example())
    with sqlite3.connect(database) as connection:
        (name,) = connection.execute("select name from sqlite_master where name like 'rocpd_info_process%' "
                                     "and type = 'table'").fetchone()
        connection.execute(f"update {name} set environment = ?, command = ?", (
            json.dumps({"HF_TOKEN": "hf_" + "q" * 34, "RANK": "3", "OMP_NUM_THREADS": "2"}), "prog --password tiger7"))
    connection.close()
    log = rocprofv3.install(aaco.folder, {"trace": [{"results.db": database}]})
    aaco.inside("trace", "--", "true", PATH=f"{aaco.folder / 'bin'}:{os.environ['PATH']}")
    kept = next(aaco.latest.rglob("rocprof_raw/trace/host/*.db"))
    content = kept.read_bytes()
    assert b"hf_qqq" not in content and b"tiger7" not in content and b"OMP_NUM_THREADS" in content
    assert "rocpd" in json.loads(log.read_text())["argv"]
    assert b"hf_qqq" not in (aaco.latest / "profiler/captures.json").read_bytes()


@pytest.mark.parametrize(("command", "files", "said"), [
    (["false"], {}, "trace: false under rocprofv3 ended with exit code 1"),
    (["true"], {}, "rocprofv3 recorded nothing")])
def test_what_fails_leaves_a_session_that_says_so(aaco, command, files, said):
    path, _ = installed(aaco, files)
    done = aaco.inside("trace", "--", *command, PATH=path, expect=1 if command == ["false"] else 2)
    assert said in done.stderr
    record = json.loads((aaco.latest / "session.json").read_text())
    assert record["status"] == "failed" and said in record["failure"]
    checked = json.loads(aaco.inside("check", "--strict", "--json", expect=4).stdout)
    assert not checked["trusted"] and said in checked["unfinished"]
    executions = json.loads((aaco.latest / "profiler/executions.json").read_text())["executions"]
    assert [one["code"] for one in executions] == [1 if command == ["false"] else 0]
    assert "failed" in aaco.inside("ls").stdout


def test_what_a_profiler_leaves_under_no_text_gets_a_name(aaco, planted):
    """Mutation: no new name: the manifest names another file than the one that is there."""
    odd = os.fsdecode(b"\xff_kernel_trace.csv")
    path, _ = installed(aaco, {"trace": [{odd: planted["trace"]}]})
    aaco.inside("trace", "--", "true", PATH=path)
    (kept,) = aaco.latest.rglob("*_kernel_trace.csv")
    assert "\\udcff" in kept.name and answer(aaco, "select count(*) from kernels") == [[2]]
    assert json.loads(aaco.inside("info", "latest", "--json").stdout)["damaged"] == {}


def test_without_the_tool_or_its_options_nothing_is_written(aaco):
    none = aaco.inside("trace", "--", "true", PATH="/usr/bin:/bin", expect=6)
    assert "looked for rocprofv3, rocprof, nsys or ncu" in none.stderr
    path, _ = installed(aaco, {}, without=("--att",), listing="Counter_Name : SQ_WAVES\nBlock : SQ\n")
    assert "does not know --att" in aaco.inside("trace", "--att", "--", "true", PATH=path, expect=6).stderr
    assert "no counter SQ_WAVE" in aaco.inside("trace", "--pmc", "SQ_WAVE", "--", "true", PATH=path, expect=6).stderr
    assert "did you mean 'rocprofv3'" in aaco.inside("trace", "--tool", "rocprofv2", "--", "true", expect=2).stderr
    assert "Nsight Systems" in aaco.inside("trace", "--tool", "nsys", "--", "true", expect=6, PATH=path).stderr
    assert "no such command" in aaco.inside("trace", "--", "./none", PATH=path, expect=6).stderr
    replaced = aaco("trace", "--sessions-dir", "100%pid%", "--", "true", PATH=path, expect=2).stderr
    assert "rocprofv3 cannot write to" in replaced and not (aaco.folder / "100%pid%").exists()
    assert not (aaco.folder / "sessions").exists()


def test_a_killed_trace_leaves_what_was_recorded(aaco, planted):
    path, _ = installed(aaco, {"trace": [{"kernel_trace.csv": planted["trace"]}]})
    environment = aaco.environment(PATH=path)
    process = subprocess.Popen(aaco.command("trace", "--", *SLEEPER), cwd=aaco.folder, env=environment,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (aaco.folder / "calls.jsonl").exists():
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert "incomplete" in aaco.inside("ls").stdout
    assert aaco.inside("report").stdout
    assert "NOT TO BE TRUSTED AS IT IS: the recording ended before" in aaco.inside("check", "--strict", expect=4).stdout
