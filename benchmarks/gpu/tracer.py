"""Our CUPTI tracer on a real GPU: what a launch costs under it, whether it has all of them, and whether its times hold.

Launches are timed in fresh processes, untraced and traced in turns. Kernel times are held against the device's own
events and against torch.profiler; the three-pass run against what it says of itself. Needs nothing but the driver and
CUPTI; what PyTorch and onnxruntime-gpu would show is left open where they are not installed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from aaco import pipeline
from aaco.core import statistics
from aaco.core.config import resolve
from aaco.core.errors import AacoError, Missing
from aaco.profiler import cupti, kineto
from aaco.profiler.capture import Facts
from aaco.profiler.launchers.cupti import environment
from benchmarks.claims import Claim
from benchmarks.gpu._launches import EDGES, PRODUCTS

PROGRAM = Path(__file__).with_name("_launches.py")
REPEATS = 7  # the fewest of which a median has an interval, and one more
BARS = {"kernels": 15, "all": 45}  # % of an untraced launch of PyTorch's
TIMEOUT_S = 120
SHORTEST_US = 100  # of shorter ones an event's own time is no small part
MODELS = (("resnet50", 1), ("resnet50", 32), ("gpt2-tiny", 1))


def claims(captures: Path) -> list[Claim]:
    """Every claim about the tracer."""
    return [*_cost(), *_times(), *_attribution()]


def _cost() -> Iterator[Claim]:
    """Ratios of traced to untraced launches within one round of the three, so that a machine that drifts is no matter.
    """
    spent: dict[str, list[float]] = {"": [], "kernels": [], "all": []}
    launched, recorded, problems, by = 0, 0, set[str](), ""
    for _ in range(REPEATS):
        for mode, found in spent.items():
            said, tables, lost = _run(mode, "launches")
            found.append(float(np.median(said["ns"])))
            by = said["by"]
            if mode:
                launched, recorded = launched + said["launches"], recorded + _most(tables.get("kernels", []))
                problems |= set(lost)
    base = statistics.quantile(np.array(spent[""]), 0.5)
    yield Claim("an untraced launch, host time", "", f"{base.value / 1000:.2f} us, by {by}", None)
    for mode, bar in BARS.items():
        ratio = 100 * (np.array(spent[mode]) / np.array(spent[""]) - 1)
        more = statistics.quantile(ratio, 0.5)
        judged = by != "driver"  # the driver's own launch is a third of PyTorch's: a share of it is another figure
        yield Claim(f"a launch under the tracer, {'kernels only' if mode == 'kernels' else 'with the calls'}",
                    f"<= +{bar} % of one of PyTorch's", f"{more.value:+.1f} % ({_low_high(more)}), "
                    f"{np.median(np.array(spent[mode]) - np.array(spent[''])) / 1000:+.2f} us",
                    more.value <= bar if judged else None)
    yield Claim("launches that the tracer has a kernel of", "all, nothing lost",
                f"{recorded:,} of {launched:,}; {'; '.join(sorted(problems)) or 'nothing lost'}",
                recorded == launched and not problems)


def _times() -> Iterator[Claim]:
    said, tables, _ = _run("kernels", "spins")
    ours = np.array([row for table in tables["kernels"] for row in table["dur_ns"].to_pylist()]) / 1000
    if len(ours) != len(said["us"]) or np.median(ours) < SHORTEST_US:
        yield Claim("kernel times against the device's own events", "median <= 1 %",
                    f"{len(ours)} kernels of {len(said['us'])}, of {np.median(ours):.0f} us", False)
    else:
        apart = 100 * np.abs(ours / np.array(said["us"]) - 1)
        yield Claim("kernel times against the device's own events", "median <= 1 %",
                    f"{np.median(apart):.3f} %, at most {apart.max():.2f} %, of {np.median(ours):.0f} us",
                    bool(np.median(apart) <= 1))
    yield _against_torch()


def _against_torch() -> Claim:
    """The same products under either, medians by size: no two processes of CUPTI's can watch one."""
    what, bar = "kernel times against torch.profiler", "median difference <= 1 %"
    try:
        with tempfile.TemporaryDirectory() as folder:
            trace = Path(folder) / "trace.json"
            _, tables, _ = _run("kernels", "products")
            _run("", "products", str(trace))
            theirs = [item for item in kineto.parse(trace) if not isinstance(item, Facts)]
        medians = [_by_size(tables["kernels"]), _by_size([one for one in theirs if _is(one, "kernels")])]
    except Missing as reason:
        return Claim(what, bar, reason.what, None)
    apart = 100 * np.abs(medians[0] / medians[1] - 1)
    told = ", ".join(f"{edge}: {value:.2f} %" for edge, value in zip(EDGES, apart.tolist(), strict=True))
    return Claim(what, bar, f"{np.median(apart):.2f} % ({told})", bool(np.median(apart) <= 1))


