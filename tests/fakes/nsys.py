"""Writes SQLite exports as Nsight Systems does, for tests.

No export of the tool's own was to be had: the tables are laid out as its documentation and public readers of it
describe them. The rows are made up.
"""

from __future__ import annotations

import sqlite3
from typing import Any

EPOCH = 1_700_000_000_000_000_000
P, Q = (7 << 56 | 100 << 24), (7 << 56 | 200 << 24)  # globalPid of processes 100 and 200
KERNEL = ["start", "end", "deviceId", "contextId", "streamId", "correlationId", "demangledName", "shortName",
          "registersPerThread", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "staticSharedMemory",
          "dynamicSharedMemory", "localMemoryPerThread"]
COPY = ["start", "end", "deviceId", "contextId", "streamId", "correlationId", "bytes", "copyKind", "srcKind", "dstKind"]
NEW = ["globalPid", "graphNodeId"]


def export(path: Any, **tables: Any) -> Any:
    """A database of (columns, rows...) by table; integers unless the column's name ends in text, name or value."""
    strings = ["gemm<float>(int)", "gemm", "cudaLaunchKernel_v7000", "cuLaunchKernel", "step", "read", "copy",
               "cudaMemcpyAsync_ptsz_v7000"]
    words = {"StringIds": (["id", "value"], *enumerate(strings, 1))}
    with sqlite3.connect(path) as connection:
        for name, (columns, *lines) in (words | tables).items():
            kinds = [f'"{column}" {_kind(name, column)}' for column in columns]
            connection.execute(f"CREATE TABLE {name} ({', '.join(kinds)})")
            connection.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(columns))})", lines)
    return path


def _kind(table: str, column: str) -> str:
    if column == "id" and table == "StringIds":
        return "INTEGER PRIMARY KEY"
    return "REAL" if (table, column) == ("GPU_METRICS", "value") else \
        "TEXT" if column in ("value", "name", "text", "metricName") else "INT"


def kernel(start: int, end: int, link: int, *more: Any, stream: int = 7, name: int = 1) -> list[Any]:
    """A row of the table of kernels."""
    return [start, end, 0, 1, stream, link, name, 2, 96, 10, 2, 1, 128, 1, 1, 1024, 512, 16, *more]


def example(path: Any) -> Any:
    """An export of every table that is read, as a version of 2025 writes it."""
    return export(
        path,
        CUPTI_ACTIVITY_KIND_KERNEL=(KERNEL + NEW, kernel(100, 130, 5, P, None), kernel(200, 201, 6, P, 8589934593),
                                    kernel(100, 140, 5, Q, None)),
        CUPTI_ACTIVITY_KIND_MEMCPY=(COPY + NEW, [300, 310, 0, 1, 7, 8, 4096, 1, 1, 2, P, None],
                                    [311, 312, 0, 1, 7, 9, 16, 2, 2, 0, P, None],
                                    [313, 319, 0, 1, 7, 9, 16, 8, 2, 2, P, None]),
        CUPTI_ACTIVITY_KIND_MEMSET=(["start", "end", "deviceId", "streamId", "correlationId", "globalPid", "bytes"],
                                    [320, 321, 0, 7, 11, P, 64]),
        CUPTI_ACTIVITY_KIND_RUNTIME=(["start", "end", "eventClass", "globalTid", "correlationId", "nameId"],
                                     [90, 95, 0, P | 101, 5, 3], [96, 99, 0, P | 101, 6, 4], [80, 95, 0, Q | 201, 5, 3],
                                     [290, 295, 0, P | 101, 8, 8]),
        CUPTI_ACTIVITY_KIND_SYNCHRONIZATION=(["start", "end", "correlationId"], [400, 410, 12], [420, 430, 13]),
        OSRT_API=(["start", "end", "globalTid", "correlationId", "nameId"], [50, 60, P | 101, 0, 6]),
        NVTX_EVENTS=(["start", "end", "eventType", "text", "globalTid", "textId", "domainId"],
                     [10, 500, 59, "iteration 1", P | 101, None, 0], [20, 30, 60, None, P | 101, 5, 0],
                     [25, None, 34, "mark", P | 101, None, 0], [5, None, 75, "a domain", P | 101, None, 0],
                     [40, None, 59, "never ended", P | 101, None, 0]),
        CUDA_GPU_MEMORY_USAGE_EVENTS=(
            ["start", "globalPid", "deviceId", "address", "bytes", "memKind", "memoryOperationType", "correlationId"],
            [70, P, 0, 4096, 1024, 2, 0, 3], [75, P, 0, 4096, 1024, 2, 1, 4]),
        GPU_METRICS=(["timestamp", "typeId", "metricId", "value"], [60, 0x1000100000001, 1, 55.5],
                     [61, 0x1000100000001, 1, None]),
        TARGET_INFO_GPU_METRICS=(["typeId", "metricId", "metricName"], [0x1000100000001, 1, "SM Active"]),
        TARGET_INFO_GPU=(["id", "name", "totalMemory", "smCount", "cuDevice", "pwGpuId", "computeMajor",
                          "computeMinor"],
                         [3, "NVIDIA H200", 150 << 30, 132, 0, 1, 9, 0]),
        TARGET_INFO_SESSION_START_TIME=(["utcEpochNs"], [EPOCH]),
        TARGET_INFO_SYSTEM_ENV=(["name", "value"], ["Hostname", "node7"], ["SECRET_TOKEN", "hunter2"]),
        META_DATA_EXPORT=(["name", "value"], ["EXPORT_PRODUCT_VERSION", "2025.3.1.90"],
                          ["EXPORT_SCHEMA_VERSION", "3.20.1"]))
