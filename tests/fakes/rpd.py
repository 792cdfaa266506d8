"""Writes RPD databases for tests, with the columns of schemas 2 and 3 of rocmProfileData; the rows are made up."""

from __future__ import annotations

import sqlite3
from typing import Any

TABLES = {
    "metadata": "id tag value", "string": "id string", "ustring": "id string",
    "api": "id pid tid start end apiName_id category_id domain_id args_id",
    "op": "id gpuId queueId sequenceId start end description_id opType_id",
    "api_ops": "id api_id op_id",
    "kernelapi": "api_ptr_id stream gridX gridY gridZ workgroupX workgroupY workgroupZ groupSegmentSize "
                 "privateSegmentSize kernelName_id",
    "copyapi": "api_ptr_id stream size width height kind dst src dstDevice srcDevice sync pinned",
    "monitor": "id deviceType deviceId monitorType start end value",
    "counter": "id value op_id name_id",
}
ONLY_IN_3 = {"ustring", "counter", "category_id", "domain_id"}
TEXT = {"string", "tag", "stream", "deviceType", "monitorType", "dst", "src"}


class Trace:
    """A trace to be: rows by table."""

    def __init__(self, schema: int = 2) -> None:
        self.schema = schema
        self.rows: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
        self.add("metadata", id=1, tag="schema_version", value=str(schema))
        self.string("")

    def add(self, table: str, **row: Any) -> None:
        self.rows[table].append(row)

    def string(self, text: str, table: str = "string") -> int:
        known = self.rows[table]
        found = next((row["id"] for row in known if row["string"] == text), None)
        if found is None:
            found = len(known) + 1
            known.append({"id": found, "string": text})
        return found

    def call(self, number: int, name: str, start: Any, end: Any, args: str = "", **known: Any) -> None:
        texts = "ustring" if self.schema == 3 else "string"
        self.add("api", **{"id": number, "pid": 100, "tid": 101, "start": start, "end": end,
                           "apiName_id": self.string(name), "domain_id": self.string("hip"),
                           "args_id": self.string(args, texts)} | known)

    def op(self, number: int, kind: str, start: Any, end: Any, call: int | None = None, text: str = "",
           **known: Any) -> None:
        self.add("op", **{"id": number, "gpuId": 2, "queueId": 5, "sequenceId": 0, "start": start, "end": end,
                          "description_id": self.string(text), "opType_id": self.string(kind)} | known)
        if call is not None:
            self.add("api_ops", id=len(self.rows["api_ops"]) + 1, api_id=call, op_id=number)

    def launch(self, call: int, name: str, grid: tuple[int, int, int], block: tuple[int, int, int],
               **known: Any) -> None:
        sizes = {f"{what}{axis}": size for what, extent in (("grid", grid), ("workgroup", block))
                 for axis, size in zip("XYZ", extent, strict=True)}
        self.add("kernelapi", **{"api_ptr_id": call, "stream": "0x7f10", "groupSegmentSize": 64,
                                 "privateSegmentSize": 8, "kernelName_id": self.string(name)} | sizes | known)

    def write(self, path: Any) -> Any:
        with sqlite3.connect(path) as connection:
            connection.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")
            for table, names in TABLES.items():
                if self.schema == 3 or table not in ONLY_IN_3:
                    columns = [name for name in names.split() if self.schema == 3 or name not in ONLY_IN_3]
                    self._fill(connection, table, columns)
        connection.close()
        return path

    def _fill(self, connection: sqlite3.Connection, table: str, columns: list[str]) -> None:
        kinds = [f'"{name}" {_kind(table, name)}' for name in columns]
        connection.execute(f'CREATE TABLE "rocpd_{table}" ({", ".join(kinds)})')
        marks = ", ".join("?" * len(columns))
        connection.executemany(f'INSERT INTO "rocpd_{table}" VALUES ({marks})',
                               [[row.get(name) for name in columns] for row in self.rows[table]])


def _kind(table: str, name: str) -> str:
    if name == "id":
        return "INTEGER PRIMARY KEY"
    if name == "api_ptr_id":
        return "BIGINT PRIMARY KEY"
    text = name in TEXT or (table in ("monitor", "metadata") and name == "value")
    return "VARCHAR(4096)" if text else "REAL" if (table, name) == ("counter", "value") else "INTEGER"
