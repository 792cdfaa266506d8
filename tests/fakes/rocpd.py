"""Writes rocpd databases for tests: columns of versions 3 and 4, any suffix, several processes, with keys or without.

The columns are those of rocprofiler-sdk's public schema; the rows are made up. `Process` collects a process's records;
`write` puts processes into one file, each into tables of its own or all into the same.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass, field
from typing import Any

SMALL = {
    "metadata": "tag value",
    "string": "id guid string",
    "info_node": "id guid hash machine_id system_name hostname release version hardware_name domain_name",
    "info_process": "id guid nid ppid pid init fini start end command environment extdata",
    "info_thread": "id guid nid ppid pid tid name start end extdata",
    "info_agent": "id guid nid pid type absolute_index logical_index type_index uuid name model_name vendor_name "
                  "product_name user_name extdata",
    "info_queue": "id guid nid pid name extdata",
    "info_stream": "id guid nid pid name extdata",
    "info_pmc": "id guid nid pid agent_id target_arch name symbol description units value_type block extdata",
    "info_kernel_symbol": "id guid nid pid code_object_id kernel_name display_name group_segment_size "
                          "private_segment_size sgpr_count arch_vgpr_count accum_vgpr_count extdata",
}
V3 = SMALL | {
    "track": "id guid nid pid tid name_id extdata",
    "event": "id guid category_id stack_id parent_stack_id correlation_id call_stack line_info extdata",
    "arg": "id guid event_id position type name value extdata",
    "pmc_event": "id guid event_id pmc_id value extdata",
    "region": "id guid nid pid tid start end name_id event_id extdata",
    "sample": "id guid track_id timestamp event_id extdata",
    "kernel_dispatch": "id guid nid pid tid agent_id kernel_id dispatch_id queue_id stream_id start end "
                       "private_segment_size group_segment_size workgroup_size_x workgroup_size_y workgroup_size_z "
                       "grid_size_x grid_size_y grid_size_z region_name_id event_id extdata",
    "memory_copy": "id guid nid pid tid start end name_id dst_agent_id dst_address src_agent_id src_address size "
                   "queue_id stream_id region_name_id event_id extdata",
    "memory_allocate": "id guid nid pid tid agent_id type level start end address size queue_id stream_id event_id "
                       "extdata",
}
V4 = SMALL | {
    "info_category": "id guid name extdata",
    "track": "id guid nid ppid pid tid agent_id queue_id stream_id name_id extdata",
    "timestamp": "id guid value phase track_id",
    "event": "id guid category_id stack_id parent_stack_id correlation_id extdata",
    "arg": V3["arg"],
    "pmc_event": V3["pmc_event"],
    "region": "id guid track_id name_id start_id end_id event_id extdata",
    "sample": "id guid track_id name_id timestamp_id event_id extdata",
    "kernel_dispatch": "id guid track_id kernel_id dispatch_id start_id end_id private_segment_size "
                       "group_segment_size workgroup_size_x workgroup_size_y workgroup_size_z grid_size_x "
                       "grid_size_y grid_size_z region_name_id event_id extdata",
    "memory_copy": "id guid track_id start_id end_id name_id dst_agent_id dst_address src_agent_id src_address size "
                   "region_name_id event_id extdata",
    "memory_allocate": "id guid track_id type level start_id end_id name_id address size region_name_id event_id "
                       "extdata",
}
REAL_COLUMNS = {("pmc_event", "value")}
TEXT_COLUMNS = {"guid", "tag", "value", "string", "type", "level", "name", "extdata", "command", "environment",
                "machine_id", "hostname", "display_name", "kernel_name", "symbol", "units", "product_name"}
GUID = "0000a110-0000-7000-8000-000000000001"
GEMM = "Cijk_Ailk_Bljk(float const*, int)"
PLACE = ("pid", "tid", "agent_id", "queue_id", "stream_id")


@dataclass
class Process:
    """What one process recorded: rows by table, as version 3 has them, plus each long row's event as `_event`."""

    guid: str = GUID
    pid: int = 4242
    first_event: int = 0
    rows: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.add("info_node", id=7, hash=self.pid, machine_id="m1", hostname="host-a")
        self.add("info_process", id=self.pid, nid=7, ppid=1, pid=self.pid, start=0, end=10**9, command="./run it",
                 environment="{}")
        self.thread(self.pid)

    def add(self, table: str, **row: Any) -> dict[str, Any]:
        self.rows.setdefault(table, []).append(row)
        return row

    def thread(self, tid: int) -> None:
        self.add("info_thread", id=tid, nid=7, pid=self.pid, tid=tid)

    def agent(self, number: int, gpu: bool = True, index: int = 0, **known: Any) -> None:
        extdata = {"gfx_target_version": 90402, "cu_count": 304, "name": "gfx942"} | known if gpu else {}
        kind, name, product = ("GPU", "gfx942", "AMD Instinct MI300X") if gpu else ("CPU", "EPYC", "EPYC")
        self.add("info_agent", id=number, nid=7, pid=self.pid, type=kind, absolute_index=number, type_index=index,
                 name=name, product_name=product, extdata=json.dumps(extdata))

    def symbol(self, number: int, display: str | None, **known: Any) -> None:
        self.add("info_kernel_symbol", **{
            "id": number, "nid": 7, "pid": self.pid, "code_object_id": 1, "display_name": display,
            "kernel_name": f"{display}.kd", "arch_vgpr_count": 32, "accum_vgpr_count": 4, "sgpr_count": 96} | known)

    def string(self, text: str) -> int:
        known = self.rows.setdefault("string", [])
        found = next((row["id"] for row in known if row["string"] == text), None)
        if found is None:
            found = len(known) + 1
            known.append({"id": found, "string": text})
        return found

    def event(self, category: str | None, stack: int | None, external: int = 0, **known: Any) -> dict[str, Any]:
        return {"category": category, "stack_id": stack, "parent_stack_id": stack, "correlation_id": external} | known

    def dispatch(self, number: int, start: Any, end: Any, kernel: int = 1, stack: int | None = None,
                 **known: Any) -> None:
        extents = {"workgroup_size": (256, 2, 1), "grid_size": (1024, 4, 1)}
        sizes = {f"{what}_{axis}": size for what, extent in extents.items()
                 for axis, size in zip("xyz", extent, strict=True)}
        self.add("kernel_dispatch", **{
            "id": number, "nid": 7, "pid": self.pid, "tid": self.pid, "agent_id": 1, "kernel_id": kernel,
            "dispatch_id": number, "queue_id": 1, "stream_id": 0, "start": start, "end": end,
            "private_segment_size": 16, "group_segment_size": 512,
            "_event": self.event("KERNEL_DISPATCH", number if stack is None else stack)} | sizes | known)

    def region(self, number: int, name: str, start: Any, end: Any, category: str = "HIP_RUNTIME_API_EXT",
               args: dict[str, str] | None = None, message: str | None = None, **known: Any) -> None:
        extdata = "{}" if message is None else json.dumps({"message": message})
        self.add("region", **{
            "id": number, "nid": 7, "pid": self.pid, "tid": self.pid, "start": start, "end": end,
            "name_id": self.string(name), "_args": args or {},
            "_event": self.event(category, number, extdata=extdata)} | known)

    def copy(self, number: int, start: Any, end: Any, size: int, source: int | None, target: int | None,
             name: str = "MEMORY_COPY_HOST_TO_DEVICE", stack: int = 0, **known: Any) -> None:
        self.add("memory_copy", **{
            "id": number, "nid": 7, "pid": self.pid, "tid": self.pid, "start": start, "end": end, "size": size,
            "name_id": self.string(name), "src_agent_id": source, "dst_agent_id": target, "stream_id": 3,
            "_event": self.event("MEMORY_COPY", stack)} | known)

    def allocate(self, number: int, start: int, size: int, kind: str = "ALLOC", level: str = "REAL",
                 agent: int | None = 1, **known: Any) -> None:
        self.add("memory_allocate", **{
            "id": number, "nid": 7, "pid": self.pid, "tid": self.pid, "agent_id": agent, "type": kind, "level": level,
            "start": start, "end": start + 10, "address": 4096 * number, "size": size,
            "_event": self.event("MEMORY_ALLOCATION", number)} | known)

    def counter(self, number: int, name: str, units: str = "", agent: int = 1) -> None:
        self.add("info_pmc", id=number, nid=7, pid=self.pid, agent_id=agent, target_arch="GPU", name=name, symbol=name,
                 units=units)

    def sample(self, number: int, time: int, track: int, values: dict[int, float] | None = None,
               category: str = "HSA_CORE_API", **known: Any) -> None:
        self.add("sample", **{"id": number, "track_id": track, "timestamp": time, "_values": values or {},
                              "_event": self.event(category, number, **known.pop("event", {}))} | known)

    def track(self, number: int, name: str) -> None:
        self.add("track", id=number, nid=7, pid=self.pid, tid=self.pid, name_id=self.string(name))


