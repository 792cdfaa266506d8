"""`aaco compare` on a real GPU: a thing with itself, a planted slowdown of the device, and a host that is kept busy.

The slowdown is planted by the model: a chain of equal matrix products, and one of 5 % more of them. What that makes on
the device is measured apart, in processes of one side, as the sum of the kernels within each inference.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import pyarrow.compute as pc
from onnx import TensorProto, helper, numpy_helper

from aaco.core import clocks
from aaco.core.config import Settings
from aaco.core.errors import AacoError, Missing
from aaco.core.tables import KERNELS, PAIRS
from aaco.governance.interleaved.duet_verdict import DEVICE
from aaco.governance.verdict_document import MetricVerdict
from aaco.profiler.formats.nvidia import cupti
from aaco.profiler.launchers.cupti import environment
from aaco.runner import iterations, ort
from aaco.runner.duet import ModelSide
from aaco.tracelake import store
from aaco.tracelake.history.measures import LATENCY
from aaco.workflows.duet import compare, sides
from aaco.workflows.duet.compare import Compared, DuetRequest, DuetSide
from benchmarks.claims import Claim
from benchmarks.gpu import _device

Options = Mapping[str, str]
TOLERANCE_PCT = 2.0
# No controls: a case takes half as long, and the order of creation, which is drawn, is averaged over.
REQUEST = DuetRequest(processes=5, pairs=60, controls=False, tolerance_pct=TOLERANCE_PCT, seed=7)
PRODUCTS, MORE = 40, 2
ROWS, WIDTH = 256, 1024
APART = 2  # processes of either side that tell what was planted
CUDA = {"backend": "cuda"}
# Else ONNX Runtime times convolutions when it loads a model, and two sessions of one process choose different ones.
RESNET = DuetSide("resnet50", options=CUDA | {"option.cudnn_conv_algo_search": "HEURISTIC"})
GRAPH = {"option.enable_cuda_graph": "1"}


def claims(captures: Path) -> Iterator[Claim]:
    """Measures for about 100 seconds; a case that fails has missed, and the others go on."""
    yield from _case("resnet50 with itself", _with_itself)
    yield from _case("more products", lambda settings: _planted(settings, "more products", {}))
    yield from _case("more products, CUDA graphs",
                     lambda settings: _planted(settings, "more products, CUDA graphs", GRAPH))
    yield from _case("resnet50 with itself, a busy host", _busy_host)


def _case(what: str, measured: Callable[[Settings], Iterator[Claim]]) -> Iterator[Claim]:
    """The case's claims; nothing it leaves is known to the next."""
    with tempfile.TemporaryDirectory() as name:
        try:
            yield from measured(_device.settings(sessions_dir=Path(name) / "sessions",
                                                 baselines_dir=Path(name) / "baselines"))
        except AacoError as error:
            yield Claim(what, "it is measured", error.what, None if isinstance(error, Missing) else False)


def _with_itself(settings: Settings) -> Iterator[Claim]:
    compared = compare.compare(RESNET, RESNET, REQUEST, settings)
    found = _of(compared, DEVICE)
    yield Claim("resnet50 with itself: what the device's time says", "no regression", _said(found),
                found.status != "regressed")
    device, host = (_variation(compared, column) for column in ("baseline_device_ms", "baseline_ms"))
    yield Claim("resnet50 with itself: CV of processes' medians, device and host", "the device's is smaller",
                f"{device:.2f} %, {host:.2f} %", device < host)


