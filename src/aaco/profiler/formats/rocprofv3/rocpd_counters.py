"""rocpd's counter values: those of dispatches become counters, those of samples become samples."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from aaco.core.tables import COUNTERS, SAMPLES
from aaco.core.untimed import NOT_TIMED
from aaco.profiler.formats.rocprofv3 import rocpd_schema
from aaco.profiler.formats.rocprofv3.rocpd_rows import RECORDS, RocpdRows
from aaco.profiler.formats.rocprofv3.rocpd_schema import RocpdSource
from aaco.profiler.io.columns import coded
from aaco.profiler.io.names import NamesById
from aaco.profiler.io.record_accounting import ABSENT, LATEST_NS, integers
from aaco.profiler.io.sqlite import ColumnBatch, Database

KIND = "pmc_event"
NO_EVENT = "no kernel or sample of the file has its event"
NO_VALUE = "it has no value"
NO_COUNTER = "its counter is not in the file"
ADDED = "added to the kernel's other values of the same counter"


def has_counters(database: Database, source: RocpdSource) -> bool:
    """Return whether any dispatch has a counter."""
    if not source.has(KIND, "event_id") or not source.has("kernel_dispatch", "event_id"):
        return False
    return bool(database.value(
        f"SELECT 1 FROM {source.table(KIND)} WHERE event_id IN (SELECT event_id FROM "
        f"{source.table('kernel_dispatch')}) LIMIT 1"))


def counters(rows: RocpdRows) -> Iterator[pa.Table]:
    """Yield the counters of each dispatch.

    A counter that is kept per channel or XCD has a record for each, which the schema does not distinguish: they are
    added up, as rocprofv3's own reports do. The records of one dispatch are consecutive in the query's result.
    """
    names = rocpd_schema.names(rows.database, rows.source, "info_pmc", "name", "symbol")
    pending = np.empty((0, 2), np.int64), np.empty(0)
    for keys, values in _read_values(rows, names):
        keys, values = np.concatenate((pending[0], keys)), np.concatenate((pending[1], values))
        complete = int(np.searchsorted(keys[:, 0] == keys[-1, 0], True)) if len(keys) else 0
        pending = keys[complete:], values[complete:]
        yield from _counter_table(rows, names, keys[:complete], values[:complete])
    yield from _counter_table(rows, names, *pending)


def _read_values(rows: RocpdRows, names: NamesById) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the dispatch row and the counter of each value, shape (n, 2), and the values."""
    if not rows.source.has(KIND, "event_id", "pmc_id", "value") or not rows.source.has("kernel_dispatch", "event_id"):
        return
    query = (f"SELECT {rows.row('k', 'kernel_dispatch')}, p.pmc_id, p.value "
             f"FROM {rows.source.table('kernel_dispatch')} k NOT INDEXED CROSS JOIN {rows.source.table(KIND)} p "
             f"ON p.event_id = k.event_id AND {rows.source.where('p', KIND)} "
             f"WHERE {rows.source.where('k', 'kernel_dispatch')}")
    kinds = {"row": "int", "pmc": "int", "value": "real"}
    for batch in rows.database.stream(query, kinds, rows.source.tables[KIND].name):
        rows.used[KIND] += batch.num_rows
        row, counter = integers(batch["row"]), names.rows(batch["pmc"])
        kept = rows.kept("kernel_dispatch", row)
        rows.account.leave_out(RECORDS[KIND], "its kernel was left out", int((~kept).sum()))
        good = kept & _usable_values(rows, batch["value"], counter, kept)
        values = batch["value"].to_numpy(zero_copy_only=False)
        yield np.stack((row[good], counter[good]), axis=1), values[good]


def _usable_values(rows: RocpdRows, value: pa.Array, counter: np.ndarray, among: np.ndarray) -> np.ndarray:
    absent = among & value.is_null().to_numpy(zero_copy_only=False)
    nameless = among & ~absent & (counter < 0)
    rows.account.leave_out(RECORDS[KIND], NO_VALUE, int(absent.sum()))
    rows.account.leave_out(RECORDS[KIND], NO_COUNTER, int(nameless.sum()))
    return among & ~absent & ~nameless


def _counter_table(rows: RocpdRows, names: NamesById, keys: np.ndarray, values: np.ndarray) -> Iterator[pa.Table]:
    if not len(keys):
        return
    groups, group_of_row = np.unique(keys, axis=0, return_inverse=True)
    rows.account.leave_out(RECORDS[KIND], ADDED, len(keys) - len(groups))
    sums = np.zeros(len(groups))
    np.add.at(sums, group_of_row, values)
    yield COUNTERS.build(kernel_id=rows.keys(pa.array(groups[:, 0])), counter=coded(groups[:, 1], names.names),
                         value=sums)


def samples(rows: RocpdRows) -> Iterator[pa.Table]:
    """Yield values sampled over time: memory, power, clocks, as rocprofiler-systems records them."""
    if not rows.source.has(KIND, "event_id", "pmc_id", "value") or not rows.source.has("sample", "event_id"):
        return
    names = rocpd_schema.names(rows.database, rows.source, "info_pmc", "name", "symbol")
    units = rocpd_schema.names(rows.database, rows.source, "info_pmc", "units")
    agents = rows.reference("info_pmc", "agent_id")
    for batch in _read_samples(rows):
        rows.used[KIND] += batch.count
        time, counter = integers(batch["start"]), names.rows(batch["pmc"])
        timed = (time != ABSENT) & (time >= 0) & (time <= LATEST_NS)
        rows.account.leave_out(RECORDS[KIND], NOT_TIMED, int((~timed).sum()))
        good = pa.array(_usable_values(rows, batch["value"], counter, timed))
        agent = agents.of(batch["pmc"])[0] if agents else batch["agent_id"]
        table = SAMPLES.build(
            t_ns=time, name=coded(counter, names.names), value=batch["value"],
            unit=units.of(batch["pmc"]), device_id=rows.device(agent, "samples"),
            process_id=rows.place(batch, "samples")["process_id"])
        yield table.filter(good)


def _read_samples(rows: RocpdRows) -> Iterator[ColumnBatch]:
    columns, joins = dict[str, str](), list[str]()
    rows.choose_times("sample", columns, joins)
    query = (f"SELECT {columns['start']}, k.track_id, p.pmc_id, p.value "
             f"FROM {rows.source.table('sample')} k NOT INDEXED {' '.join(joins)} "
             f"CROSS JOIN {rows.source.table(KIND)} p ON p.event_id = k.event_id "
             f"AND {rows.source.where('p', KIND)} WHERE {rows.source.where('k', 'sample')}")
    kinds = {"start": "int", "track_id": "int", "pmc": "int", "value": "real"}
    for batch in rows.database.batches(query, kinds, rows.source.tables[KIND].name):
        batch["pid"], batch["tid"] = rows.track(batch, "pid"), rows.track(batch, "tid")
        yield batch