def example(guid: str = GUID, pid: int = 4242, first_event: int = 0, base: int = 1000) -> Process:
    """Two dispatches with what called them, two copies, an allocation and its release, counters, a sampled power."""
    made = Process(guid, pid, first_event)
    made.agent(0, gpu=False)
    made.agent(1, index=0)
    made.agent(2, index=1)
    made.symbol(1, GEMM)
    made.symbol(2, None, kernel_name="__amd_rocclr_fillBuffer.kd")
    made.region(10, "hipLaunchKernel", base, base + 50, args={"grid": "{1,2,3}", "stream": '0x"7f\n'})
    made.region(11, "hsa_signal_wait", base + 60, base + 70, category="HSA_CORE_API")
    made.region(12, "roctxRangePushA", base, base + 500, category="MARKER_CORE_RANGE_API", message="step 1")
    made.region(13, "roctxRangePushA", base, base + 400, category="MARKER_CORE_RANGE_API", message="step 2")
    made.region(14, "ncclAllReduce", base, base + 300, category="RCCL_API")
    made.dispatch(1, base + 100, base + 133, stack=10, _values={1: [3.0, 4.0, 5.0], 2: 0.5})
    made.dispatch(2, base + 200, base + 201, kernel=2, stack=11, agent_id=2,
                  _event=made.event("KERNEL_DISPATCH", 11, external=77))
    made.copy(1, base + 10, base + 20, 4096, source=0, target=1, stack=11)
    made.copy(2, base + 30, base + 45, 64, source=2, target=1, name="MEMORY_COPY_DEVICE_TO_DEVICE", stack=14)
    made.allocate(1, base + 5, 1 << 20)
    made.allocate(2, base + 7, 512, kind="FREE", level="SCRATCH", agent=None)
    made.counter(1, "SQ_WAVES")
    made.counter(2, "L2_hit", units="ratio")
    made.counter(3, "power", units="W", agent=2)
    made.track(1, "HSA_CORE_API")
    made.sample(20, base + 80, track=1)
    made.sample(21, base + 90, track=1, values={3: 321.5})
    return made


