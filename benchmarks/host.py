"""What the BPF tracer sees, costs and loses: `python -m benchmarks.host` prints a table and JSON. It needs BPF.

Truth: a program that locks, sleeps and faults in three threads, by its own getrusage(2) and schedstat. Cost per switch:
see switch_cost.py; a bar holds if the upper end of the 95 % interval is within it. Cost for a workload: an ONNX Runtime
loop under SCHED_FIFO in bursts, so that only the tracer differs; its CPU time with and without, in turns, in one
process. Wall times say nothing on a busy machine, and are not used. It takes up to five minutes.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pyarrow as pa
import pyarrow.compute as pc
from onnx import TensorProto, helper, numpy_helper

from aaco.collectors.host import bpf_scheduler, procfs
from aaco.collectors.host.bpf_scheduler import SchedulerTracer
from aaco.core.host import Host
from aaco.core.records import as_dict
from benchmarks import switch_cost
from benchmarks.programs import PING_PONG, busy, go, tell, waiting

ROUNDS, WINDOWS, WINDOW_S, PRIORITY = 40_000, 60, 0.2, 10


def truth(folder: Path) -> dict[str, dict[str, float]]:
    """Each count by the kernel's account of the process, and by ours."""
    with waiting(busy(sleeps=600, sleep_s=0.0003, pages=8192, spin_s=0.5)) as process:
        tracer = SchedulerTracer(process.pid, raw=folder / "truth.bin")
        tracer.start()
        before = procfs.waits_ns(process.pid)
        voluntary, involuntary, minor, major = map(int, tell(process).split())
        time.sleep(0.5)  # until it sleeps again: a wait is in the kernel's account only when it is over
        waits = {thread: ns - before.get(thread, 0) for thread, ns in procfs.waits_ns(process.pid).items()}
        table = tracer.stop()
    of, unseen = bpf_scheduler.totals(tracer.raw).of, tracer.overhead["unseen"]
    counted = {"voluntary switches": (voluntary, of["switch_voluntary"][0]),
               "involuntary switches": (involuntary, of["switch_involuntary"][0]),
               "minor faults": (minor, of["fault_minor"][0]), "major faults": (major, of["fault_major"][0]),
               "run-queue wait, us": (sum(waits.values()) / 1000, of["run_queue_wait"][1] / 1000),
               "of the worst thread, us": _worst(waits, table)}
    told = pc.sum(table.filter(pc.equal(table["kind"].cast("string"), "fault_minor"))["value"]).as_py()
    counted["minor faults in rows"] = (minor, told or 0)
    return {name: {"kernel": kernel, "ours": ours, "off_pct": 100 * abs(ours - kernel) / max(1, kernel),
                   "unseen": unseen} for name, (kernel, ours) in counted.items()}


def _worst(waits: dict[int, int], table: pa.Table) -> tuple[float, float]:
    """The waits in us, by the kernel's account and by the rows, of the thread in which they differ most."""
    rows = table.filter(pc.equal(table["kind"].cast("string"), "run_queue_wait")).group_by("thread_id").aggregate(
        [("dur_ns", "sum")])
    ours = dict(zip(rows["thread_id"].to_pylist(), rows["dur_ns_sum"].to_pylist(), strict=True))
    worst = max(waits, key=lambda thread: abs(ours.get(thread, 0) - waits[thread]))
    return waits[worst] / 1000, ours.get(worst, 0) / 1000


