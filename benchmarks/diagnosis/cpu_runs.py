"""How often a run on CPUs gets a class, and how often the right one: planted models and conditions, idle and loaded.

Each case is `aaco run` in a fresh process. The label of a planted model is its construction: one product, passes over
more than the caches hold, thousands of nodes without work, more threads than CPUs, a quota that by its control group's
account took a good part of the time. The label of a zoo model is the family of its operators that took most of a
profile of its own, which knows no roof and no budget; where neither products nor the rest take six tenths it is a
mixture, which must be decided but has no right class. The rules were changed while these models were watched, so no
model of MODELS is left out. Those of LEFT_OUT were: they were written after the last change of the rules, with their
labels, and judged afterwards. Beside load, a busy program runs on each CPU.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from msgspec import Struct
from msgspec.structs import replace
from scipy.stats import beta

from aaco.runner.zoo.builder import GraphBuilder, write
from benchmarks.claims import Claim
from benchmarks.faults.catalogue import Plant, hogs, quota

COMPUTE, MEMORY, OVERHEAD, THREADS, CONTENDED = (
    "compute_bound", "memory_bound", "overhead_bound", "threads_bound", "contended")
ITERATIONS, BUDGET_S, WARMUP = 60, 4.0, 5
PRODUCTS = {"Conv", "FusedConv", "MatMul", "FusedMatMul", "Gemm", "FusedGemm"}
ZOO = ("resnet50", "mobilenet", "bert-tiny", "gpt2-tiny", "llama-tiny")
MAJORITY = 0.6
QUOTA = 0.3  # of the CPUs
BINDING = 0.3  # of the CPUs' time: a quota that took less was no limit, as other load left the run no more than it
DECIDED_IDLE, DECIDED_LOADED, RIGHT = 0.95, 0.80, 0.95


class Case(Struct, frozen=True):
    """A run: its model, what is planted, and the class that is right; None where it is only to be decided."""

    model: str
    label: str | None
    loaded: bool = False
    threads: int = 0
    quota: float = 0.0
    cpus: int = 0  # that it may use; 0: all


class Answer(Struct, frozen=True):
    """What the product said of a case. parts_sum: whether the parts summed to the wall exactly."""

    case: Case
    label: str
    parts_sum: bool
    gains_fit: bool
    margin: float

    @property
    def left_out(self) -> bool:
        return Path(self.case.model).stem in LEFT_OUT

    @property
    def decided(self) -> bool:
        return self.label != "unknown"

    @property
    def right(self) -> bool:
        return self.label == self.case.label


def claims(captures: Path) -> Iterator[Claim]:
    """Every case as a line, then the claims."""
    del captures
    with tempfile.TemporaryDirectory(prefix="aaco-cpu-runs-") as folder:
        answers = [answer for case in cases(Path(folder)) for answer in [_run(case, Path(folder))]]
    yield from verdicts(answers)


def cases(folder: Path) -> Iterator[Case]:
    """Yield the cases: idle, with planted conditions, and beside load."""
    planted = {str(_written(folder, name, build)): label for name, (label, build) in (MODELS | LEFT_OUT).items()}
    idle = [Case(model, label) for model, label in planted.items()] + [Case(model, _zoo_label(model, folder))
                                                                      for model in ZOO]
    cpus = len(os.sched_getaffinity(0))
    products = [model for model in planted if Path(model).stem in ("steps", "gemm_stack", "convolutions")]
    yield from idle
    yield from (Case(model, THREADS, threads=8 * cpus) for model in planted if Path(model).stem in SMALL_STEPS)
    yield from (Case(model, CONTENDED, quota=QUOTA) for model in products)
    yield from (replace(case, loaded=True) for case in idle)


def _product(size: int, count: int = 1) -> Callable[[], GraphBuilder]:
    def build() -> GraphBuilder:
        graph = GraphBuilder("product")
        x = graph.input("x", (size, size))
        for step in range(count):
            x = graph.linear(x, size, size, f"product{step}", bias=False)
        graph.output(x, (size, size))
        return graph

    return build


def _convolutions(channels: int, pixels: int, width: int, count: int, std: float) -> Callable[[], GraphBuilder]:
    """Convolutions of width x width pixels, one after another."""
    def build() -> GraphBuilder:
        graph, shape = GraphBuilder("convolutions"), (1, channels, pixels, pixels)
        x = graph.input("x", shape)
        for step in range(count):
            weight = graph.weight(f"conv{step}.weight", channels, channels, width, width, std=std)
            x = graph.op("Conv", x, weight, name=f"conv{step}", pads=[width // 2] * 4)
        graph.output(x, shape)
        return graph

    return build


def _streaming(*kinds: str) -> Callable[[], GraphBuilder]:
    """Element by element over 64 MiB, more than the last-level cache of most machines holds."""
    def build() -> GraphBuilder:
        graph, shape = GraphBuilder("streaming"), (4096, 4096)
        x, y = graph.input("x", shape), graph.input("y", shape)
        for step, kind in enumerate(kinds):
            x = graph.op(kind, *((x, y) if kind in ("Add", "Mul", "Sub", "Max") else (x,)), name=f"{kind}{step}")
        if kinds[0] in ("Relu", "Neg", "Transpose"):
            x = graph.op("Add", x, y, name="last")
        graph.output(x, shape)
        return graph

    return build


def _rows(count: int) -> Callable[[], GraphBuilder]:
    """A few rows times matrices of 256 MiB: each weight is read once for two operations of a row."""
    def build() -> GraphBuilder:
        graph = GraphBuilder("rows")
        x = graph.input("x", (count, 4096))
        x = graph.linear(x, 4096, 8192, "up", bias=False)
        x = graph.linear(x, 8192, 4096, "down", bias=False)
        graph.output(x, (count, 4096))
        return graph

    return build


def _tiny(count: int, *kinds: str) -> Callable[[], GraphBuilder]:
    """A chain of nodes of 8 elements."""
    def build() -> GraphBuilder:
        graph = GraphBuilder("tiny")
        x, y = graph.input("x", (1, 8)), graph.input("y", (1, 8))
        weight = graph.weight("w", 8, 8, std=0.3)
        for step in range(count):
            kind = kinds[step % len(kinds)]
            operands = (x, weight) if kind == "MatMul" else (x, y) if kind in ("Add", "Mul", "Max", "Sub") else (x,)
            x = graph.op(kind, *operands, name=f"{kind}{step}")
        graph.output(x, (1, 8))
        return graph

    return build


def _batched() -> GraphBuilder:
    """Products of two inputs, no weights."""
    graph = GraphBuilder("batched")
    x, y = graph.input("x", (8, 256, 256)), graph.input("y", (8, 256, 256))
    for step in range(4):
        x = graph.op("MatMul", x, y, name=f"product{step}")
    graph.output(x, (8, 256, 256))
    return graph


def _tall() -> GraphBuilder:
    graph = GraphBuilder("tall")
    x = graph.input("x", (2048, 256))
    for step in range(6):
        x = graph.linear(x, 256, 256, f"layer{step}")
    graph.output(x, (2048, 256))
    return graph


def _joined() -> GraphBuilder:
    graph = GraphBuilder("joined")
    x, y = graph.input("x", (4096, 4096)), graph.input("y", (4096, 4096))
    graph.output(graph.op("Concat", x, y, name="join", axis=1), (4096, 8192))
    return graph


def _chosen() -> GraphBuilder:
    graph = GraphBuilder("chosen")
    x, y = graph.input("x", (4096, 4096)), graph.input("y", (4096, 4096))
    larger = graph.op("Greater", x, y, name="larger")
    graph.output(graph.op("Where", larger, x, y, name="choose"), (4096, 4096))
    return graph


def _tiny_convolutions() -> GraphBuilder:
    graph = GraphBuilder("tiny_convolutions")
    x = graph.input("x", (1, 4, 2, 2))
    for step in range(1500):
        weight = graph.weight(f"conv{step}.weight", 4, 4, 1, 1, std=0.5)
        x = graph.op("Conv", x, weight, name=f"conv{step}")
        x = graph.op("Tanh", x, name=f"tanh{step}")
    graph.output(x, (1, 4, 2, 2))
    return graph


def _tiny_norms() -> GraphBuilder:
    graph = GraphBuilder("tiny_norms")
    x = graph.input("x", (1, 16))
    for step in range(1500):
        x = graph.op("Sigmoid", graph.layer_norm(x, 16, f"norm{step}", 1e-5), name=f"sigmoid{step}")
    graph.output(x, (1, 16))
    return graph


SMALL_STEPS = ("steps", "convolutions", "thin")
MODELS: dict[str, tuple[str, Callable[[], GraphBuilder]]] = {
    "gemm": (COMPUTE, _product(1024)), "gemm_stack": (COMPUTE, _product(512, 8)), "steps": (COMPUTE, _product(256, 24)),
    "thin": (COMPUTE, _product(192, 40)), "convolutions": (COMPUTE, _convolutions(64, 56, 3, 4, 0.04)),
    "add": (MEMORY, _streaming("Add")), "passes": (MEMORY, _streaming("Relu", "Neg", "Abs")),
    "mixed_passes": (MEMORY, _streaming("Add", "Relu", "Mul")), "transposed": (MEMORY, _streaming("Transpose", "Relu")),
    "decode": (MEMORY, _rows(1)),
    "tiny_adds": (OVERHEAD, _tiny(3000, "Add", "Mul", "Sub")),
    "tiny_products": (OVERHEAD, _tiny(1500, "MatMul", "Max")),
    "tiny_unary": (OVERHEAD, _tiny(2000, "Neg", "Abs", "Sin")), "tiny_mix": (OVERHEAD, _tiny(2400, "Softmax", "Add")),
}
LEFT_OUT: dict[str, tuple[str, Callable[[], GraphBuilder]]] = {
    "pointwise": (COMPUTE, _convolutions(256, 28, 1, 8, 0.06)),
    "wide_convolution": (COMPUTE, _convolutions(32, 56, 7, 3, 0.025)),
    "batched": (COMPUTE, _batched), "tall": (COMPUTE, _tall),
    "four_rows": (MEMORY, _rows(4)), "joined": (MEMORY, _joined), "chosen": (MEMORY, _chosen),
    "tiny_convolutions": (OVERHEAD, _tiny_convolutions), "tiny_norms": (OVERHEAD, _tiny_norms),
    "tiny_divisions": (OVERHEAD, _tiny(2500, "Mul", "Sqrt", "Abs")),
}


def _written(folder: Path, name: str, build: Callable[[], GraphBuilder]) -> Path:
    path = folder / f"{name}.onnx"
    with path.open("wb") as file:
        write(build(), 0, {"aaco.synthetic_weights": "true"}, file)
    return path


def _zoo_label(model: str, folder: Path) -> str | None:
    """Return the class of the operators that took most of an idle profile; None of a mixture."""
    session, _ = _session(Case(model, None), folder)
    kernels = pq.read_table(session / "profiler/rocprof_kernels.parquet", columns=["kernel_name", "dur_ns"])
    names, times = kernels["kernel_name"].to_pylist(), kernels["dur_ns"].to_numpy()
    share = float(times[np.array([name in PRODUCTS for name in names])].sum() / times.sum())
    print(f"{model:<16} products take {100 * share:.0f} % of its nodes' time", flush=True)
    return COMPUTE if share >= MAJORITY else MEMORY if share <= 1 - MAJORITY else None


def _run(case: Case, folder: Path) -> Answer:
    session, throttled = _session(case, folder)
    case = replace(case, label=None) if case.quota and throttled < BINDING else case
    said = json.loads((session / "metrics/bottleneck.json").read_text())
    budget = json.loads((session / "metrics/cpu_budget.json").read_text())
    shares = {name: 100 * ns / budget["wall_ns"] for name, ns in budget["parts_ns"].items()}
    margins = [abs(item["value"] - item["threshold"]) for item in said["top_evidence"] if item["essential"]]
    answer = Answer(case, said["bottleneck_class"], sum(budget["parts_ns"].values()) == budget["wall_ns"],
                    all(one["gain_pct"] is None or one["gain_pct"] <= one["share_pct"] + 1e-9 for one in
                        said["optimization_priority"] or ()), min(margins, default=0.0))
    condition = "loaded" if case.loaded else f"{case.threads} threads" if case.threads else \
        f"quota {case.quota:g}" if case.quota else "idle"
    print(f"{Path(case.model).stem:<16} {condition:<11} {answer.label:<15} of {case.label or 'a mixture':<15} "
          + ", ".join(f"{name} {share:.0f}" for name, share in shares.items() if share >= 0.5)
          + ("" if answer.right or case.label is None else "  <- " + (said["abstained_because"] or "")), flush=True)
    return answer


def _session(case: Case, folder: Path) -> tuple[Path, float]:
    """Return the folder of the case's session, and the share of the CPUs' time that its quota kept it from running."""
    place = folder / "run"
    (place / "configs").mkdir(parents=True, exist_ok=True)
    threads = f", intra_op_threads: {case.threads}" if case.threads else ""
    (place / "configs/backends.yaml").write_text(
        f"backends:\n  cpu: {{provider: CPUExecutionProvider, extra: cpu, priority: 10{threads}}}\n")
    cpus = sorted(os.sched_getaffinity(0))
    plant = Plant("cpu_runs", 1, quota=case.quota, hogs=tuple(("busy", cpu, 1.0) for cpu in cpus if case.loaded))
    command = [sys.executable, "-m", "aaco", "run", case.model, "--warmup", str(WARMUP), "--iterations",
               str(ITERATIONS), "--budget", str(BUDGET_S), "--sessions-dir", str(place / "sessions"), "--json"]
    with ExitStack() as stack:
        stack.enter_context(hogs(plant))
        group = stack.enter_context(quota(plant, len(cpus)))
        if group:
            command = ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh", *command]
        began = time.monotonic_ns()
        done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False,
                              env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))})
        throttled = _throttled_ns(group) / len(cpus) / (time.monotonic_ns() - began)
    if done.returncode:
        raise OSError(f"{case}: {done.stderr[-2000:]}")
    return (place / "sessions/latest").resolve(), throttled


def _throttled_ns(group: str) -> int:
    """Return what a control group's own account says that its quota took, ns; 0 without a group."""
    fields = Path(group, "cpu.stat").read_text().split() if group else []
    stats = dict(zip(fields[::2], fields[1::2], strict=True))
    return int(stats.get("throttled_time", 1000 * int(stats.get("throttled_usec", 0))))