def _planted(settings: Settings, what: str, options: Options) -> Iterator[Claim]:
    """The interval is to hold what was planted, to within what that itself spread."""
    folder = settings.config.storage.sessions_dir.parent
    both = [DuetSide(str(_chain(folder / f"chain{count}.onnx", count)), options=CUDA | dict(options))
            for count in (PRODUCTS, PRODUCTS + MORE)]
    found = _of(compare.compare(both[0], both[1], REQUEST, settings), DEVICE)
    yield Claim(f"{what}: what the device's time says", "regressed", _said(found), found.status == "regressed")
    spans = [[_apart(side, settings, folder / f"{place}-{each}") for each in range(APART)]
             for place, side in enumerate(both)]
    changes = [100 * (after / before - 1) for before in spans[0] for after in spans[1]]
    low, high = found.ci or (np.nan, np.nan)
    yield Claim(f"{what}: its interval holds what was measured apart", "it holds",
                f"{min(changes):+.2f} to {max(changes):+.2f} %, by count {100 * MORE / PRODUCTS:+.2f} %",
                bool(low <= max(changes) and min(changes) <= high))


def _busy_host(settings: Settings) -> Iterator[Claim]:
    with _hogs():
        compared = compare.compare(RESNET, RESNET, REQUEST, settings)
    found = _of(compared, DEVICE)
    yield Claim("resnet50 with itself, a busy host: what the device's time says", "equivalent", _said(found),
                found.status == "equivalent")
    latency = next((item for item in compared.verdict.metrics if item.metric == LATENCY), None)
    yield Claim("resnet50 with itself, a busy host: what the latency says", "",
                _said(latency) if latency else compared.verdict.metrics_absent[LATENCY], None)


def _of(compared: Compared, metric: str) -> MetricVerdict:
    """The verdict on one metric. Raises AacoError with the reason where it is absent."""
    for item in compared.verdict.metrics:
        if item.metric == metric:
            return item
    raise AacoError(f"{metric} absent: {compared.verdict.metrics_absent[metric]}", "aaco doctor")


def _said(found: MetricVerdict) -> str:
    low, high = found.ci or (np.nan, np.nan)
    return f"{found.status}, {found.effect_pct:+.2f} % ({low:+.2f} to {high:+.2f}) of {found.baseline_value:.4g} ms"


def _variation(compared: Compared, column: str) -> float:
    """The coefficient of variation of the processes' medians, in percent."""
    pairs = store.read(compared.session, PAIRS)
    process, times = pairs["process"].to_numpy(), pairs[column].to_numpy()
    medians = np.array([np.median(times[process == each]) for each in np.unique(process)])
    return float(100 * medians.std(ddof=1) / medians.mean())


def _chain(path: Path, products: int) -> Path:
    """A model of so many products with one matrix, one after the other, each with the one before."""
    values = np.random.default_rng(0).standard_normal((WIDTH, WIDTH)) / WIDTH**0.5  # as long as it came in, it goes out
    nodes = [helper.make_node("MatMul", [f"x{at}", "w"], [f"x{at + 1}"], name=f"product{at}") for at in range(products)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [ROWS, WIDTH]) for name in ("x0", f"x{products}")]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:],
                              [numpy_helper.from_array(values.astype(np.float32), "w")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    return path


def _apart(side: DuetSide, settings: Settings, folder: Path) -> float:
    """The median over inferences of the sum of their kernels, ns, in a process that has this side alone."""
    folder.mkdir()
    prepared = sides.prepare(side, settings, {})
    assert isinstance(prepared.runs, ModelSide)
    ort.traced_pass(folder, prepared.runs.workload, prepared.plan, environment(folder, "kernels"))
    offset = clocks.snapshot()
    sums = []
    kernels = cupti.read(*folder.glob("*.cupti"))[0].get(KERNELS.name, [])
    for _, _, begin, end in iterations.measured(folder / iterations.TRACED).tolist():
        shift = offset.realtime_ns - offset.monotonic_ns
        held = (item.filter((pc.field("t_start_ns") >= begin + shift) & (pc.field("t_end_ns") <= end + shift))
                for item in kernels)
        sums.append(sum(pc.sum(item["dur_ns"]).as_py() or 0 for item in held))
    if not sums or min(sums) == 0:
        raise AacoError("no kernel lies in an inference that was traced apart", "benchmarks.gpu --only tracer")
    return float(np.median(sums))


@contextmanager
def _hogs() -> Iterator[None]:
    """A process on each CPU that never rests."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for one in running:
            one.kill()
            one.wait()
