"""How well devices were used, by what their drivers tell without a profiler: GPM's shares, memory, who holds them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aaco.analytics.energy import busy, inside
from aaco.analytics.inputs import Spans, phase_ns
from aaco.analytics.neighbours import OTHERS, others
from aaco.core.readings import Absent
from aaco.core.registry import metric

GPM = "NVML GPM (nvmlGpmMetricsGet), shares over 100 ms and more"
DRIVER = "the driver's telemetry"
PERIOD_NS, USERS_NS = 100_000_000, 1_000_000_000  # a share is of the time before it; that of processes may be so old
FEWEST = 3


@metric(unit="pct", better="higher", formula="mean share of SMs that were busy, of busy devices", source=GPM)
def device_sm_pct(samples: pa.Table, gpu_events: pa.Table, measured_spans: Spans) -> float:
    """How many of the device's multiprocessors had work, while inferences were measured."""
    return _share(samples, gpu_events, measured_spans, "sm_pct")


@metric(unit="pct", better="higher", formula="mean active warps / most that there can be, of busy devices", source=GPM)
def device_occupancy_pct(samples: pa.Table, gpu_events: pa.Table, measured_spans: Spans) -> float:
    """How full the multiprocessors were with warps, while inferences were measured."""
    return _share(samples, gpu_events, measured_spans, "occupancy_pct")


@metric(unit="pct", better="higher", formula="mean share of the time in which tensor pipes worked, of busy devices",
        source=GPM)
def device_tensor_pct(samples: pa.Table, gpu_events: pa.Table, measured_spans: Spans) -> float:
    """How busy the tensor cores were, while inferences were measured."""
    return _share(samples, gpu_events, measured_spans, "tensor_pct")


@metric(unit="pct", better="none", formula="mean DRAM traffic / its highest, of busy devices", source=GPM)
def device_dram_pct(samples: pa.Table, gpu_events: pa.Table, measured_spans: Spans) -> float:
    """How much of the memory's bandwidth was used, while inferences were measured."""
    return _share(samples, gpu_events, measured_spans, "dram_pct")


@metric(unit="pct", better="lower", bands=("<5 ours alone", ">=5 shared"),
        formula="mean share of the time in which kernels of others ran, of busy devices that ours used",
        source="NVML process utilization (nvmlDeviceGetProcessUtilization)")
def device_others_sm_pct(samples: pa.Table, gpu_events: pa.Table, measured_spans: Spans) -> float:
    """How much of the device's multiprocessors processes had that are not ours, while inferences were measured."""
    return _share(others(samples), gpu_events, measured_spans, OTHERS, USERS_NS)


@metric(unit="1", better="lower", formula="most processes that held a busy device at one sample", source=DRIVER)
def device_processes_max(gpu_events: pa.Table, measured_spans: Spans) -> float:
    """Processes on the busiest device while inferences were measured; more than the program's own share it."""
    rows = gpu_events.filter(pc.is_in(gpu_events["device_id"], pa.array(busy(gpu_events, measured_spans))))
    rows = rows.filter(pc.is_valid(rows["t_ns"]))
    held = rows.filter(pa.array(inside(rows["t_ns"].to_numpy(), measured_spans)))["processes"].drop_null()
    if not len(held):
        raise Absent("how many processes hold the device is not told")
    return float(pc.max(held).as_py())


@metric(unit="bytes", better="lower", formula="most memory in use until the first warm-up inference, of busy devices",
        source=DRIVER)
def load_peak_vram_bytes(gpu_events: pa.Table, inference_iters: pa.Table, measured_spans: Spans) -> float:
    """Device memory that was in use at most while loading, by whomever, as sampled."""
    return _memory(gpu_events, inference_iters, measured_spans, None)


@metric(unit="bytes", better="lower", formula="most memory in use while warming up, of busy devices", source=DRIVER)
def warmup_peak_vram_bytes(gpu_events: pa.Table, inference_iters: pa.Table, measured_spans: Spans) -> float:
    """Device memory that was in use at most while warming up, by whomever, as sampled."""
    return _memory(gpu_events, inference_iters, measured_spans, "warmup")


@metric(unit="bytes", better="lower", formula="most memory in use while inferences were measured, of busy devices",
        source=DRIVER)
def measured_peak_vram_bytes(gpu_events: pa.Table, inference_iters: pa.Table, measured_spans: Spans) -> float:
    """Device memory that was in use at most while inferences were measured, by whomever, as sampled."""
    return _memory(gpu_events, inference_iters, measured_spans, "measurement")


def _share(samples: pa.Table, gpu_events: pa.Table, spans: Spans, name: str, period_ns: int = PERIOD_NS) -> float:
    """Mean of the shares that are wholly of the measured time."""
    whole = Spans(spans.start + period_ns, spans.end)
    rows = samples.filter(pc.equal(samples["name"].cast(pa.string()), name))
    rows = rows.filter(pc.is_in(rows["device_id"], pa.array(busy(gpu_events, spans))))
    values = rows.filter(pa.array(inside(rows["t_ns"].to_numpy(), whole)))["value"].to_numpy()
    if len(values) < FEWEST:
        raise Absent(f"{len(values)} shares of {name} in the measured time, fewer than {FEWEST}: the device does not "
                     "tell them, or was measured too shortly")
    return float(values.mean())


def _memory(gpu_events: pa.Table, inference_iters: pa.Table, spans: Spans, phase: str | None) -> float:
    """Of every process of the session, and of the devices that worked the one that had most."""
    worked = gpu_events.filter(pc.is_in(gpu_events["device_id"], pa.array(busy(gpu_events, spans))))
    known = worked.filter(pc.and_(pc.is_valid(worked["t_ns"]), pc.is_valid(worked["vram_used_bytes"])))
    at, used, began = known["t_ns"].to_numpy(), known["vram_used_bytes"].to_numpy(), 0
    held = np.zeros(len(at), bool)
    for process in np.unique(inference_iters["process"].to_numpy()).tolist():
        rows = inference_iters.filter(pc.equal(inference_iters["process"], process))
        first, last = phase_ns(rows, phase, began)
        held |= (first < last) & (at >= first) & (at <= last)
        began = int(pc.max(rows["t_end_ns"]).as_py())
    if not held.any():
        raise Absent("the device's memory was not sampled in this phase")
    return float(used[held].max())
