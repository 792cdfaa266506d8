"""The profile of one kernel of a session: `rocm-perf profile`, a document of fixed form.

What is not known is null, and `why_absent` says why by the same path: "roofline", "resources.sgpr_per_wave".
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean, median, stdev
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from aaco.analytics.roofline.devices.architectures import ARCHITECTURES
from aaco.analytics.roofline.occupancy import Kernel, occupancy
from aaco.core.config import Optimize
from aaco.core.errors import UsageError
from aaco.core.readings import Absent
from aaco.core.session import Session
from aaco.core.tables.attribution import KERNEL_ROOFLINE
from aaco.core.tables.trace import KERNELS
from aaco.steps import kernel_candidates
from aaco.tracelake import documents, layout, queries, store

VERSION = "1.0"
STABLE, NOISY = 0.05, 0.2  # coefficients of variation up to which a kernel's times are called so
_COLUMNS = ("kernel_name", "device_id", "dur_ns", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "vgpr",
            "agpr", "sgpr", "lds_bytes")
_WORK = ("kernel_name", "dur_ns", "flops", "dram_read_bytes", "dram_written_bytes", "bound", "roof_share")
Parts = dict[str, Any]


def profile(session: Session, name: str) -> Parts:
    """Return the profile of the kernel that NAME names, in full or by a part which no other name has.

    Raise UsageError, BadBundle.
    """
    full = _full_name(session, name)
    rows = _rows(session, full)
    launch = _most_frequent(rows)
    why: dict[str, str] = {}
    gpu = _gpu(session, rows, why)
    document: Parts = {
        "schema_version": VERSION,
        "kernel": {"name": full, "grid": _sides(launch, "grid"), "block": _sides(launch, "block")}, "gpu": gpu,
        **_times(_of_geometry(rows, launch), why), "resources": _resources(launch, why),
        "occupancy": _occupancy(launch, gpu, why), "roofline": _roofline(session, full, why),
        **_path(session, full, why), "att": None, **_bottleneck(session, full, why)}
    why["att"] = "a thread trace is read by aaco instructions, and holds no names of kernels of this session"
    document["headroom_fraction"] = document.pop("headroom")
    return document | {"why_absent": why}


def device_ms(session: Session, name: str) -> float:
    """Return the time that all launches of a kernel took on the device, ms. Raise UsageError, BadBundle."""
    total = pc.sum(_rows(session, _full_name(session, name))["dur_ns"]).as_py()
    if total is None:
        raise UsageError(f"session {session.id} has no times of {name}", "a trace with times: aaco trace -- COMMAND")
    return total / 1e6


def _full_name(session: Session, name: str) -> str:
    if not store.holds(session, KERNELS):
        raise UsageError(f"session {session.id} has no kernels", "a trace with times of kernels: aaco trace -- COMMAND")
    names = queries.names(session, KERNELS, "kernel_name")
    matching = [name] if name in names else [entry for entry in names if name in entry]
    if len(matching) != 1:
        listed = ", ".join(sorted(matching)[:4]) or "aaco kernels lists them"
        raise UsageError(f"session {session.id} has {len(matching) or 'no'} kernels with {name!r} in their name",
                         f"give one name: {listed}")
    return matching[0]


def _rows(session: Session, name: str) -> pa.Table:
    pieces = [batch.filter(pc.equal(batch["kernel_name"].cast(pa.string()), name))
              for batch in queries.batches(session, KERNELS, _COLUMNS)]
    return pa.Table.from_batches([piece.drop_columns("kernel_name") for piece in pieces])


def _most_frequent(rows: pa.Table) -> Mapping[str, Any]:
    """Return the geometry and resources of most launches."""
    names = [name for name in rows.column_names if name not in ("dur_ns", "device_id")]
    counted = rows.group_by(names, use_threads=False).aggregate([([], "count_all")])
    row: Mapping[str, Any] = counted.sort_by([("count_all", "descending")]).slice(0, 1).to_pylist()[0]
    return row


def _of_geometry(rows: pa.Table, launch: Mapping[str, Any]) -> pa.Table:
    """Return the launches of one geometry: other shapes take other times, which is no noise."""
    for name in (f"{what}_{side}" for what in ("grid", "block") for side in "xyz"):
        rows = rows.filter(pc.is_null(rows[name]) if launch[name] is None else pc.equal(rows[name], launch[name]))
    return rows


def _sides(launch: Mapping[str, Any], what: str) -> list[int] | None:
    sides = [launch[f"{what}_{side}"] for side in "xyz"]
    return None if sides[0] is None else [side or 1 for side in sides]


def _times(rows: pa.Table, why: dict[str, str]) -> Parts:
    """Return the median time of a launch, and how the times vary."""
    times = [time / 1e6 for time in rows["dur_ns"].to_pylist() if time is not None]
    if not times:
        why["runtime_ms"] = why["stability"] = "its launches have no times"
        return {"runtime_ms": None, "stability": None}
    mean = fmean(times)
    if len(times) < 2 or not mean:
        why["stability.stddev_ms"] = "it ran once" if len(times) < 2 else "its times are 0"
        spread = variation = kind = None
    else:
        spread = stdev(times)
        variation = spread / mean
        kind = "stable" if variation <= STABLE else "noisy" if variation <= NOISY else "unstable"
    return {"runtime_ms": median(times), "stability": {"runs": len(times), "mean_ms": mean, "stddev_ms": spread,
                                                       "cv": variation, "classification": kind}}


def _gpu(session: Session, rows: pa.Table, why: dict[str, str]) -> Parts:
    """Return the device that ran it, from the roofline's document."""
    ran_on = next(iter(rows["device_id"].drop_null().to_pylist()), None)
    devices = documents.read(session, layout.finding("roofline")).get("devices", ())
    device = next((entry for entry in devices if entry["device_id"] == ran_on), None) or {}
    arch = device.get("arch")
    architecture = ARCHITECTURES.get(arch or "")
    peaks = (device.get("theoretical") or {}).get("flops_per_s") or {}
    wave_size = architecture.registers[0].wave if architecture and architecture.registers else None
    gpu = {"architecture": arch, "wave_size": wave_size, "compute_units": device.get("compute_units"),
           "theoretical_peak_flops": peaks.get("vector_f32")}
    why |= {f"gpu.{key}": "the session does not say on which device it ran" if not device else
            "nothing of the kind is known of the device" for key, fact in gpu.items() if fact is None}
    return gpu