def verdicts(answers: list[Answer]) -> Iterator[Claim]:
    """Yield the claims over the answers."""
    seen, unseen = ([answer for answer in answers if answer.left_out is left_out] for left_out in (False, True))
    idle = [answer for answer in seen if not answer.case.loaded]
    loaded = [answer for answer in seen if answer.case.loaded]
    for name, some, bar in (("idle or with a planted condition", idle, DECIDED_IDLE),
                            ("beside a busy program on each CPU", loaded, DECIDED_LOADED)):
        yield _share(f"runs on CPUs decided, {name}", sum(answer.decided for answer in some), len(some), bar)
        judged = [answer for answer in some if answer.decided and answer.case.label]
        yield _share(f"of these right, {name}", sum(answer.right for answer in judged), len(judged), RIGHT)
    yield _share("models left out decided, idle and loaded", sum(answer.decided for answer in unseen), len(unseen),
                 DECIDED_IDLE)
    judged = [answer for answer in unseen if answer.decided]
    yield _share("of these right", sum(answer.right for answer in judged), len(judged), RIGHT)
    least = min((answer.margin for answer in judged), default=0.0)
    yield Claim(f"reliability of these classes, margins from {least:.1f} points", "(calibration.CPU_RELIABILITY)",
                f"{sum(answer.right for answer in judged)} of {len(judged)}", None)
    exact, fits = sum(answer.parts_sum for answer in answers), sum(answer.gains_fit for answer in answers)
    yield Claim("parts of the clean wall sum to it, in ns", "all", f"{exact} of {len(answers)}", exact == len(answers))
    yield Claim("no gain beyond the time attributed", "all", f"{fits} of {len(answers)}", fits == len(answers))


def _share(claim: str, count: int, of: int, bar: float) -> Claim:
    low, high = clopper_pearson(count, of)
    return Claim(claim, f">= {100 * bar:.0f} %", f"{count} of {of} [{100 * low:.0f}, {100 * high:.0f}] %",
                 bool(of) and count / of >= bar)


def clopper_pearson(count: int, of: int, level: float = 0.95) -> tuple[float, float]:
    """Return the exact binomial interval of a share (Clopper and Pearson 1934); (0, 1) of nothing."""
    tail = (1 - level) / 2
    low = float(beta.ppf(tail, count, of - count + 1)) if count else 0.0
    high = float(beta.ppf(1 - tail, count + 1, of - count)) if count < of else 1.0
    return low, high
