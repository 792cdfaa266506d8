"""How well a run's devices were used, by drivers, without a profiler: GPM's shares, memory, who holds them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aaco.analytics.quality.co_tenants import OTHERS, RunDevices, others
from aaco.analytics.quality.energy import busy, inside
from aaco.core.inputs import MeasuredSpans, phase_ns
from aaco.core.readings import Absent, Estimate
from aaco.core.registry import metric

GPM = "NVML GPM (nvmlGpmMetricsGet), shares over 100 ms and more"
DRIVER = "the driver's telemetry"
OWN_VRAM = "own_vram_bytes"  # of the samples table
PERIOD_NS, USERS_NS = 100_000_000, 1_000_000_000  # a share is of the time before it; that of processes may be so old
FEWEST = 3
PHASES = (None, "warmup", "measurement")  # of a process that is measured; None: it loads the model


@metric(unit="pct", better="none", source=DRIVER,
        formula="mean share of the time in which anything ran, of the run's busy devices")
def device_util_pct(run_devices: RunDevices, measured_spans: MeasuredSpans) -> Estimate:
    """How much of the time the device had work, by its driver, while inferences were measured."""
    worked = busy(run_devices.events, measured_spans)
    rows = _rows(run_devices.events, worked)
    shares = rows.filter(pa.array(inside(rows["t_ns"].to_numpy(), measured_spans)))["gpu_util_pct"].drop_null()
    if len(shares) < FEWEST:
        raise Absent(f"{len(shares)} samples of the device's utilization in the measured time, fewer than {FEWEST}")
    return Estimate(float(pc.mean(shares).as_py()), method=run_devices.of(worked))


@metric(unit="pct", better="higher", formula="mean share of SMs that were busy, of the run's busy devices", source=GPM)
def device_sm_pct(samples: pa.Table, run_devices: RunDevices, measured_spans: MeasuredSpans) -> Estimate:
    """How many of the device's multiprocessors had work, while inferences were measured."""
    return _share(samples, run_devices, measured_spans, "sm_pct")


@metric(unit="pct", better="higher", formula="mean active warps / most that there can be, of the run's busy devices",
        source=GPM)
def device_occupancy_pct(samples: pa.Table, run_devices: RunDevices, measured_spans: MeasuredSpans) -> Estimate:
    """How full the multiprocessors were with warps, while inferences were measured."""
    return _share(samples, run_devices, measured_spans, "occupancy_pct")


@metric(unit="pct", better="higher", source=GPM,
        formula="mean share of the time in which tensor pipes worked, of the run's busy devices")
def device_tensor_pct(samples: pa.Table, run_devices: RunDevices, measured_spans: MeasuredSpans) -> Estimate:
    """How busy the tensor cores were, while inferences were measured."""
    return _share(samples, run_devices, measured_spans, "tensor_pct")


@metric(unit="pct", better="none", formula="mean DRAM traffic / its highest, of the run's busy devices", source=GPM)
def device_dram_pct(samples: pa.Table, run_devices: RunDevices, measured_spans: MeasuredSpans) -> Estimate:
    """How much of the memory's bandwidth was used, while inferences were measured."""
    return _share(samples, run_devices, measured_spans, "dram_pct")


@metric(unit="pct", better="lower", bands=("<5 not shared", ">=5 shared"),
        formula="mean share of the time in which kernels of others ran, of the run's busy devices",
        source="NVML process utilization (nvmlDeviceGetProcessUtilization)")
def device_others_sm_pct(samples: pa.Table, run_devices: RunDevices, measured_spans: MeasuredSpans) -> Estimate:
    """How much of the device's multiprocessors other programs had, while inferences were measured."""
    return _share(others(samples), run_devices, measured_spans, OTHERS, USERS_NS)


@metric(unit="1", better="lower", formula="most processes that held one of the run's busy devices at one sample",
        source=DRIVER)
def device_processes_max(run_devices: RunDevices, measured_spans: MeasuredSpans) -> Estimate:
    """Processes on the busiest device while inferences were measured; more than the program's own share it."""
    worked = busy(run_devices.events, measured_spans)
    rows = _rows(run_devices.events, worked)
    held = rows.filter(pa.array(inside(rows["t_ns"].to_numpy(), measured_spans)))["processes"].drop_null()
    if not len(held):
        raise Absent("the number of processes on the device was not recorded")
    return Estimate(float(pc.max(held).as_py()), method=run_devices.of(worked))


@metric(unit="bytes", better="lower", source=DRIVER,
        formula="most memory in use until the first warm-up inference, of the run's busy devices")
def load_peak_vram_bytes(run_devices: RunDevices, inference_iters: pa.Table, measured_spans: MeasuredSpans) -> Estimate:
    """Device memory that was in use at most while loading, by all programs, as sampled."""
    return _peak(run_devices, inference_iters, measured_spans, None)


@metric(unit="bytes", better="lower", source=DRIVER,
        formula="most memory in use while warming up, of the run's busy devices")
def warmup_peak_vram_bytes(run_devices: RunDevices, inference_iters: pa.Table, measured_spans: MeasuredSpans
                           ) -> Estimate:
    """Device memory that was in use at most while warming up, by all programs, as sampled."""
    return _peak(run_devices, inference_iters, measured_spans, "warmup")


@metric(unit="bytes", better="lower", source=DRIVER,
        formula="most memory in use while inferences were measured, of the run's busy devices")