def _by_size(tables: list[pa.Table]) -> np.ndarray:
    """Median time of the last products of each size. Raises Missing where there are others than these."""
    rows = sorted(row for table in tables for row in zip(table["t_start_ns"].to_pylist(), table["dur_ns"].to_pylist(),
                                                         table["kernel_name"].to_pylist(), strict=True))
    times = np.array([lasted for _, lasted, name in rows if "gemm" in name.lower() or "nvjet" in name.lower()], float)
    wanted = len(EDGES) * PRODUCTS
    if len(times) < wanted or len(times) % wanted:
        raise Missing(f"{len(times)} kernels of products where {wanted} were asked for", "")
    return np.asarray(np.median(times[-wanted:].reshape(len(EDGES), PRODUCTS)[:, PRODUCTS // 3:], axis=1))


def _attribution() -> Iterator[Claim]:
    """The three-pass run: every kernel of every inference has its node."""
    for model, batch in MODELS:
        what, bar = f"{model}, batch {batch}: kernels that have their node", "all, by identical sequences"
        with tempfile.TemporaryDirectory() as folder:
            settings = resolve(overrides={"storage": {"sessions_dir": folder}, "profiling": {"calibrate": False}},
                               overridden_by="benchmarks.gpu")
            try:
                found = pipeline.run(pipeline.plan(settings, model, backend="cuda", batch=batch, iterations=100,
                                                   profile_iterations=30), settings)
            except AacoError as error:
                yield Claim(what, bar, error.what, None if isinstance(error, Missing) else False)
                continue
            account = found.explanation.examined["device_passes"]
            if "why_absent" in account:
                yield Claim(what, bar, account["why_absent"], False)
                continue
            timed, same = account["timed"], account["identical"]
            yield Claim(what, bar, f"{account['named']:,} of {timed['kernels']:,}, {same} of {timed['inferences']} "
                                   f"sequences identical, closure {timed['busy_ns'] / account['wall_ns']:.2f}",
                        account["named"] == timed["kernels"] and same == timed["inferences"])


def _run(mode: str, *words: str) -> tuple[dict[str, Any], dict[str, list[pa.Table]], list[str]]:
    """What the program says, its tables by name, and what was lost of them. mode: empty, it is not traced."""
    with tempfile.TemporaryDirectory() as folder:
        plain = {name: value for name, value in os.environ.items() if not name.startswith("AACO_CUPTI_")}
        traced = environment(Path(folder), mode) if mode else {}
        done = subprocess.run([sys.executable, str(PROGRAM), *words], env=plain | traced, capture_output=True,
                              text=True, timeout=TIMEOUT_S, check=False)
        if done.returncode:
            last = (done.stderr.strip() or "it said nothing").splitlines()[-1]
            raise Missing(f"{' '.join(words[:1])} {mode or 'untraced'}: {last}", "nvidia-smi; aaco doctor")
        tables: dict[str, list[pa.Table]] = {}
        problems = list[str]()
        for path in sorted(Path(folder).glob("*.cupti")):
            for item in cupti.parse(path):
                if isinstance(item, Facts):
                    problems += item.problems
                else:
                    tables.setdefault(item.schema.metadata[b"aaco.table"].decode(), []).append(item)
    return json.loads(done.stdout.splitlines()[-1]), tables, problems


def _most(tables: list[pa.Table]) -> int:
    """Executions of the kernel that ran most often: the one that was launched in the rounds."""
    return max(Counter(name for table in tables for name in table["kernel_name"].to_pylist()).values(), default=0)


def _is(table: pa.Table, name: str) -> bool:
    return table.schema.metadata[b"aaco.table"] == name.encode()


def _low_high(found: statistics.Estimate) -> str:
    return f"95 %: {found.low:+.1f} to {found.high:+.1f}" if found.low is not None else "no interval"
