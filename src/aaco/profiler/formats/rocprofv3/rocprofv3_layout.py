"""The CSV files of rocprofv3: their kinds, recognised by the header alone, and the meaning of their columns.

Headers of ROCm 6.0 to 7.2, of rocprofv3 itself and of `rocpd convert`, which has a Guid column and other capitals:
rocprofiler-sdk, lib/output/generateCSV.cpp and lib/python/rocpd/csv.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
from msgspec import Struct

from aaco.core.tables import INT, NAME, REAL
from aaco.profiler.formats.rocprof_compute import workload_machine
from aaco.profiler.io import csvstream
from aaco.profiler.io.csvstream import Header, Layout

ALIASES = {
    "start_timestamp": "t_start_ns", "end_timestamp": "t_end_ns", "agent_id": "agent",
    "workgroup_size_x": "block_x", "workgroup_size_y": "block_y", "workgroup_size_z": "block_z",
    "workgroup_size": "block_total", "grid_size": "grid_total",
    "grid_size_x": "grid_x", "grid_size_y": "grid_y", "grid_size_z": "grid_z",
    "lds_block_size": "lds_bytes", "group_segment_size": "lds_bytes",
    "scratch_size": "scratch_bytes", "private_segment_size": "scratch_bytes",
    "vgpr_count": "vgpr", "accum_vgpr_count": "agpr", "sgpr_count": "sgpr", "graph_exec_id": "graph_id",
    "source_agent_id": "source", "destination_agent_id": "destination", "allocation_size": "bytes",
    "totaldurationns": "total_ns", "averagens": "mean_ns", "minns": "min_ns", "maxns": "max_ns",
}
TIMES = frozenset({"t_start_ns", "t_end_ns"})
WHEN = {"t_start_ns": INT, "t_end_ns": INT, "correlation_id": INT, "guid": NAME, "process_id": INT, "thread_id": INT}
RUN_ON = {"agent": NAME, "queue_id": INT, "stream_id": INT, "kernel_name": NAME, "dispatch_id": INT}
RESOURCES = {"vgpr": INT, "agpr": INT, "sgpr": INT, "lds_bytes": INT, "scratch_bytes": INT}
SIZES = dict.fromkeys(("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "grid_total", "block_total"), INT)


class CsvFileKind(Struct, frozen=True):
    """A kind of file. record: the kind of its rows; needs: the columns that identify its header."""

    record: str
    needs: frozenset[str]
    columns: Mapping[str, pa.DataType]
    required: frozenset[str] = TIMES
    free: str | None = None

    @property
    def layout(self) -> Layout:
        """Return how its rows are read."""
        return Layout(self.columns, self.required, self.free)


COUNTER = CsvFileKind("counter", frozenset({"kernel_name", "dispatch_id", "counter_name", "counter_value"}),
                      {**WHEN, **RUN_ON, **RESOURCES, **SIZES, "counter_name": NAME, "counter_value": REAL,
                       "replay_pass": INT}, TIMES | {"dispatch_id"}, "kernel_name")
KERNEL = CsvFileKind("kernel", TIMES | {"kind", "agent", "kernel_name"},
                     {**WHEN, **RUN_ON, **RESOURCES, **SIZES, "graph_id": INT, "graph_node_id": INT},
                     free="kernel_name")
CALL = CsvFileKind("call", TIMES | {"domain", "function"}, {**WHEN, "domain": NAME, "function": NAME}, free="function")
COPY = CsvFileKind("copy", TIMES | {"direction", "source", "destination"},
                   {**WHEN, "direction": NAME, "source": NAME, "destination": NAME, "bytes": INT, "stream_id": INT,
                    "queue_id": INT, "graph_id": INT, "graph_node_id": INT})
ALLOCATION = CsvFileKind("allocation", TIMES | {"operation", "address", "bytes"},
                         {**WHEN, "operation": NAME, "agent": NAME, "address": INT, "bytes": INT})
SCRATCH = CsvFileKind("scratch", TIMES | {"operation", "alloc_flags"},
                      {**WHEN, "operation": NAME, "agent": NAME, "bytes": INT})
STATISTIC = CsvFileKind("statistic", frozenset({"name", "calls", "total_ns", "min_ns", "max_ns"}),
                        {"name": NAME, "calls": INT, "total_ns": INT, "min_ns": INT, "max_ns": INT},
                        frozenset({"total_ns"}), "name")
AGENT = CsvFileKind("agent", frozenset({"node_id", "agent_type"}),
                    {"node_id": INT, "logical_node_id": INT, "agent_type": NAME, "cu_count": INT, "name": NAME,
                     "product_name": NAME, "gfx_target_version": INT}, frozenset())
# In the order to read them: devices before what runs on them, kernels before their counters. A header is of the first
# kind whose columns it has, but a counter file has the columns of a kernel trace too.
KINDS = (AGENT, KERNEL, COUNTER, COPY, ALLOCATION, SCRATCH, CALL, STATISTIC)
_MATCH_ORDER = (COUNTER, *KINDS)

# How rocprofv3 names the files of one run: its prefix (a process id, or -o), and what is in the file.
FILE = re.compile(r"(?:(?P<run>.+)_)?(?P<what>(?:kernel|(?:hip|hsa|marker|rccl|rocdecode|rocjpeg)_api|memory_copy|"
                  r"memory_allocation|scratch_memory|regions?|counter_collection|agent_info|domain)"
                  r"(?P<stats>_stats)?(?:_trace)?)\.csv", re.IGNORECASE)
RESULTS = re.compile(r"(?:(?P<run>.+)_)?results\.(?:db|json|pftrace)", re.IGNORECASE)


class CsvSource(Struct, frozen=True):
    """A file with its header and kind."""

    path: Path
    head: Header
    kind: CsvFileKind

    @property
    def subject(self) -> str:
        """Return the subject of its rows or summaries, by its name: kernel, hip_api, ...; empty if the name does not
        state it.
        """
        match = FILE.fullmatch(self.path.name)
        return match["what"].lower().removesuffix("_trace").removesuffix("_stats") if match else ""


def source(path: Path) -> CsvSource | None:
    """Return the file with its kind, or None if it is not a CSV file of rocprofv3, or is rocprof-compute's. Never
    raise.
    """
    head = csvstream.sniff(path, ALIASES)
    kind = next((kind for kind in _MATCH_ORDER if kind.needs <= head.at.keys()), None) if head else None
    return CsvSource(path, head, kind) if head and kind and not workload_machine.in_workload(path) else None


def siblings(path: Path) -> list[CsvSource]:
    """Return the files of rocprofv3 that have the prefix of this one, with this one among them. Never raise."""
    match = FILE.fullmatch(path.name)
    try:
        names = sorted(file.name for file in path.parent.iterdir()) if match else [path.name]
    except OSError:
        names = [path.name]
    paths = [path.with_name(name) for name in names if name == path.name or _is_of_run(name, match)]
    return [csv_source for csv_source in map(source, paths) if csv_source]


def run_of(path: Path) -> tuple[Path, str | None] | None:
    """Return the folder and prefix that identify the run of a rocprofv3 file, by its name; None for other names."""
    match = FILE.fullmatch(path.name) or RESULTS.fullmatch(path.name)
    return (path.parent, match["run"]) if match else None


def _is_of_run(name: str, named: re.Match[str] | None) -> bool:
    match = FILE.fullmatch(name)
    return bool(match and named and match["run"] == named["run"])
