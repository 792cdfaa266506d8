"""The time of kernels of each compacted file, summed once when files are compacted: most of a file's bytes are kernels.

LAKE/sums/SHA256.arrow   the sums of all files that the manifest says are in it; never changed
They are of all sessions of a file, so they hold as long as no session of the lake is retired and not yet dropped.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterable, Iterator

import duckdb
import pyarrow as pa

from aaco.core.errors import BadBundle, first_line
from aaco.core.tables.spec import INT, TEXT, TableSpec
from aaco.fleet import facts, sql
from aaco.fleet.store import FIX

SUMS = "sums"
KERNEL_SUMS = TableSpec("fleet_kernel_sums", "sums.arrow", "One row per kernel of a compacted file.", {
    "file": (TEXT, "the compacted file"),
    "device": (TEXT, "what the kernel ran on, by name; null: not recorded"),
    "family": (TEXT, "its family"),
    "kernel_name": (TEXT, "its name"),
    "sessions": (INT, "in how many sessions of the file it is among the kernels that took the most time"),
    "calls": (INT, "its calls in these"),
    "total_ns": (INT, "its time in these"),
}, never_null=("file", "sessions"))


def sums_file(sha256: str) -> str:
    """Return where in a lake the sums of this digest are."""
    return f"{SUMS}/{sha256}.arrow"


def of_tables(tables: Iterable[tuple[str, pa.Table]]) -> Iterator[tuple[str, pa.Table]]:
    """Yield the sums of files, by their facts. A file with sums that no column can hold is left out."""
    with sql.connected() as connection:
        connection.register("sums", KERNEL_SUMS.build())
        for path, table in tables:
            connection.register("unsummed", table)
            try:
                rows = connection.sql(sql.text("map/kernel_sums")).to_arrow_table()
            except duckdb.ConversionException:
                continue
            columns = {name: rows[name] for name in rows.column_names}
            yield path, KERNEL_SUMS.build(file=[path] * rows.num_rows, **columns)


def content(tables: Iterable[pa.Table]) -> tuple[bytes, str]:
    """Return the bytes of a file with these sums, and their digest: the same sums give the same bytes. A file of Arrow:
    to read one of Parquet takes 50 ms of imports, which every question would wait for."""
    table = pa.concat_tables([KERNEL_SUMS.build(), *tables])
    ordered = table.sort_by([(name, "ascending") for name in ("file", "device", "family", "kernel_name")])
    target = io.BytesIO()
    with pa.ipc.new_file(target, ordered.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as file:
        file.write_table(ordered.combine_chunks())
    return target.getvalue(), hashlib.sha256(target.getvalue()).hexdigest()


def parse(content: bytes, where: str) -> pa.Table:
    """Return the sums of a file's bytes. Raise BadBundle, also for those that a later version wrote."""
    try:
        table = pa.ipc.open_file(content).read_all()
    except (pa.ArrowException, OSError) as error:
        raise BadBundle(f"{where}: unreadable sums: {first_line(error)}", FIX) from error
    facts.require_version(table.schema.metadata or {}, where, KERNEL_SUMS)
    return KERNEL_SUMS.conform(table, where)