def _resources(launch: Mapping[str, Any], why: dict[str, str]) -> Parts:
    resources = {"vgpr_per_thread": launch["vgpr"], "sgpr_per_wave": launch["sgpr"], "lds_bytes": launch["lds_bytes"]}
    why |= {f"resources.{key}": "the capture does not say" for key, fact in resources.items() if fact is None}
    return resources


def _occupancy(launch: Mapping[str, Any], gpu: Mapping[str, Any], why: dict[str, str]) -> Parts:
    block = _sides(launch, "block")
    threads = None if block is None else block[0] * block[1] * block[2]
    if threads is None:
        why["occupancy.threads_per_block"] = "the capture does not say"
    theoretical = None
    try:
        needs = Kernel(gpu["wave_size"], launch["vgpr"], launch["agpr"], None, launch["sgpr"], launch["lds_bytes"],
                       threads)
        percent = occupancy(gpu["architecture"], needs).pct
        theoretical = None if percent is None else percent / 100
        if theoretical is None:
            why["occupancy.theoretical"] = "the capture does not say how many threads a block has"
    except Absent as reason:
        why["occupancy.theoretical"] = str(reason)
    return {"theoretical": theoretical, "threads_per_block": threads, "wave_size": gpu["wave_size"]}


def _roofline(session: Session, name: str, why: dict[str, str]) -> Parts | None:
    """Return the work of all its launches by counters, and its place."""
    if not store.holds(session, KERNEL_ROOFLINE):
        why["roofline"] = "no counters were recorded"
        return None
    rows = [row for batch in queries.batches(session, KERNEL_ROOFLINE, _WORK)
            for row in batch.filter(pc.equal(batch["kernel_name"].cast(pa.string()), name)).to_pylist()]
    whole = [row for row in rows if None not in (row["flops"], row["dram_read_bytes"], row["dram_written_bytes"])]
    if not whole or not (time_ns := sum(row["dur_ns"] or 0 for row in whole)):
        why["roofline"] = "its operations or its bytes were not counted"
        return None
    flops = sum(row["flops"] for row in whole)
    moved = sum(row["dram_read_bytes"] + row["dram_written_bytes"] for row in whole)
    bounds = [row["bound"] for row in whole if row["bound"]]
    if not moved:
        why["roofline.arithmetic_intensity"] = "it moved no bytes"
    return {"flops": flops / len(whole), "bytes": moved / len(whole),
            "arithmetic_intensity": flops / moved if moved else None, "achieved_gflops": flops / time_ns,
            "achieved_bandwidth_gbps": moved / time_ns,
            "bound": max(set(bounds), key=bounds.count) if bounds else None}


def _path(session: Session, name: str, why: dict[str, str]) -> Parts:
    """Return its part of the critical path on which it is longest, and the share of its time that could be gained."""
    try:
        on_paths = kernel_candidates.of(session, Optimize())
    except UsageError as error:
        why["critical_path"] = why["headroom_fraction"] = error.what
        return {"critical_path": None, "headroom": None}
    of_name = [candidate for candidate in on_paths if candidate.kernel_name == name]
    kernel = max(of_name, key=lambda candidate: candidate.path_ns, default=None)
    if kernel is None:
        why["critical_path"] = why["headroom_fraction"] = "it is on no critical path"
        return {"critical_path": None, "headroom": None}
    longest = max((candidate for candidate in on_paths if candidate.path == kernel.path),
                  key=lambda candidate: candidate.path_ns)
    if kernel.headroom is None:
        why["headroom_fraction"] = kernel.refused["headroom"]
    return {"critical_path": {"critical_path_ns": kernel.path_ns, "dominant_symbol": longest.kernel_name,
                              "fraction": kernel.path_share}, "headroom": kernel.headroom}


def _bottleneck(session: Session, name: str, why: dict[str, str]) -> Parts:
    kernels = documents.read(session, layout.finding("kernel_classes")).get("kernels", ())
    facts = next((kernel for kernel in kernels if kernel["kernel_name"] == name), None)
    if facts is None or facts["class"] is None:
        why["bottleneck"] = "what limits it was not looked for, or no evidence decides it"
        return {"bottleneck": None}
    why["bottleneck.confidence"] = "probabilities are calibrated for sessions, not for single kernels"
    because = [f"{sign['because']} ({sign['signal']} {sign['value']:.3g}, {sign['direction']} {sign['threshold']:g})"
               for sign in facts["evidence"] if sign["holds"] and sign["value"] is not None]
    return {"bottleneck": {"primary": facts["class"], "confidence": None, "reasoning": because}}
