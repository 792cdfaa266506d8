"""What the laboratory is worth: `python -m benchmarks.laboratory [--kills N] [--repeats N]` prints tables and JSON.

Two claims. `aaco lab run` killed at a random moment leaves the machine as it was: every reading and every control group
the same, each time. An ONNX Runtime loop beside a noisy neighbour has a p99 at least three times smaller in the level
standard than without a laboratory, interleaved; the neighbour is stress-ng in short bursts, a child of ours.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

BAR = 3.0
AMID_S = 0.4
PATIENCE_S = 60.0
# Every reading that a knob of the host could change.
READINGS = (
    "proc/irq/*/smp_affinity_list", "proc/swaps", "sys/devices/system/cpu/cpufreq/boost",
    "sys/devices/system/cpu/cpufreq/policy*/scaling_governor", "sys/devices/system/cpu/intel_pstate/no_turbo",
    "sys/devices/system/cpu/cpufreq/policy*/energy_performance_preference", "sys/fs/cgroup/cgroup.subtree_control",
    "sys/fs/cgroup/*/cgroup.subtree_control", "sys/fs/cgroup/*/cpu.rt_runtime_us", "sys/fs/cgroup/*/cpu.shares",
    "sys/fs/cgroup/*/cpuset.cpus", "sys/fs/cgroup/*/cpuset.effective_cpus", "proc/sys/kernel/randomize_va_space",
    "sys/kernel/mm/transparent_hugepage/enabled", "proc/sys/kernel/sched_rt_runtime_us",
    "sys/class/drm/card*/device/power_dpm_force_performance_level", "sys/class/drm/card*/device/hwmon/*/power1_cap",
)
LOOP = """
import json, sys, time
import numpy as np, onnxruntime as ort
options = ort.SessionOptions()
options.intra_op_num_threads = options.inter_op_num_threads = 1
session = ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
fed = {"x": np.ones((32, 512), np.float32)}
for _ in range(30):
    session.run(None, fed)
took = []
for burst in range(int(sys.argv[2])):
    time.sleep(0.15)
    end = time.perf_counter() + 0.6
    while time.perf_counter() < end:
        start = time.perf_counter()
        session.run(None, fed)
        took.append(1e3 * (time.perf_counter() - start))
print(json.dumps(took))
"""
NEIGHBOUR = ("stress-ng", "--matrix", "2", "--cache", "1", "--switch", "1", "--quiet", "--timeout", "120")


def readings(owner: int) -> dict[str, str]:
    """The machine's state as text; of control groups of laboratories only those of `owner`, since others may work."""
    root = Path("/")
    found = {str(path): _text(path) for pattern in READINGS for path in sorted(root.glob(pattern))}
    groups = {str(path): "present" for path in Path("/sys/fs/cgroup").rglob(f"aaco-{owner}-*") if path.is_dir()}
    return found | groups