def measured_peak_vram_bytes(run_devices: RunDevices, inference_iters: pa.Table, measured_spans: MeasuredSpans
                             ) -> Estimate:
    """Device memory that was in use at most while inferences were measured, by all programs, as sampled."""
    return _peak(run_devices, inference_iters, measured_spans, "measurement")


@metric(unit="bytes", better="lower", source=DRIVER,
        formula="most memory in use from loading to the last measured inference, of the run's busy devices")
def peak_vram_bytes(run_devices: RunDevices, inference_iters: pa.Table, measured_spans: MeasuredSpans) -> Estimate:
    """Device memory that was in use at most in the processes that are measured, by all programs, as sampled."""
    return _peak(run_devices, inference_iters, measured_spans, *PHASES)


@metric(unit="pct", better="lower", source=DRIVER, bands=("<=90 room left", ">90 full"),
        formula="most memory in use / memory there is, from loading to the last measured inference, of the run's busy "
                "devices")
def peak_vram_pct(run_devices: RunDevices, inference_iters: pa.Table, measured_spans: MeasuredSpans) -> Estimate:
    """How full the memory of the fullest of the run's devices was, by all programs, as sampled."""
    held, method = _held(run_devices, inference_iters, measured_spans, *PHASES)
    sized = held.filter(pc.greater(held["vram_total_bytes"], 0))
    if not sized.num_rows:
        raise Absent("the device does not tell how much memory it has")
    return Estimate(100 * float(np.max(sized["vram_used_bytes"].to_numpy() / sized["vram_total_bytes"].to_numpy())),
                    method=method)


@metric(unit="bytes", better="lower",
        formula="most memory that the run's processes held of one of its busy devices, from loading to the end of what "
                "is measured",
        source="NVML (nvmlDeviceGetComputeRunningProcesses) or KFD (vram_* of a process)")
def own_peak_vram_bytes(samples: pa.Table, run_devices: RunDevices, measured_spans: MeasuredSpans) -> Estimate:
    """Device memory that the run's own processes had at most, as sampled: others' is not in it, nor a profiler's."""
    worked = _in_use(run_devices, measured_spans)
    held = _rows(samples.filter(pc.equal(samples["name"].cast(pa.string()), OWN_VRAM)), worked)
    held = held.filter(pc.less_equal(held["t_ns"], int(np.max(measured_spans.end))))
    if not held.num_rows:
        raise Absent("the driver does not tell what the run's processes hold of the device's memory")
    return Estimate(float(pc.max(held["value"]).as_py()), method=run_devices.of(worked))


def _share(samples: pa.Table, run_devices: RunDevices, spans: MeasuredSpans, name: str,
           period_ns: int = PERIOD_NS) -> Estimate:
    """Mean of the shares that are wholly of the measured time."""
    whole, worked = MeasuredSpans(spans.start + period_ns, spans.end), busy(run_devices.events, spans)
    rows = _rows(samples.filter(pc.equal(samples["name"].cast(pa.string()), name)), worked)
    values = rows.filter(pa.array(inside(rows["t_ns"].to_numpy(), whole)))["value"].to_numpy()
    if len(values) < FEWEST:
        raise Absent(f"{len(values)} shares of {name} in the measured time, fewer than {FEWEST}: the device does not "
                     "tell them, or was measured too shortly")
    return Estimate(float(values.mean()), method=run_devices.of(worked))


def _peak(run_devices: RunDevices, inference_iters: pa.Table, spans: MeasuredSpans, *phases: str | None) -> Estimate:
    held, method = _held(run_devices, inference_iters, spans, *phases)
    return Estimate(float(pc.max(held["vram_used_bytes"]).as_py()), method=method)


def _held(run_devices: RunDevices, inference_iters: pa.Table, spans: MeasuredSpans, *phases: str | None
          ) -> tuple[pa.Table, str]:
    """Return what the devices that worked had in use in these phases of every process of the session; and which they
    are.
    """
    worked = _in_use(run_devices, spans)
    rows = _rows(run_devices.events, worked)
    known = rows.filter(pc.is_valid(rows["vram_used_bytes"]))
    at, began = known["t_ns"].to_numpy(), 0
    held = np.zeros(len(at), bool)
    for process in np.unique(inference_iters["process"].to_numpy()).tolist():
        rows = inference_iters.filter(pc.equal(inference_iters["process"], process))
        for first, last in (phase_ns(rows, phase, began) for phase in phases):
            held |= (first < last) & (at >= first) & (at <= last)
        began = int(pc.max(rows["t_end_ns"]).as_py())
    if not held.any():
        raise Absent("the device's memory was not sampled in this phase")
    return known.filter(pa.array(held)), run_devices.of(worked)


def _in_use(run_devices: RunDevices, spans: MeasuredSpans) -> list[int]:
    """Return the run's device; of several those that did something until the last measured inference.

    What is measured may be over between two samples, in which memory was in use all the same. Raise Absent.
    """
    if len(run_devices.numbers) == 1:
        return list(run_devices.numbers)
    return busy(run_devices.events, MeasuredSpans(np.zeros(1, np.int64), spans.end.max(keepdims=True)))


def _rows(table: pa.Table, devices: list[int]) -> pa.Table:
    """Rows of these devices with a known time."""
    return table.filter(pc.and_(pc.is_in(table["device_id"], pa.array(devices)), pc.is_valid(table["t_ns"])))
