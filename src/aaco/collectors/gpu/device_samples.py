"""Raw samples of single quantities of a device, next to the rows of its sampler: finer in time, or from few devices.

A record is a time, a device, a kind and an amount. The records become the samples table.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from aaco.collectors.recording import RecordFormat
from aaco.core.tables import SAMPLES

# What, and its unit. The order is part of the format: append only.
KINDS = {
    "device_power": "W", "sm_pct": "pct", "occupancy_pct": "pct", "tensor_pct": "pct", "dram_pct": "pct",
    "fp32_pct": "pct", "pcie_received": "MiB/s", "pcie_sent": "MiB/s", "nvlink_received": "MiB/s",
    "nvlink_sent": "MiB/s", "xgmi_read_bytes": "bytes", "xgmi_written_bytes": "bytes", "own_sm_pct": "pct",
    "others_sm_pct": "pct", "own_processes": "1", "own_vram_bytes": "bytes", "package_energy": "J",
    # Errors since the driver was loaded, at the begin and the end; NVIDIA's number of a fault, as it comes.
    "corrected_errors": "1", "uncorrected_errors": "1", "xid": "1",
}
CODES = {kind: code for code, kind in enumerate(KINDS)}
HOST = -1  # in place of a device
PREFIX = "samples-"
FORMAT = RecordFormat("device samples", "aaco run --telemetry", b"AACODEVS", 1,
                      np.dtype([("t_ns", "<i8"), ("device_id", "<i4"), ("kind", "<u4"), ("value", "<f8")]))

Record = tuple[int, int, int, float]


def parse(raw: Path) -> pa.Table:
    """Return the samples of a file, in order, without kinds of a later version and without NaN or infinity.

    Raise BadCapture.
    """
    records: Any = FORMAT.read(raw)
    records = records[(records["kind"] < len(KINDS)) & np.isfinite(records["value"])]
    names, units = np.array(list(KINDS)), np.array(list(KINDS.values()))
    devices = pa.array(records["device_id"].astype(np.int64), mask=records["device_id"] == HOST)
    return SAMPLES.build(t_ns=records["t_ns"], device_id=devices, name=names[records["kind"]],
                         value=records["value"], unit=units[records["kind"]])
