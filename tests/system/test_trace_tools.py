"""`aaco trace` with each of its profilers on the PATH, which take the real ones' arguments and leave captures."""

import csv
import gzip
import json
import os
import resource
import shutil
import signal
import sqlite3
import sys

import pytest

from tests import csvs
from tests.fakes import ncu, nsys, profilers, rocprofv3
from tests.third_party import captures

TRUE = shutil.which("true") or "true"
LISTED = """Chip gh100
------- ------- ----
Metric Name                       Metric Type  Metric Unit  Metric Description
dram__bytes_read                  Counter      byte         # of bytes read from DRAM
gpu__time_duration                Counter      ns           incremental duration in nanoseconds
sm__warps_active                  Counter      warp         cumulative # of warps in flight
"""


@pytest.fixture
def traced(aaco):
    """Runs `aaco trace` with what is in the folder's bin before anything else; nothing else of the PATH profiles."""
    def run(*arguments, expect=0, command=(TRUE,)):
        return aaco.inside("trace", *arguments, "--", *command, expect=expect,
                           PATH=f"{aaco.folder / 'bin'}:{os.environ['PATH']}")
    return run


def calls(aaco):
    return [json.loads(line) for line in (aaco.folder / "calls.jsonl").read_text().splitlines()]


def answer(aaco, query):
    return json.loads(aaco.inside("sql", "--format", "json", query).stdout)["rows"]


def document(aaco, name):
    return json.loads((aaco.latest / name).read_text())