def write(path: Any, *processes: Process, version: int = 3, suffix: str = "_{}", together: bool = False,
          keyed: bool = True, indexed: bool = True) -> Any:
    """A database at the path. `together` puts every process into the same tables, whose suffix is the first's."""
    with sqlite3.connect(path) as connection:
        connection.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")
        for at, process in enumerate(processes):
            owner = processes[0] if together else process
            tail = suffix.format(owner.guid.replace("-", "_"))
            columns = V4 if version == 4 else V3
            if not (together and at):
                for table, names in columns.items():
                    connection.execute(_create(table, names, tail, keyed))
            for table, rows in _laid_out(process, columns, version).items():
                _insert(connection, f"rocpd_{table}{tail}", columns[table].split(), rows, process.guid)
            if indexed and not (together and at):
                for table in ("arg", "pmc_event"):
                    connection.execute(f'CREATE INDEX "{table}{tail}_i" ON "rocpd_{table}{tail}" (event_id)')
    connection.close()
    return path


def _create(table: str, names: str, tail: str, keyed: bool) -> str:
    return f'CREATE TABLE "rocpd_{table}{tail}" ({", ".join(_column(table, name, keyed) for name in names.split())})'


def _column(table: str, name: str, keyed: bool) -> str:
    if name == "id":
        return '"id" INTEGER PRIMARY KEY' if keyed else '"id" INTEGER'
    kind = "REAL" if (table, name) in REAL_COLUMNS else "TEXT" if name in TEXT_COLUMNS else "BIGINT"
    return f'"{name}" {"BIGINT" if (table, name) == ("timestamp", "value") else kind}'


