"""Small sound captures of each format, for benchmarks.hostile: twelve kernels with what launched them."""

from __future__ import annotations

import csv
import json
import sqlite3
from pathlib import Path
from typing import Any

from tests.contract.formats_table import CAPTURES, MADE
from tests.fakes import nsys, rocpd, rocprofv3_json, rpd

COUNT, FIRST_NS, EVERY_NS = 12, 1_700_000_000_000_000, 100_000
# Formats that no maker here writes take a recorded capture; those that hold no kernels are only to be survived.
RECORDED = {form: CAPTURES[form] for form in (
    "att", "att_stats", "pc_sampling", "pftrace", "rocprof_compute", "migraphx", "rocminfo", "smi")}


def kernels() -> list[tuple[int, int, str]]:
    """Start, end and name of each kernel."""
    return [(FIRST_NS + index * EVERY_NS, FIRST_NS + index * EVERY_NS + 50_000 + index, ("gemm", "norm")[index % 2])
            for index in range(COUNT)]


def write(folder: Path) -> dict[str, Path]:
    """The captures by format."""
    folder.mkdir(parents=True)
    made = {form: MADE[form](folder) for form in ("cupti", "ncu", "xplane")}
    made |= {"kineto": _json(folder / "t.trace.json", {"schemaVersion": 1, "deviceProperties": [], "traceEvents":
                                                       _events("kernel")}),
             "chrome": _json(folder / "chrome.json", _events("work")),
             "ort": _json(folder / "ort.json", _ort()),
             "rocprofv3_csv": _csv(folder / "7_kernel_trace.csv", _rocprofv3()),
             "rocprof_csv": _csv(folder / "results.csv", _rocprof()),
             "rocprof_json": _rocprof_json(folder / "results.json"),
             "rocprof_db": _rocprof_db(folder / "v1.db"), "roctracer": _roctracer(folder / "trace.txt"),
             "rocpd": _rocpd(folder / "r.db"), "rpd": _rpd(folder / "t.rpd"), "nsys": _nsys(folder / "e.sqlite"),
             "rocprofv3_json": rocprofv3_json.write(folder / "r.json", rocprofv3_json.process(kernel_dispatch=[
                 rocprofv3_json.dispatch(number, start, end, stack=number)
                 for number, (start, end, _) in enumerate(kernels(), 1)]))}
    return made


def _json(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content))
    return path


def _events(category: str) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    for number, (start, end, name) in enumerate(kernels(), 1):
        call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 7, "tid": 8,
                "ts": (start - 9000) / 1000, "dur": 4.0, "args": {"External id": number, "correlation": number}}
        work = {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": 3, "ts": start / 1000,
                "dur": (end - start) / 1000, "args": {"device": 0, "stream": 3, "correlation": number}}
        events += [call if category == "kernel" else call | {"args": {}}, work if category == "kernel" else work | {
            "args": {}}]
    return events


def _ort() -> list[dict[str, Any]]:
    nodes = [{"cat": "Node", "pid": 1, "tid": 1, "dur": (end - start) // 1000, "ts": (start - FIRST_NS) // 1000 + 20,
              "ph": "X", "name": f"n{number}_kernel_time",
              "args": {"op_name": "Gemm", "provider": "CPUExecutionProvider"}}
             for number, (start, end, _) in enumerate(kernels())]
    load, ran = ({"cat": "Session", "pid": 1, "tid": 1, "dur": took, "ts": at, "ph": "X", "name": name, "args": {}}
                 for name, at, took in (("model_loading_uri", 1, 9), ("model_run", 15, 1300)))
    return [load, *nodes, ran]