def flood(folder: Path, ring_bytes: int, period_s: float) -> dict[str, float]:
    """Bursts of switches: how many records were offered a second at most, read and lost; what reading one cost.

    perf's pipe benchmark under SCHED_FIFO, where it is installed, is fast enough; else our own.
    """
    code = """
import subprocess, sys, time
print("ready", flush=True); sys.stdin.readline()
for _ in range(4):
    subprocess.run(sys.argv[1:], capture_output=True)
    time.sleep(0.3)
"""
    cpu = str(max(os.sched_getaffinity(0)))
    command = ["chrt", "-f", str(PRIORITY), "taskset", "-c", cpu, "perf", "bench", "sched", "pipe", "-T", "-l", "60000"]
    fast = subprocess.run([*command[:-1], "10"], capture_output=True).returncode == 0
    with waiting(code, *command) if fast else waiting(PING_PONG, str(ROUNDS)) as process:
        tracer = SchedulerTracer(process.pid, raw=folder / "flood.bin", ring_bytes=ring_bytes, period_s=period_s)
        tracer.start()
        go(process)
        process.wait()
        table = tracer.stop()
    weight, of = tracer.overhead, bpf_scheduler.totals(tracer.raw).of
    told = pc.sum(table["lost_before"]).as_py() or 0
    times = table.filter(pc.equal(table["kind"].cast("string"), "switch_voluntary"))["t_ns"].to_numpy()
    busiest = np.bincount((times - times.min()) // 100_000_000).max()  # of the tenths of a second
    offered = weight["emitted"] + weight["lost"]
    return {"offered_per_s": 10 * float(busiest) * offered / len(times), "offered": offered,
            "emitted": weight["emitted"], "read": weight["records"], "lost": weight["lost"],
            "lost_told_in_rows": told, "switches": of["switch_voluntary"][0] + of["switch_involuntary"][0],
            "read_us_each": 1e6 * weight["cpu_s"] / max(1, weight["records"])}


def loop() -> Callable[[], Any]:
    """One inference of a small network on one thread."""
    weights = np.random.default_rng(1).standard_normal((512, 512)).astype(np.float32) / 25
    nodes = [helper.make_node("MatMul", [f"x{layer}", "w"], [f"x{layer + 1}"]) for layer in range(4)]
    graph = helper.make_graph(nodes, "mlp", [helper.make_tensor_value_info("x0", TensorProto.FLOAT, [16, 512])],
                              [helper.make_tensor_value_info("x4", TensorProto.FLOAT, [16, 512])],
                              [numpy_helper.from_array(weights, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    onnx.checker.check_model(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    data = {"x0": np.ones((16, 512), np.float32)}
    return lambda: session.run(None, data)


def window(run: Callable[[], Any]) -> float:
    """CPU seconds of this thread per inference, in a burst well under the kernel's limit for real-time threads."""
    with contextlib.ExitStack() as restored:
        with contextlib.suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
            restored.callback(os.sched_setscheduler, 0, os.SCHED_OTHER, os.sched_param(0))
        end, began, count = time.monotonic() + WINDOW_S, time.thread_time(), 0
        while time.monotonic() < end:
            run()
            count += 1
        spent = time.thread_time() - began
    time.sleep(WINDOW_S / 4)
    return spent / count


def inference(folder: Path) -> dict[str, dict[str, float]]:
    """CPU time per inference traced, over that of the untraced windows just before and after."""
    run = loop()
    cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cpus)})
    for _ in range(50):
        run()
    ratios: dict[str, list[float]] = {"totals": [], "events": [], "untraced": []}
    before = window(run)
    for turn in range(WINDOWS):
        mode = list(ratios)[turn % len(ratios)]
        tracer = None
        if mode != "untraced":
            tracer = SchedulerTracer(os.getpid(), raw=folder / "loop.bin", events=mode == "events")
            tracer.start()
        during = window(run)
        if tracer:
            tracer.stop()
        after = window(run)
        ratios[mode].append(during / ((before + after) / 2))
        before = after
    os.sched_setaffinity(0, cpus)
    return {mode: {"ratio": statistics.median(values), "low": float(np.percentile(values, 25)),
                   "high": float(np.percentile(values, 75))} for mode, values in ratios.items()}


def said(met: bool) -> str:
    """Whether a bar was met, in a word."""
    return "met" if met else "missed"


def main() -> None:
    """Print the table and the JSON."""
    if reason := bpf_scheduler.why_not(Host()):
        sys.exit(f"BPF cannot be loaded here: {reason}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        found: dict[str, Any] = {
            "truth": truth(folder), "switches": switch_cost.measure(),
            "flood": flood(folder, bpf_scheduler.RING_BYTES, 0.02), "overrun": flood(folder, 1 << 16, 0.1),
            "inference": inference(folder)}
    print(f"{'against the kernel, bar 1 %':<34}{'kernel':>12}{'ours':>12}{'off':>10}")
    for title, row in found["truth"].items():
        print(f"  {title:<32}{row['kernel']:>12.0f}{row['ours']:>12.0f}{row['off_pct']:>8.2f} %  "
              f"{said(row['off_pct'] <= 1)}")
    print(f"  returns to a CPU that were not shown, and told late: {found['truth']['minor faults']['unseen']:.0f}")
    print(switch_cost.table(found["switches"]))
    print(f"{'records':<34}{'a second':>12}{'read':>12}{'lost':>10}")
    for title, met in (("flood", found["flood"]["lost"] == 0),
                       ("overrun", found["overrun"]["read"] == found["overrun"]["emitted"])):
        row = found[title]
        print(f"  {title:<32}{row['offered_per_s']:>12.0f}{row['read']:>12}{row['lost']:>10}  {said(met)}")
    print(f"{'ONNX Runtime, CPU ratio, bar 1.005':<34}{'median':>12}{'quartiles':>22}")
    for mode, row in found["inference"].items():
        print(f"  {mode:<32}{row['ratio']:>12.4f}{row['low']:>12.4f} .. {row['high']:.4f}  "
              f"{said(row['ratio'] <= 1.005)}")
    print(json.dumps(found, default=as_dict))


if __name__ == "__main__":
    main()
