"""rocpd, the database that rocprofv3 writes: dispatches, copies, allocations, API regions, counters, samples.

The long tables are streamed as integers and joined in SQL to their events (and, in version 4, timestamps) by row id, in
the order of the file; names, agents, processes and tracks are small and looked up by column. The file's own views are
not used: they are slow, and they drop rows whose references dangle.

rocprofiler's internal correlation id is the event's stack_id: that is `correlation_id` here. It is unique in a process
only; if a file holds several processes, the ids of the n-th are moved by n x 2^44. What the user pushed (event's
correlation_id) is `external_id`. Row keys are row ids, moved in the same way. Times are of CLOCK_BOOTTIME
(rocm-systems, projects/rocprofiler-sdk/source/lib/common/utility.hpp).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from aaco.core.errors import BadCapture
from aaco.core.tables import ALLOCATIONS, API_CALLS, CALL_ARGUMENTS, COPIES, KERNELS
from aaco.profiler.capture import MIXED, TIMED, CaptureFacts
from aaco.profiler.formats import ranks
from aaco.profiler.formats.rocprofv3 import rocpd_counters, rocpd_schema
from aaco.profiler.formats.rocprofv3.rocpd_rows import LONGEST_WORD, RECORDS, RocpdRows, call_names, copy_kinds, domains
from aaco.profiler.formats.rocprofv3.rocpd_schema import RocpdSource
from aaco.profiler.io import sqlite
from aaco.profiler.io.columns import bare, coded, constant
from aaco.profiler.io.record_accounting import RecordAccount, integers, time_columns
from aaco.profiler.io.sqlite import ColumnBatch

FORMAT = "rocpd"
RECORD = "record it with: rocprofv3 --sys-trace --output-format rocpd -- PROGRAM"
LONGEST_ARGUMENT = 4096
VERBS = {"ALLOC": "allocate", "REALLOC": "reallocate"}
REGISTERS = {"vgpr": "arch_vgpr_count", "agpr": "accum_vgpr_count", "sgpr": "sgpr_count"}
SIZES = {**{f"grid_{axis}": f"grid_size_{axis}" for axis in "xyz"},
         **{f"block_{axis}": f"workgroup_size_{axis}" for axis in "xyz"},
         "lds_bytes": "group_segment_size", "scratch_bytes": "private_segment_size", "dispatch_id": "dispatch_id"}


def recognises(path: Path) -> bool:
    """Return whether the file is a SQLite database with rocprofv3's tables (RPD's share the prefix, not these names).
    """
    return any(name.startswith(("rocpd_kernel_dispatch", "rocpd_info_agent", "rocpd_region"))
               for name in sqlite.table_names(path))


def kernel_pass(path: Path) -> str | None:
    """Return what the dispatches were run for: MIXED if any has a counter. Raise BadCapture."""
    with sqlite.opened(path) as database:
        sources = [source for source in rocpd_schema.sources(database) if source.has("kernel_dispatch")]
        if any(rocpd_counters.has_counters(database, source) for source in sources):
            return MIXED
        return TIMED if any(database.value(f"SELECT 1 FROM {source.table('kernel_dispatch')} LIMIT 1")
                            for source in sources) else None


def parse(path: Path) -> Iterator[pa.Table | CaptureFacts]:
    """Yield kernels, copies, allocations, calls with their arguments, counters, samples and facts. Raise BadCapture."""
    with sqlite.opened(path) as database:
        sources = rocpd_schema.sources(database)
        if not sources:
            raise BadCapture(f"{path}: no tables of rocpd in it", RECORD)
        account = RecordAccount("kernel")
        for source in sources:
            rows = RocpdRows(database, source, account, several=len(sources) > 1)
            yield from _kernels(rows)
            yield from _copies(rows)
            yield from _allocations(rows)
            yield from _calls(rows)
            yield from _instants(rows)
            yield from rocpd_counters.counters(rows)
            yield from rocpd_counters.samples(rows)
            _account_side_tables(rows)
        yield _collect_facts(database, sources, account)


def _kernels(rows: RocpdRows) -> Iterator[pa.Table]:
    if not rows.source.has("kernel_dispatch"):
        return
    symbols = rocpd_schema.names(rows.database, rows.source, "info_kernel_symbol", "display_name", "kernel_name")
    symbols = symbols.each(bare)
    columns = {name: rows.reference("info_kernel_symbol", file_name) for name, file_name in REGISTERS.items()}
    query = rows.query("kernel_dispatch", "kernel_id", *SIZES.values())
    for batch, count in rows.timed("kernel_dispatch", query):
        symbol = symbols.rows(batch["kernel_id"])
        rows.account.trouble("kernels name a kernel symbol that is not in the file", int((symbol < 0).sum()))
        yield KERNELS.build(
            kernel_id=rows.keys(batch["row"]), kernel_name=coded(symbol, symbols.names), source=constant(FORMAT, count),
            timed=constant("execution", count), device_id=rows.device(batch["agent_id"], "kernels"),
            **{name: reference.of(batch["kernel_id"])[0] for name, reference in columns.items() if reference},
            **{name: batch[file_name] for name, file_name in SIZES.items()},
            **rows.place(batch, "kernels"), **rows.queue(batch), **rows.linked(batch, "kernels"),
            **time_columns(batch))


def _copies(rows: RocpdRows) -> Iterator[pa.Table]:
    if not rows.source.has("memory_copy"):
        return
    query = rows.query("memory_copy", "name_id", "src_agent_id", "dst_agent_id", "size")
    for batch, count in rows.timed("memory_copy", query):
        source, target = (rows.device(batch[f"{end}_agent_id"], "copies") for end in ("src", "dst"))
        names = rows.strings.of(batch["name_id"])
        yield COPIES.build(
            copy_id=rows.keys(batch["row"]), bytes=batch["size"], source=constant(FORMAT, count),
            kind=copy_kinds(rows, batch, names), src_device=source, dst_device=target,
            device_id=pc.coalesce(target, source), correlation_id=rows.linked(batch, "copies")["correlation_id"],
            **rows.place(batch, "copies"), **rows.queue(batch), **time_columns(batch))


def _allocations(rows: RocpdRows) -> Iterator[pa.Table]:
    if not rows.source.has("memory_allocate"):
        return
    query = rows.query("memory_allocate", "address", "size", words=("type", "level"))
    for batch, _ in rows.timed("memory_allocate", query):
        when, where = time_columns(batch), rows.place(batch, "allocations")
        yield ALLOCATIONS.build(
            t_ns=when["t_start_ns"], dur_ns=when["dur_ns"], bytes=batch["size"], address=batch["address"],
            kind=_allocation_kinds(batch), device_id=rows.device(batch["agent_id"], "allocations"),
            process_id=where["process_id"], thread_id=where["thread_id"],
            correlation_id=rows.linked(batch)["correlation_id"])


def _allocation_kinds(batch: ColumnBatch) -> pa.Array:
    """Return `allocate` or `free` and similar, prefixed `scratch_` or `virtual_` if the memory is not plain."""
    pairs = pc.binary_join_element_wise(*(batch[name].cast(pa.string()) for name in ("level", "type")), "|",
                                        null_handling="replace", null_replacement="").dictionary_encode()
    words = pa.array([_allocation_kind(pair) for pair in pairs.dictionary.to_pylist()], pa.string())
    return coded(pairs.indices.to_numpy(), words)


def _allocation_kind(pair: str) -> str:
    level, _, verb = pair.partition("|")
    return ("" if level in ("", "REAL") else f"{level.lower()}_") + VERBS.get(verb, verb.lower() or "unknown")


def _calls(rows: RocpdRows) -> Iterator[pa.Table]:
    if not rows.source.has("region"):
        return
    query = rows.query("region", "name_id", events=("category_id",), message=True)
    for batch, _ in rows.timed("region", query):
        yield _call_table(rows, batch, batch["name_id"], 0, "regions")
    yield from _arguments(rows, "region")


def _instants(rows: RocpdRows) -> Iterator[pa.Table]:
    """Yield calls that took no time. They are among the samples: those with no value, named by their track."""
    if not rows.source.has("sample"):
        return
    query = rows.query("sample", "name_id", events=("category_id",), message=True, valued=False)
    for batch, _ in rows.timed("sample", query):
        named = batch["name_id"] if rows.source.has("sample", "name_id") else rows.track(batch, "name_id")
        yield _call_table(rows, batch, named, 1, "samples")
    yield from _arguments(rows, "sample")


def _call_table(rows: RocpdRows, batch: ColumnBatch, named: pa.Array, half: int, what: str) -> pa.Table:
    return API_CALLS.build(call_id=rows.keys(batch["row"], half), name=call_names(batch, rows.strings, named),
                           domain=domains(rows, batch), **rows.place(batch, what), **rows.linked(batch),
                           **time_columns(batch))


def _arguments(rows: RocpdRows, kind: str) -> Iterator[pa.Table]:
    """Yield the arguments of calls as JSON objects, built by SQLite."""
    if not rows.source.has("arg", "event_id", "name", "value") or not rows.source.has(kind, "event_id"):
        return
    row, value = rows.row("r", kind), f"CAST(substr(a.value, 1, {LONGEST_ARGUMENT}) AS TEXT)"
    name = f"CAST(substr(coalesce(a.name, ''), 1, {LONGEST_WORD}) AS TEXT)"
    query = (f"SELECT {row}, count(*), sum(coalesce(length(a.value) > {LONGEST_ARGUMENT}, 0)), "
             f"json_group_object({name}, {value}) "
             f"FROM {rows.source.table(kind)} r NOT INDEXED CROSS JOIN {rows.source.table('arg')} a "
             f"ON a.event_id = r.event_id AND {rows.source.where('a', 'arg')} "
             f"WHERE {rows.source.where('r', kind)} GROUP BY {row}")
    kinds = {"row": "int", "count": "int", "cut": "int", "arguments": "text"}
    for batch in rows.database.stream(query, kinds, rows.source.tables["arg"].name):
        row_ids, count, cut = (integers(batch[name]) for name in ("row", "count", "cut"))
        kept = rows.kept(kind, row_ids)
        rows.used["arg"] += int(count.sum())
        rows.account.leave_out("argument", f"its {kind} was left out", int(count[~kept].sum()))
        rows.account.trouble(f"arguments are longer than {LONGEST_ARGUMENT} characters: cut", int(cut[kept].sum()))
        yield CALL_ARGUMENTS.build(call_id=rows.keys(batch["row"].filter(pa.array(kept)), half=int(kind == "sample")),
                                   arguments=batch["arguments"].filter(pa.array(kept)))


def _account_side_tables(rows: RocpdRows) -> None:
    """Count the records of side tables, and those among them that belong to no record."""
    for kind, reason in (("arg", "no call of the file has its event"), ("pmc_event", rocpd_counters.NO_EVENT)):
        if rows.source.has(kind):
            count = rows.count(kind)
            rows.account.saw(RECORDS[kind], count)
            rows.account.leave_out(RECORDS[kind], reason, max(0, count - rows.used[kind]))


def _collect_facts(database: sqlite.Database, sources: list[RocpdSource], account: RecordAccount) -> CaptureFacts:
    processes = [process for source in sources for process in source.processes]
    hosts = {node["hostname"] for source in sources for node in source.nodes if isinstance(node["hostname"], str)}
    devices = {agent.device for source in sources for agent in source.agents if agent.gpu}
    environments = [rocpd_schema.json_object(process["environment"]) for process in processes]
    placements = [ranks.of(environment) for environment in environments]
    rank, world = placements[0] if len(placements) == 1 else (
        None, max((size for _, size in placements if size), default=None))
    version = _read_version(database)
    return account.facts(
        FORMAT, tuple(database.problems()), tool="rocprofv3", clock="boottime", rank=rank, world_size=world,
        host=hosts.pop() if len(hosts) == 1 else None,
        devices=tuple(sorted(devices, key=lambda device: device.id)),
        metadata={"schema_version": version, "guids": [source.guid for source in sources], "processes": [
            {name: process[name] for name in ("pid", "ppid", "start", "end", "command")} | {"environment": environment}
            for process, environment in zip(processes, environments, strict=True)]})


def _read_version(database: sqlite.Database) -> str | None:
    for name, table in database.tables.items():
        if name.startswith("rocpd_metadata") and "tag" in table and "value" in table:
            version = database.value(f"SELECT value FROM {sqlite.quoted(name)} WHERE tag = 'schema_version' LIMIT 1")
            if version is not None:
                return str(version)[:64]
    return None