def _csv(path: Path, rows: list[list[Any]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


def _rocprofv3() -> list[list[Any]]:
    head = ["Kind", "Agent_Id", "Queue_Id", "Stream_Id", "Thread_Id", "Dispatch_Id", "Kernel_Id", "Kernel_Name",
            "Correlation_Id", "Start_Timestamp", "End_Timestamp", "Grid_Size_X", "Grid_Size_Y", "Grid_Size_Z"]
    return [head, *(["KERNEL_DISPATCH", 4, 1, 1, 9, number, 5, name, number, start, end, 64, 1, 1]
                    for number, (start, end, name) in enumerate(kernels(), 1))]


def _rocprof() -> list[list[Any]]:
    head = ["Index", "KernelName", "gpu-id", "queue-id", "pid", "tid", "grd", "wgr", "BeginNs", "EndNs"]
    return [head, *([number, f"{name}.kd", 2, 0, 7, 8, 512, 64, start, end]
                    for number, (start, end, name) in enumerate(kernels()))]


def _rocprof_json(path: Path) -> Path:
    names = [{"args": {"name": name}, "ph": "M", "name": "process_name", "pid": row}
             for row, name in ((2, "CPU HIP API"), (8, "GPU2"))]
    events = [{"ph": "X", "name": name, "pid": "8", "tid": 33, "ts": str(start // 1000), "dur": "50", "args": {
        "BeginNs": str(start), "EndNs": str(end), "pid": "7", "tid": "8", "KernelName": name, "gpu-id": "2",
        "queue-id": "0", "grd": "512", "wgr": "64"}} for start, end, name in kernels()]
    lines = "".join(f",{json.dumps(event)}\n" for event in [*names, *events])
    path.write_text(f'{{ "traceEvents":[{{}}\n{lines}],\n"otherData": {{}}\n}}')
    return path


def _rocprof_db(path: Path) -> Path:
    with sqlite3.connect(path) as database:
        database.execute('CREATE TABLE KERN ("Index" INTEGER, KernelName TEXT, "gpu-id" INTEGER, pid INTEGER, '
                         'tid INTEGER, BeginNs INTEGER, EndNs INTEGER)')
        database.executemany("INSERT INTO KERN VALUES (?, ?, 2, 7, 8, ?, ?)", [
            (number, name, start, end) for number, (start, end, name) in enumerate(kernels())])
    return path


def _roctracer(path: Path) -> Path:
    lines = [line for number, (start, end, name) in enumerate(kernels(), 1) for line in (
        f"{start - 9000}:{start - 5000} 7:8 hipLaunchKernel(function=0x1) = hipSuccess :{number}",
        f"{start}:{end} 2:1 {name}:{number}:7")]
    path.write_text("\n".join(lines) + "\n")
    return path


def _rocpd(path: Path) -> Path:
    made = rocpd.Process()
    made.thread(7)
    made.agent(1)
    made.symbol(1, "gemm")
    for number, (start, end, _) in enumerate(kernels(), 1):
        made.region(number, "hipLaunchKernel", start - 9000, start - 5000, stack=number)
        made.dispatch(number, start, end, stack=number)
    written: Path = rocpd.write(path, made)
    return written


def _rpd(path: Path) -> Path:
    made = rpd.Trace()
    for number, (start, end, name) in enumerate(kernels(), 1):
        made.call(100 + number, "hipLaunchKernel", start - 9000, start - 5000)
        made.op(number, "KernelExecution", start, end, 100 + number, name)
    written: Path = made.write(path)
    return written


def _nsys(path: Path) -> Path:
    columns = ["start", "end", "deviceId", "contextId", "streamId", "correlationId", "demangledName"]
    work = [[start - FIRST_NS + 9000, end - FIRST_NS + 9000, 0, 1, 7, number, 1]
            for number, (start, end, _) in enumerate(kernels(), 1)]
    calls = [[row[0] - 9000, row[0] - 5000, 100 << 24, row[5], 2] for row in work]
    written: Path = nsys.export(
        path, StringIds=(["id", "value"], [1, "gemm"], [2, "cudaLaunchKernel_v7000"]),
        CUPTI_ACTIVITY_KIND_KERNEL=(columns, *work),
        CUPTI_ACTIVITY_KIND_RUNTIME=(["start", "end", "globalTid", "correlationId", "nameId"], *calls))
    return written
