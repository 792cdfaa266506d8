"""The CSV files of rocprofv3: their kinds, told by the header alone, and what their columns are to us.

Headers of ROCm 6.0 to 7.2, of rocprofv3 itself and of `rocpd convert`, which has a Guid column and other capitals:
rocprofiler-sdk, lib/output/generateCSV.cpp and lib/python/rocpd/csv.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from aaco.core.tables import INT, NAME, REAL
from aaco.profiler import csvstream, workload_machine
from aaco.profiler.csvstream import Header, Layout

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


@dataclass(frozen=True)
class Kind:
    """A kind of file. record: what a row of it is; needs: the columns by which its header is known."""

    record: str
    needs: frozenset[str]
    columns: Mapping[str, pa.DataType]
    required: frozenset[str] = TIMES
    free: str | None = None

    @property
    def layout(self) -> Layout:
        """How its rows are read."""
        return Layout(self.columns, self.required, self.free)


COUNTER = Kind("counter", frozenset({"kernel_name", "dispatch_id", "counter_name", "counter_value"}),
               {**WHEN, **RUN_ON, **RESOURCES, **SIZES, "counter_name": NAME, "counter_value": REAL,
                "replay_pass": INT}, TIMES | {"dispatch_id"}, "kernel_name")
KERNEL = Kind("kernel", TIMES | {"kind", "agent", "kernel_name"},
              {**WHEN, **RUN_ON, **RESOURCES, **SIZES, "graph_id": INT, "graph_node_id": INT}, free="kernel_name")
CALL = Kind("call", TIMES | {"domain", "function"}, {**WHEN, "domain": NAME, "function": NAME}, free="function")
COPY = Kind("copy", TIMES | {"direction", "source", "destination"},
            {**WHEN, "direction": NAME, "source": NAME, "destination": NAME, "bytes": INT, "stream_id": INT,
             "queue_id": INT, "graph_id": INT, "graph_node_id": INT})
ALLOCATION = Kind("allocation", TIMES | {"operation", "address", "bytes"},
                  {**WHEN, "operation": NAME, "agent": NAME, "address": INT, "bytes": INT})
SCRATCH = Kind("scratch", TIMES | {"operation", "alloc_flags"},
               {**WHEN, "operation": NAME, "agent": NAME, "bytes": INT})
STATISTIC = Kind("statistic", frozenset({"name", "calls", "total_ns", "min_ns", "max_ns"}),
                 {"name": NAME, "calls": INT, "total_ns": INT, "min_ns": INT, "max_ns": INT},
                 frozenset({"total_ns"}), "name")
AGENT = Kind("agent", frozenset({"node_id", "agent_type"}),
             {"node_id": INT, "logical_node_id": INT, "agent_type": NAME, "cu_count": INT, "name": NAME,
              "product_name": NAME, "gfx_target_version": INT}, frozenset())
# In the order to read them: devices before what runs on them, kernels before their counters. A header is of the first
# kind whose columns it has, but a counter file has the columns of a kernel trace too.
KINDS = (AGENT, KERNEL, COUNTER, COPY, ALLOCATION, SCRATCH, CALL, STATISTIC)
_TOLD = (COUNTER, *KINDS)

# How rocprofv3 names the files of one run: its prefix (a process id, or -o), and what is in the file.
FILE = re.compile(r"(?:(?P<run>.+)_)?(?P<what>(?:kernel|(?:hip|hsa|marker|rccl|rocdecode|rocjpeg)_api|memory_copy|"
                  r"memory_allocation|scratch_memory|regions?|counter_collection|agent_info|domain)"
                  r"(?P<stats>_stats)?(?:_trace)?)\.csv", re.IGNORECASE)
RESULTS = re.compile(r"(?:(?P<run>.+)_)?results\.(?:db|json|pftrace)", re.IGNORECASE)


@dataclass(frozen=True)
class Source:
    """A file with its header and kind."""

    path: Path
    head: Header = field(repr=False)
    kind: Kind

    @property
    def subject(self) -> str:
        """What its rows or summaries are of, by its name: kernel, hip_api, ...; empty where the name does not say."""
        named = FILE.fullmatch(self.path.name)
        return named["what"].lower().removesuffix("_trace").removesuffix("_stats") if named else ""


def source(path: Path) -> Source | None:
    """The file with its kind, or None where it is no CSV file of rocprofv3, or rocprof-compute's. Never raises."""
    head = csvstream.sniff(path, ALIASES)
    kind = next((kind for kind in _TOLD if kind.needs <= head.at.keys()), None) if head else None
    return Source(path, head, kind) if head and kind and not workload_machine.in_workload(path) else None


def siblings(path: Path) -> list[Source]:
    """The files that bear the prefix of this one and are of rocprofv3, this one among them. Never raises."""
    named = FILE.fullmatch(path.name)
    try:
        names = sorted(each.name for each in path.parent.iterdir()) if named else [path.name]
    except OSError:
        names = [path.name]
    alike = [path.with_name(name) for name in names if name == path.name or _of_run(name, named)]
    return [found for found in map(source, alike) if found]


def run_of(path: Path) -> tuple[Path, str | None] | None:
    """The folder and prefix that tell the run a file of rocprofv3 is of, by its name; None for other names."""
    named = FILE.fullmatch(path.name) or RESULTS.fullmatch(path.name)
    return (path.parent, named["run"]) if named else None


def _of_run(name: str, named: re.Match[str] | None) -> bool:
    other = FILE.fullmatch(name)
    return bool(other and named and other["run"] == named["run"])