def own(tmp_path):
    """Our recording of resnet50 on an H200: what a CUPTI trace saw, as nsys exports it, and what ncu counted."""
    folder = captures() / "h200"
    with gzip.open(folder / "ort_cuda/resnet50_b1_kernels.csv.gz", "rt") as file:
        first = [row for row in csv.DictReader(file) if row["iter"] == "0" and row["kind"] == "10"]
    strings = {name: number for number, name in enumerate(sorted({row["name"] for row in first}), 1)}
    start = int(first[0]["start_ns"])
    rows = [[int(row["start_ns"]) - start, int(row["end_ns"]) - start, 0, 1, int(row["stream"]), int(row["corr"]),
             strings[row["name"]], strings[row["name"]], nsys.P] for row in first]
    path = tmp_path / "own.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        connection.executemany("INSERT INTO StringIds VALUES (?, ?)", [(at, name) for name, at in strings.items()])
        connection.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, contextId INT, "
                           "streamId INT, correlationId INT, demangledName INT, shortName INT, globalPid INT)")
        connection.executemany(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({', '.join('?' * 9)})", rows)
    connection.close()
    table = tmp_path / "own.csv"
    table.write_bytes(gzip.decompress((folder / "ncu/ncu_ort_resnet50_b1.csv.gz").read_bytes()))
    return path, table, first


def test_counters_of_ncu_stand_at_the_kernels_that_nsys_timed(aaco, traced, tmp_path):
    """218 of 218 kernels of an inference, recorded by two tools in two processes on an H200, in the order of launch.

    Broken by: joining by ncu's own numbers; names with their namespaces; ncu's durations instead of the trace's.
    """
    export, table, first = own(tmp_path)
    metrics = gzip.decompress((captures() / "h200/ncu/ncu_metrics_gh100.txt.gz").read_bytes()).decode()
    profilers.nsys(aaco.folder, [export])
    profilers.ncu(aaco.folder, [table], metrics)
    traced("--tool", "ncu", "--pmc", "dram__bytes_read.sum,dram__bytes_write.sum")
    (one,) = document(aaco, "profiler/captures.json")["counted"]
    assert (one["dispatches"], one["joined"], one["why_not"]) == (218, 218, None)
    spent = sum(int(row["end_ns"]) - int(row["start_ns"]) for row in first)
    assert answer(aaco, "select count(*), sum(dur_ns)::bigint from kernels") == [[218, spent]]
    assert any("with empty caches" in note for note in document(aaco, "profiler/captures.json")["notes"])
    with table.open() as file:
        rows = list(csv.reader(line for line in file if line.startswith('"')))
    read = sum(int(row[rows[0].index("dram__bytes_read.sum")].replace(",", "")) for row in rows[2:])
    assert answer(aaco, "select sum(value)::bigint from counters where counter = 'dram__bytes_read.sum'") == [[read]]
    asked = calls(aaco)
    assert [(call["tool"], call["kind"]) for call in asked] == [("nsys", "trace"), ("nsys", "export"),
                                                                ("ncu", "counters")]
    assert asked[0]["given"]["--trace"] == "cuda,nvtx,osrt" and asked[0]["rest"] == [TRUE]
    assert asked[2]["given"]["--metrics"] == "dram__bytes_read.sum,dram__bytes_write.sum,gpu__time_duration.sum"
    assert asked[2]["given"]["--clock-control"] == "none" and asked[2]["given"]["--replay-mode"] == "kernel"
    kept = next((aaco.folder / "sessions").rglob("counters-01/ncu.csv"))
    assert kept.read_bytes() == table.read_bytes()
    tools = document(aaco, "profiler/executions.json")["tools"]
    assert {name: one["version"] for name, one in tools.items()} == {"nsys": "2025.3.1.90", "ncu": "2025.3.1.0"}


def test_without_a_tracer_there_are_counters_only_and_that_is_said(aaco, traced, tmp_path):
    """What ncu counts by default is what a roofline takes, and what the chip has of it."""
    profilers.ncu(aaco.folder, [ncu.example(tmp_path / "table.csv")], LISTED)
    done = traced("--tool", "ncu")
    assert "no tracer is installed" in done.stderr and "counters only" in done.stdout
    assert calls(aaco)[0]["given"]["--metrics"] == ("dram__bytes_read.sum,"
                                                    "sm__warps_active.avg.pct_of_peak_sustained_active,"
                                                    "gpu__time_duration.sum")
    assert answer(aaco, "select count(*), count(t_start_ns) from kernels") == [[3, 0]]
    assert "no metric dram__bytes_reads" in traced("--tool", "ncu", "--pmc", "dram__bytes_reads.sum", expect=6).stderr
    assert "ncu records no thread traces" in traced("--tool", "ncu", "--att", expect=6).stderr


LOCKED = """==PROF== Connected to process 7 (/bin/prog)
==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the target \
device 0. For instructions on enabling permissions and to get more information see \
https://developer.nvidia.com/ERR_NVGPUCTRPERM
"""


def test_locked_counters_are_one_line_and_the_trace_is_kept(aaco, traced, tmp_path):
    """Broken by: looking at the exit code alone, which is 0; giving the trace up with the counters."""
    (tmp_path / "locked.txt").write_text(LOCKED)
    profilers.nsys(aaco.folder, [nsys.example(tmp_path / "one.sqlite")])
    profilers.ncu(aaco.folder, [tmp_path / "locked.txt"])
    done = traced("--tool", "nsys", "--pmc", "dram__bytes_read.sum", "--kernels", "gemm", expect=6)
    assert "only an administrator" in done.stderr and "NVreg_RestrictProfilingToAdminUsers=0" in done.stderr
    assert calls(aaco)[-1]["given"]["--kernel-name"] == "regex:gemm"
    record = document(aaco, "session.json")
    assert record["status"] == "failed" and "ERR_NVGPUCTRPERM" in record["failure"]
    assert not list(aaco.latest.rglob("*.nsys-rep"))  # only the tool could tell what is secret in it
    assert b"hunter2" not in next(aaco.latest.rglob("trace.sqlite")).read_bytes()
    assert answer(aaco, "select count(*) from kernels") == [[3]]
    assert "not all was recorded: counters" in aaco.inside("report").stdout


@pytest.mark.parametrize(("faults", "said"), [
    ({"trace": {"code": 1, "says": "write failed: No space left on device", "half": True}},
     "ended with exit code 1: write failed: No space left on device"),
    ({"trace": {"signal": int(signal.SIGKILL), "half": True}}, "was killed by SIGKILL"),
    ({"export": {"code": 1, "says": "the report is damaged"}}, "nsys export ended with exit code 1: the report is"),
    ({"trace": {"waits": 60}}, "ran for more than 1 s")])
def test_what_goes_wrong_under_nsys_leaves_a_session_that_says_so(aaco, traced, tmp_path, faults, said):
    """A full disk, a killed profiler, a report that is not exported, a hang."""
    profilers.nsys(aaco.folder, [nsys.example(tmp_path / "one.sqlite")], **faults)
    done = traced("--tool", "nsys", "--timeout", "1", expect=1)
    assert said in done.stderr
    record = document(aaco, "session.json")
    assert record["status"] == "failed" and said in record["failure"]
    (one,) = document(aaco, "profiler/executions.json")["executions"]
    assert (one["tool"], one["kind"]) == ("nsys", "trace")
    if faults.get("trace", {}).get("code"):  # the tool exports what it wrote, whatever became of the program
        assert answer(aaco, "select count(*) from kernels") == [[3]]
    assert aaco.inside("report").stdout and "failed" in aaco.inside("ls").stdout


def test_a_full_disk_under_the_profiler_is_said(aaco, traced, tmp_path):
    """A limit on the size of files stands in for it: it is met at the same write calls."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    profilers.nsys(aaco.folder, [nsys.example(tmp_path / "one.sqlite")])
    resource.setrlimit(resource.RLIMIT_FSIZE, (16 << 10, before[1]))
    try:
        done = traced("--tool", "nsys", expect=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "nsys export" in done.stderr and "File too large" in document(aaco, "session.json")["failure"]
    assert "failed" in aaco.inside("ls").stdout and aaco.inside("report").stdout


BASIC = """Basic HW counters:
  gpu-agent0 : GRBM_COUNT : Tie High - Count Number of Clocks
      block GRBM has 2 counters
  gpu-agent0 : TCC_HIT[0-15] : Number of cache hits.
      block TCC has 4 counters
  gpu-agent0 : TCC_MISS[0-15] : Number of cache misses. UC reads count as misses.
      block TCC has 4 counters
"""
DERIVED = """Derived metrics:
  gpu-agent0 : L2CacheHit : The percentage of fetch, write, atomic, and other instructions that hit the data in L2.
      L2CacheHit = 100*sum(TCC_HIT,16)/(sum(TCC_HIT,16)+sum(TCC_MISS,16))
"""


def test_rocprof_traces_into_a_database_and_counts_what_its_input_names(aaco, traced, tmp_path):
    """Broken by: reading results.json beside the database, so that every kernel counts twice."""
    real = captures() / "legacy-rocprof/rocm_blogs/HIP_trace"
    with sqlite3.connect(real / "results.db") as database:
        names = [name for (name,) in database.execute("select Name from OPS order by BeginNs")]
    database.close()
    rows = [["Index", "KernelName", "gpu-id", "queue-id", "pid", "tid", "grd", "wgr", "TCC_HIT"]]
    rows += [[str(at), name, "1", "0", "7", "7", "64", "64", str(100 + at)] for at, name in enumerate(names)]
    profilers.rocprof(aaco.folder, {"trace": [{path.name: path for path in real.iterdir()}],
                                    "counters": [{"results.csv": csvs.write(tmp_path / "counted.csv", rows)}]},
                      BASIC, DERIVED)
    traced("--tool", "rocprof", "--hsa", "--pmc", "TCC_HIT GRBM_COUNT L2CacheHit")
    asked = calls(aaco)
    assert [call["kind"] for call in asked] == ["trace", "counters"]
    assert {"--hip-trace", "--hsa-trace", "--roctx-trace"} <= asked[0]["given"].keys()
    assert list(asked[1]["inputs"].values()) == ["pmc : TCC_HIT GRBM_COUNT L2CacheHit\n"]
    (one,) = document(aaco, "profiler/captures.json")["captures"]
    assert one["format"] == "rocprof_db" and one["kernels"]["count"] == len(names)
    assert document(aaco, "profiler/executions.json")["tools"]["rocprof"]["version"] == "6.1.2-129"
    (joined,) = document(aaco, "profiler/captures.json")["counted"]
    assert (joined["joined"], joined["why_not"]) == (len(names), None)


def test_what_rocprofs_shell_would_change_is_refused(aaco, traced, tmp_path):
    profilers.rocprof(aaco.folder, {}, BASIC)
    assert "hands the command to a shell" in traced("--tool", "rocprof", command=[TRUE, "$HOME"], expect=2).stderr
    assert "no counter TCC_HITS" in traced("--tool", "rocprof", "--pmc", "TCC_HITS", expect=6).stderr
    assert not (aaco.folder / "sessions").exists()


def test_migraphx_driver_says_what_a_model_was_compiled_to_and_how_long_it_takes(aaco, traced):
    """Broken by: one file per command, so that each instruction is there twice; times of another program's names."""
    real = captures() / "migraphx"
    profilers.migraphx(aaco.folder, real / "doc_debug_symbols_mnist_compiled.txt",
                       real / "perf_test_rocm702_gfx1100.txt")
    (aaco.folder / "mnist.onnx").write_bytes(b"a model")
    model = str(aaco.folder / "mnist.onnx")
    traced("--tool", "migraphx-driver", command=[model, "--fp16"])
    assert [(call["verb"], call["argv"][1:]) for call in calls(aaco)] == [
        ("compile", ["--debug-symbols", model, "--fp16"]), ("perf", ["--detailed", model, "--fp16"])]
    found = document(aaco, "runtime/migraphx_partition.json")
    fused = next(one for one in found["instructions"] if one["operator"] == "channelwise_conv_add_relu_kernel")
    assert fused == {"name": "@11", "operator": "channelwise_conv_add_relu_kernel", "origin": "fused",
                     "nodes": ["Convolution28", "Plus30", "ReLU32"]}
    assert found["origins"]["fused"] >= 1 and found["provider"] == "MIGraphXExecutionProvider"
    assert answer(aaco, "select device_ns, annotation from operators where operator = 'mlir_dot'") == [[9482, None]]
    kept = next((aaco.folder / "sessions").rglob("migraphx.txt")).read_bytes()
    assert kept == b"".join((real / name).read_bytes() for name in ("doc_debug_symbols_mnist_compiled.txt",
                                                                     "perf_test_rocm702_gfx1100.txt"))
    assert "no such file" in traced("--tool", "migraphx-driver", command=["none.onnx"], expect=6).stderr


def test_thread_traces_and_samplings_take_what_the_tool_and_the_gpu_have(aaco, traced, tmp_path):
    real = captures() / "rocprofv3-csv/rocm_systems_docs"
    rocprofv3.install(aaco.folder, {"trace": [{"kernel_trace.csv": real / "kernel_trace.csv"}], "pc_sampling": [
        {"pc_sampling_host_trap.csv": real / "pc_sampling_host_trap.csv"}]}, "6.3.0",
        (real / "list-avail.txt").read_text(), thread_trace={
            "code": 1, "says": "Fatal error: rocprof-trace-decoder library path not found in"})
    done = traced("--tool", "rocprofv3", "--pc-sampling", "--pc-sampling-with", "interval=2000", "--att", "--att-with",
                  "target-cu=2", "--att-with", "buffer-size=0x6000000", expect=6)
    assert "no decoder of thread traces" in done.stderr and "--att-with library-path" in done.stderr
    att = calls(aaco)[1]["given"]
    assert (att["--att-target-cu"], att["--att-buffer-size"]) == ("2", "0x6000000")
    assert answer(aaco, "select count(*) > 0 from kernels") == [[True]]
    traced("--tool", "rocprofv3", "--pc-sampling", "--pc-sampling-with", "interval=2000", "--kernels", "gemm")
    sampled = calls(aaco)[-1]
    assert sampled["sampling"] == "on" and {key: sampled["given"][key] for key in sampled["given"] if "pc" in key} == {
        "--pc-sampling-beta-enabled": "true", "--pc-sampling-method": "host_trap", "--pc-sampling-unit": "time",
        "--pc-sampling-interval": "2000"}


def test_a_traced_program_knows_the_session_that_its_trace_becomes(aaco, traced, tmp_path):
    """Mutation: the variable is not set."""
    nsys.example(tmp_path / "report.sqlite")
    profilers.nsys(aaco.folder, [tmp_path / "report.sqlite"])
    program = "import os, pathlib; pathlib.Path('seen').write_text(os.environ['AACO_TRACED_BY'])"
    traced("--tool", "nsys", command=(sys.executable, "-c", program))
    assert (aaco.folder / "seen").read_text() == aaco.latest.resolve().name