def _insert(connection: sqlite3.Connection, table: str, columns: list[str], rows: list[dict[str, Any]],
            guid: str) -> None:
    marks = ", ".join("?" * len(columns))
    connection.executemany(f'INSERT INTO "{table}" VALUES ({marks})', [
        [guid if name == "guid" else row.get(name, "{}" if name in ("extdata", "environment") else None)
         for name in columns] for row in rows])


class _Layout:
    """Gives the long rows their events and, in version 4, tracks and timestamps."""

    def __init__(self, process: Process, version: int) -> None:
        self.process, self.version = process, version
        self.made: dict[str, list[dict[str, Any]]] = {"event": [], "arg": [], "pmc_event": [], "timestamp": [],
                                                      "info_category": [], "track": list(process.rows.get("track", []))}
        self.tracks: dict[tuple[Any, ...], int] = {}
        self.base = process.first_event

    def row(self, table: str, row: dict[str, Any]) -> dict[str, Any]:
        event = self.event(row["_event"]) if row.get("_event") else None
        made = {"event_id": event} | row
        for position, (name, value) in enumerate(row.get("_args", {}).items()):
            self.made["arg"].append({"event_id": event, "position": position, "type": "int", "name": name,
                                     "value": value})
        for counter, values in row.get("_values", {}).items():
            for value in values if isinstance(values, list) else [values]:
                self.made["pmc_event"].append({"event_id": event, "pmc_id": counter, "value": value})
        return self.version_4(table, made) if self.version == 4 else made

    def event(self, event: dict[str, Any]) -> int:
        number = self.base + len(self.made["event"]) + 1
        self.made["event"].append({"id": number, "category_id": self.category(event["category"])} | event)
        return number

    def category(self, name: str | None) -> int | None:
        if name is None:
            return None
        if self.version == 3:
            return self.process.string(name)
        known = self.made["info_category"]
        found = next((row["id"] for row in known if row["name"] == name), None)
        if found is None:
            found = 100 + len(known)
            known.append({"id": found, "name": name})
        return found

    def version_4(self, table: str, row: dict[str, Any]) -> dict[str, Any]:
        for name in ("start", "end", "timestamp"):
            if name in row:
                number = self.base + len(self.made["timestamp"]) + 1
                self.made["timestamp"].append({"id": number, "value": row[name]})
                row[f"{name}_id"] = number
        if table == "sample":
            track = next(known for known in self.process.rows["track"] if known["id"] == row["track_id"])
            return {"name_id": track["name_id"]} | row
        place = tuple(row.get(name) for name in PLACE)
        if place not in self.tracks:
            self.tracks[place] = 1000 + len(self.tracks)
            self.made["track"].append({"id": self.tracks[place], "nid": 7} | dict(zip(PLACE, place, strict=True)))
        return row | {"track_id": self.tracks[place]}


def _laid_out(process: Process, columns: dict[str, str], version: int) -> dict[str, list[dict[str, Any]]]:
    layout = _Layout(process, version)
    found = {table: [layout.row(table, row) if table in ("region", "sample", "kernel_dispatch", "memory_copy",
                                                         "memory_allocate") else row for row in rows]
             for table, rows in list(process.rows.items()) if table in columns}
    found["string"] = process.rows.get("string", [])
    for table, rows in layout.made.items():
        if table in columns:
            found[table] = rows if table == "track" else found.get(table, []) + rows
    found.setdefault("metadata", [{"tag": "schema_version", "value": str(version)}])
    return found