@contextmanager
def alone() -> Iterator[None]:
    """No other test or benchmark that holds this may move the host's interrupts meanwhile."""
    with (Path(tempfile.gettempdir()) / "aaco-laboratory.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def kill_once(level: str, delay_s: float, amid: bool, folder: Path) -> dict[str, Any]:
    """Start `aaco lab run`, kill it after a delay, wait for its watchdog; what differs then, and what had been noted.

    amid: the delay counts from the first change on.
    """
    environment = os.environ | {"AACO_LAB_DIR": str(folder)}
    before = readings(-1)
    process = subprocess.Popen([sys.executable, "-m", "aaco", "lab", "run", "--quiet", "--level", level, "--",
                                sys.executable, "-c", "import time; time.sleep(600)"],
                               env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while amid and not any(folder.glob("*.journal")):
        time.sleep(0.001)
    time.sleep(delay_s)
    noted = sum(path.read_bytes().count(b"\n") - 1 for path in folder.glob("*.journal"))
    process.send_signal(signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + PATIENCE_S
    while any(folder.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.02)
    after = readings(process.pid)
    left = [path.name for path in folder.iterdir()]
    different = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
    return {"level": level, "delay_s": delay_s, "amid": amid, "noted": noted, "left": left, "different": different}


def whole_run_s() -> float:
    """How long a laboratory takes from start to end where nobody kills it."""
    begin = time.monotonic()
    subprocess.run([sys.executable, "-m", "aaco", "lab", "run", "--quiet", "--level", "strict", "--", "sleep", "0.3"],
                   check=True)
    return time.monotonic() - begin


def kills(count: int, seed: int = 0) -> list[dict[str, Any]]:
    """Kill that many laboratories at seeded random moments, standard and strict in turn.

    Half of them die anywhere between start and end, half within AMID_S of the journal's beginning.
    """
    chance, done = random.Random(seed), []
    longest_s = whole_run_s()
    for turn in range(count):
        with tempfile.TemporaryDirectory() as folder, alone():
            level, amid = ("standard", "strict")[turn % 2], turn % 4 >= 2
            done.append(kill_once(level, chance.uniform(0, AMID_S if amid else longest_s), amid, Path(folder)))
    return done


def latencies(model: Path, level: str, bursts: int) -> list[float]:
    """Latencies in ms of the loop under a level, in a fresh process."""
    done = subprocess.run([sys.executable, "-m", "aaco", "lab", "run", "--quiet", "--level", level, "--",
                           sys.executable, "-c", LOOP, str(model), str(bursts)], capture_output=True, text=True,
                          check=True)
    found: list[float] = json.loads(done.stdout)
    return found


@contextmanager
def neighbour() -> Iterator[None]:
    """Noise for the length of the block, in a session of its own, ended with it."""
    process = subprocess.Popen(NEIGHBOUR, start_new_session=True, stdout=subprocess.DEVNULL)
    try:
        time.sleep(0.5)
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def make_model(path: Path) -> None:
    """Eight layers of 512 x 512, as ONNX."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    chance, names = np.random.default_rng(0), ["x", *(f"h{layer}" for layer in range(8))]
    weights = [numpy_helper.from_array(chance.normal(0, 0.05, (512, 512)).astype(np.float32), f"w{layer}")
               for layer in range(8)]
    nodes = [helper.make_node("MatMul", [names[layer], f"w{layer}"], [names[layer + 1]]) for layer in range(8)]
    graph = helper.make_graph(nodes, "mlp", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [32, 512])],
                              [helper.make_tensor_value_info("h7", TensorProto.FLOAT, [32, 512])], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def beside_a_neighbour(repeats: int, bursts: int = 3) -> dict[str, dict[str, float]]:
    """p50 and p99 per level: medians over repeats, the levels interleaved, the neighbour only while they run."""
    found: dict[str, list[tuple[float, float]]] = {"none": [], "basic": [], "standard": []}
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "mlp.onnx"
        make_model(model)
        for _ in range(repeats):
            for level, rows in found.items():
                with neighbour():
                    took = latencies(model, level, bursts)
                rows.append((float(np.percentile(took, 50)), float(np.percentile(took, 99))))
                time.sleep(0.3)
    return {level: {"p50_ms": float(np.median([p50 for p50, _ in rows])),
                    "p99_ms": float(np.median([p99 for _, p99 in rows]))} for level, rows in found.items()}


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError as error:
        return str(error)


def main() -> None:
    """Print the tables and the JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=6)
    asked = parser.parse_args()
    beside = beside_a_neighbour(asked.repeats) if asked.repeats else {}
    for level, row in beside.items():
        print(f"{level:<10} p50 {row['p50_ms']:8.2f} ms   p99 {row['p99_ms']:8.2f} ms")
    if beside:
        factor = beside["none"]["p99_ms"] / beside["standard"]["p99_ms"]
        print(f"p99 none / standard: {factor:.1f}, bar {BAR:g}: {'met' if factor >= BAR else 'missed'}")
    killed = kills(asked.kills)
    same = [each for each in killed if not each["different"] and not each["left"]]
    amid = sum(each["noted"] > 0 for each in killed)
    print(f"{len(killed)} kills, {amid} of them with changes noted: machine identical {len(same)} times")
    print(json.dumps({"beside": beside, "kills": killed}))


if __name__ == "__main__":
    main()
