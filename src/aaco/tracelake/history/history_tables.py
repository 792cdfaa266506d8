"""The history's tables: as SQLite holds them, and as Arrow hands them out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from aaco.tracelake.history.history import BranchStart

FORMAT = 1
APPLICATION = 0x4141434F  # "AACO"
KEPT = ("keys", "samples", "documents", "events")

# Compared letter by letter with what a file holds. The last column of every table is the checksum of the others.
SCHEMA = (
    "CREATE TABLE keys (id INTEGER PRIMARY KEY, benchmark TEXT NOT NULL, metric TEXT NOT NULL, machine TEXT NOT NULL, "
    "config TEXT NOT NULL, unit TEXT NOT NULL, direction TEXT NOT NULL, checksum INTEGER NOT NULL)",
    "CREATE TABLE samples (key INTEGER NOT NULL, session_id TEXT NOT NULL, process INTEGER NOT NULL, "
    "value REAL NOT NULL, time_ns INTEGER NOT NULL, iterations INTEGER NOT NULL, commit_id TEXT, branch TEXT, "
    "environment TEXT, source TEXT NOT NULL, checksum INTEGER NOT NULL, "
    "PRIMARY KEY (key, session_id, process)) WITHOUT ROWID",
    "CREATE TABLE documents (session_id TEXT PRIMARY KEY, document TEXT NOT NULL, checksum INTEGER NOT NULL) "
    "WITHOUT ROWID",
    "CREATE TABLE events (id INTEGER PRIMARY KEY, time_ns INTEGER NOT NULL, kind TEXT NOT NULL, name TEXT, "
    "session_id TEXT, key INTEGER, author TEXT, text TEXT, checksum INTEGER NOT NULL)",
    *(f"CREATE TRIGGER {table}_{action.lower()} BEFORE {action} ON {table} "
      "BEGIN SELECT raise(ABORT, 'the history is only added to'); END"
      for table in KEPT for action in ("UPDATE", "DELETE")),
)

SAMPLES = pa.schema([("session_id", pa.string()), ("process", pa.int64()), ("value", pa.float64()),
                     ("time_ns", pa.int64()), ("commit", pa.string()), ("branch", pa.string()),
                     ("environment", pa.string()), ("iterations", pa.int64()), ("source", pa.string())])
SESSIONS = pa.schema([("session_id", pa.string()), ("time_ns", pa.int64()), ("commit", pa.string()),
                      ("branch", pa.string()), ("environment", pa.string()), ("processes", pa.int64()),
                      ("median", pa.float64()), ("log_sd", pa.float64())])
_IN_SQL = ("key", "session_id", "process", "value", "time_ns", "iterations", "commit", "branch", "environment",
           "source")


def samples(rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    """Rows of the table `samples`, checksums left out, as SAMPLES."""
    columns = dict(zip(_IN_SQL, zip(*rows, strict=True), strict=True)) if rows else dict.fromkeys(_IN_SQL, ())
    return pa.table([pa.array(columns[field.name], field.type) for field in SAMPLES], schema=SAMPLES)


def sessions(table: pa.Table) -> pa.Table:
    """SAMPLES as SESSIONS, in time order: one row a session, at the time of its first process.

    median: of its processes' values. log_sd: the standard deviation of their logarithms; null for one process, and
    where a value has no logarithm.
    """
    if not table.num_rows:
        return SESSIONS.empty_table()
    group = pc.dictionary_encode(table["session_id"]).combine_chunks().indices.to_numpy()  # in order of first rows
    value = table["value"].to_numpy()
    order = np.lexsort((value, group))
    sizes = np.bincount(group)
    starts = np.cumsum(sizes) - sizes
    ranked = value[order]
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.log(ranked)
        off = logs - np.repeat(np.add.reduceat(logs, starts) / sizes, sizes)
        spread = np.sqrt(np.add.reduceat(off * off, starts) / (sizes - 1))
    firsts = table.take(np.unique(group, return_index=True)[1])
    return pa.table({
        **{name: firsts[name] for name in ("session_id", "time_ns", "commit", "branch", "environment")},
        "processes": sizes, "median": (ranked[starts + (sizes - 1) // 2] + ranked[starts + sizes // 2]) / 2,
        "log_sd": pa.array(spread, mask=~np.isfinite(spread))}, schema=SESSIONS)


def of_branch(table: pa.Table, branch: str, start: BranchStart | None) -> pa.Table:
    """The samples of a branch and, where its start is known, those of its parent up to the start's commit.

    If the commit of a start was never measured, the branch has its own samples only.
    """
    is_own = pc.fill_null(pc.equal(table["branch"], branch), False)
    if start is None:
        return table.filter(is_own)
    others = pc.invert(is_own) if start.parent is None else pc.fill_null(pc.equal(table["branch"], start.parent), False)
    at_start = table.filter(pc.and_(others, pc.fill_null(pc.equal(table["commit"], start.commit), False)))
    if not at_start.num_rows:
        return table.filter(is_own)
    line = at_start["branch"][-1].as_py()
    of_line = pc.fill_null(pc.equal(table["branch"], line), False) if line else pc.is_null(table["branch"])
    leads_there = pc.or_(pc.less_equal(table["time_ns"], pc.min(at_start["time_ns"])),
                         pc.fill_null(pc.equal(table["commit"], start.commit), False))  # measured again later, too
    return table.filter(pc.or_(is_own, pc.and_(of_line, leads_there)))
