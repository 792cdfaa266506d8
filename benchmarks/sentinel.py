"""Does the noise sentinel see what disturbs a run, and keep quiet otherwise: `python -m benchmarks.sentinel`.

Seven kinds of noise at three strengths, made by stress-ng in processes of our own, are switched on and off (SIGCONT,
SIGSTOP) in windows beside one ONNX Runtime loop, the one that `aaco run` measures with. The sentinel sees what the run
records, and never the windows.

    python -m benchmarks.sentinel [--threads 1] [--seconds 0.4] [--windows 4] [--only hog,I/O] [--keep FILE.npz]
    python -m benchmarks.sentinel --replay FILE.npz [--without run_queue_wait_ns]

What a canary is worth: record with --canaries (tests/captures/sentinel holds such a recording) and replay it without
the wait, with and --without core_canary_ns,memory_canary_ns.

Truth is the effect: an inference in a noisy window that took at least 5 % longer than the median of the two quiet
windows beside it was disturbed; one in a quiet window that did not was not. The rest has no label: noise that cost this
inference less, and quiet windows that somebody else disturbed (their share is printed). The same for whole windows, by
the median of their latencies, and of what the sentinel says they would have been.

sensitivity  disturbed inferences (windows) that are not clean; specificity  undisturbed ones that are. Bar: both 95 %.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper, save

from aaco.analytics.quality import features, sentinel
from aaco.core.plan import Plan
from aaco.core.records import as_dict
from aaco.core.tables import ITERATION_FEATURES
from aaco.runner import iterations, ort, registry, self_accounting

Reals = NDArray[np.float64]
IMPACT = 0.05
BATCH = 512
BAR = 0.95
SETTLE_S = 0.05  # after noise was switched, before its window begins
KEPT = ("run_queue_wait_ns", "switches_voluntary", "switches_involuntary", "faults_major", "core_canary_ns",
        "memory_canary_ns")
CPUS = len(os.sched_getaffinity(0))
COUNTS = (max(1, CPUS // 2), CPUS, 2 * CPUS)
NOISE: dict[str, list[list[str]]] = {
    "hog": [["--cpu", str(count)] for count in COUNTS],
    "10 % hog": [["--cpu", str(count), "--cpu-load", "10"] for count in COUNTS],
    "nice hog": [["--cpu", str(count), "--nice", "19"] for count in COUNTS],
    "timers": [["--timer", str(CPUS), "--timer-freq", str(rate)] for rate in (10_000, 100_000, 1_000_000)],
    "memory": [["--stream", str(count)] for count in COUNTS],
    "faults": [["--fault", str(count)] for count in COUNTS],
    "I/O": [["--hdd", str(count), "--hdd-opts", "fsync", "--hdd-bytes", "16M"] for count in COUNTS],
}


class Recording(Struct, frozen=True):
    """One run beside one noise: an iteration_features table, and of each row its window; even ones were quiet, -1 none.
    """

    noise: str
    strength: int
    table: pa.Table
    window: NDArray[np.int64]


class Score(Struct, frozen=True):
    """What the sentinel said of one recording. Counts of (said so, all) that truth labels; shares without a label."""

    noise: str
    strength: int
    disturbed: tuple[int, int]
    undisturbed: tuple[int, int]
    quiet: tuple[int, int]  # all of the quiet windows, the slow ones too
    windows_disturbed: tuple[int, int]
    windows_undisturbed: tuple[int, int]
    impact: float  # of the noisy windows, by their median
    quiet_but_slow: float


def score(recording: Recording) -> Score:
    """Judge a recording and hold it against its truth."""
    found = sentinel.judge(recording.table)
    clean = np.array(found.clean.to_pylist(), object) == True  # noqa: E712 - null is not clean
    latency = recording.table["latency_ms"].to_numpy()
    window, noisy = recording.window, recording.window % 2 == 1
    impact = latency / _beside(latency, window, np.median) - 1
    slow, inside = impact >= IMPACT, window >= 0
    hit, calm = inside & noisy & slow, inside & ~noisy & ~slow
    undisturbed = latency / (1 + np.nan_to_num(found.impact))
    numbers = range(int(window.max()) + 1)
    middle = {number: np.median(latency[window == number]) for number in numbers}
    seen = {number: middle[number] / np.median(undisturbed[window == number]) - 1 >= IMPACT for number in numbers}
    usual = float(np.median([middle[number] for number in numbers if number % 2 == 0]))
    cost = {number: middle[number] / usual - 1 for number in numbers}
    bad = [number for number in numbers if number % 2 and cost[number] >= IMPACT]
    good = [number for number in numbers if number % 2 == 0 and cost[number] < IMPACT]
    return Score(recording.noise, recording.strength, (int((hit & ~clean).sum()), int(hit.sum())),
                 (int((calm & clean).sum()), int(calm.sum())),
                 (int((inside & ~noisy & clean).sum()), int((inside & ~noisy).sum())),
                 (sum(bool(seen[number]) for number in bad), len(bad)),
                 (sum(not seen[number] for number in good), len(good)),
                 float(np.median(impact[inside & noisy])), float(slow[inside & ~noisy].mean()))


def _beside(latency: Reals, window: NDArray[np.int64], of: Any) -> Reals:
    """Of each row, the mean over the quiet windows beside its own (its own, if quiet) of their statistic."""
    last = int(window.max())
    quiet = {number: of(latency[window == number]) for number in range(0, last + 1, 2)}
    base = {number: np.mean([quiet[near] for near in (number - 1, number, number + 1) if near in quiet])
            for number in range(last + 1)}
    return np.array([base.get(number, np.nan) for number in window.tolist()])


def model(path: Path) -> Path:
    """Eight layers of a perceptron: 4 ms and more on one core."""
    rng = np.random.default_rng(0)
    weights = [numpy_helper.from_array((rng.standard_normal((512, 512)) / 25).astype(np.float32), f"w{layer}")
               for layer in range(8)]
    nodes, last = [], "x"
    for layer in range(8):
        nodes += [helper.make_node("MatMul", [last, f"w{layer}"], [f"m{layer}"]),
                  helper.make_node("Relu", [f"m{layer}"], [f"r{layer}"])]
        last = f"r{layer}"
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [BATCH, 512]) for name in ("x", last)]
    graph = helper.make_graph(nodes, "perceptron", ends[:1], ends[1:], weights)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    return path


def record(noise: str, strength: int, threads: int, seconds: float, windows: int, canaries: bool,
           folder: Path) -> Recording:
    """Run the loop, noise on in every second window; begins and ends with a quiet one."""
    backend = registry.backend("cpu", registry.backends())
    backend = backend.model_copy(update={"session_options": {"intra_op_num_threads": threads}})
    inputs = {"x": np.ones((BATCH, 512), np.float32)}
    workload = ort.Workload(model(folder / "model.onnx"), backend, inputs, True)
    spans: list[tuple[int, int]] = []
    with _stress(NOISE[noise][strength], folder) as group:
        def watch(pid: int) -> None:
            threading.Thread(target=_switch, args=(group, seconds, 2 * windows + 1, spans), daemon=True).start()

        budget = (seconds + SETTLE_S) * (2 * windows + 1) + 1.5
        plan = Plan(model="perceptron", warmup=50, iterations=10**6, budget_s=budget)
        ort.time_pass(folder, workload, plan, 0, started=watch, canaries=canaries)
    made = iterations.parse(folder, BATCH)
    table = features.of_iterations(made, None, None, self_accounting.parse(folder))
    start, end = made["t_start_ns"].to_numpy(), made["t_end_ns"].to_numpy()
    window = np.full(made.num_rows, -1)
    for number, (begin, until) in enumerate(spans):
        window[(start >= begin) & (end <= until)] = number
    inside = window >= 0
    return Recording(noise, strength, table.filter(pa.array(inside)), window[inside])


@contextmanager
def _stress(options: list[str], folder: Path) -> Iterator[int]:
    """stress-ng in a process group of its own, stopped; yields the group."""
    command = ["stress-ng", *options, "--quiet", "--timeout", "120", "--temp-path", str(folder)]
    child = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(0.5)
        os.killpg(child.pid, signal.SIGSTOP)
        yield child.pid
    finally:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _switch(group: int, seconds: float, windows: int, spans: list[tuple[int, int]]) -> None:
    time.sleep(1.2)  # the model is loaded and warm by then
    for number in range(windows):
        os.killpg(group, signal.SIGCONT if number % 2 else signal.SIGSTOP)
        time.sleep(SETTLE_S)
        begin = time.monotonic_ns()
        time.sleep(seconds)
        spans.append((begin, time.monotonic_ns()))
    os.killpg(group, signal.SIGSTOP)


def keep(recordings: list[Recording], path: Path) -> None:
    """Write recordings as one compressed file of arrays."""
    arrays: dict[str, Any] = {}
    for number, recording in enumerate(recordings):
        arrays[f"{number}/about"] = np.array([recording.noise, str(recording.strength)])
        arrays[f"{number}/window"] = recording.window.astype(np.int8)
        for name in ("latency_ms", *KEPT):
            column = recording.table[name].cast(pa.float64()).to_numpy(zero_copy_only=False)
            arrays[f"{number}/{name}"] = column.astype(np.float32)
    np.savez_compressed(path, **arrays)


def kept(path: Path) -> list[Recording]:
    """Read what `keep` wrote."""
    with np.load(path) as arrays:
        numbers = sorted({int(name.split("/")[0]) for name in arrays})
        return [_kept(arrays, number) for number in numbers]


def _kept(arrays: Any, number: int) -> Recording:
    noise, strength = arrays[f"{number}/about"].tolist()
    columns = {name: arrays[f"{number}/{name}"].astype(np.float64) for name in ("latency_ms", *KEPT)}
    count = len(columns["latency_ms"])
    table = ITERATION_FEATURES.build(
        process=[0] * count, phase=["measurement"] * count, iteration=np.arange(count),
        **{name: pa.array(values, mask=np.isnan(values)) for name, values in columns.items()})
    return Recording(noise, int(strength), table, arrays[f"{number}/window"].astype(np.int64))


def blind(recording: Recording, without: str) -> Recording:
    """The recording without the signals named, separated by commas."""
    table = recording.table
    for name in filter(None, without.split(",")):
        table = table.set_column(table.schema.get_field_index(name), name, pa.nulls(table.num_rows, pa.float64()))
    return replace(recording, table=table)


def total(scores: list[Score], name: str) -> tuple[int, int]:
    """The sum of one pair of counts."""
    pairs = [getattr(each, name) for each in scores]
    return sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)


def report(scores: list[Score]) -> None:
    """Print the table and the JSON."""
    print(f"{'noise':<10}{'':>2}{'impact':>9}{'quiet, slow':>13}   {'iterations: sens.':>18}{'spec.':>13}"
          f"   {'windows: sens.':>14}{'spec.':>8}")
    for each in scores:
        print(f"{each.noise:<10}{each.strength + 1:>2}{100 * each.impact:>8.1f}%{100 * each.quiet_but_slow:>12.1f}%   "
              f"{_share(each.disturbed):>18}{_share(each.undisturbed):>13}   {_share(each.windows_disturbed):>14}"
              f"{_share(each.windows_undisturbed):>8}")
    names = ("disturbed", "undisturbed", "windows_disturbed", "windows_undisturbed", "quiet")
    sums = {name: total(scores, name) for name in names}
    for label, name in zip(("sensitivity, iterations", "specificity, iterations", "sensitivity, windows",
                            "specificity, windows", "clean in quiet windows"), names, strict=True):
        good, of = sums[name]
        bar = "" if name == "quiet" else f" (bar 95 %: {'met' if of and good / of >= BAR else 'missed'})"
        print(f"{label:<26}{100 * good / of if of else float('nan'):>7.2f} % of {of:,}{bar}")
    print(json.dumps({"scores": [as_dict(each) for each in scores], "totals": sums}))


def _share(pair: tuple[int, int]) -> str:
    return f"{100 * pair[0] / pair[1]:.1f}% /{pair[1]}" if pair[1] else "none"


def main() -> None:
    """Record or replay, score, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.4)
    parser.add_argument("--windows", type=int, default=4)
    parser.add_argument("--only", default="")
    parser.add_argument("--canaries", action="store_true")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--replay", type=Path)
    parser.add_argument("--without", default="", help="signals that the sentinel is not to see")
    given = parser.parse_args()
    if given.replay:
        report([score(blind(each, given.without)) for each in kept(given.replay)])
        return
    if not shutil.which("stress-ng"):
        sys.exit("stress-ng is not on PATH, and makes the noise: apt install stress-ng")
    recordings = []
    for noise in given.only.split(",") if given.only else NOISE:
        for strength in range(len(NOISE[noise])):
            with tempfile.TemporaryDirectory() as folder:
                recordings.append(record(noise, strength, given.threads, given.seconds, given.windows, given.canaries,
                                         Path(folder)))
    if given.keep:
        keep(recordings, given.keep)
    report([score(blind(each, given.without)) for each in recordings])


if __name__ == "__main__":
    main()
