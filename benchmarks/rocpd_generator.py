"""rocpd databases made by rule, with the truth about them: inputs for benchmarks/traces.py, the same for everyone.

    python -m benchmarks.rocpd_generator OUT.db [--kernels 1000000] [--calls]

The tables are those of rocprofv3 (schema 3), filled inside SQLite, with the long texts that a real file repeats in
every row. What the file holds follows from the number of a row; the truth lies beside it (OUT.truth.json).
"""

from __future__ import annotations

import argparse
import json
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np

from tests.fakes.rocpd import GUID, Process, write

BEGIN_NS = 168_853_321_180_888
STEP_NS = 80_000
SHORTEST_NS, SPREAD = 2_000, 65_536
STRIDE = 2_654_435_761  # Knuth's multiplier: spreads durations and kernels over the rows
KERNELS = [f"void kernel_{number}<{'float, ' * number}int>(float const*, int) [clone .kd]" for number in range(37)]
ARGUMENTS = 3

NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {count})"
EVENT = """INSERT INTO "rocpd_event{tail}" {numbers}
SELECT i + 1 + {first}, '{guid}', {category}, i + 1, i + 1, 0, '{{}}', '{{}}', '{{}}' FROM n"""
DISPATCH = """INSERT INTO "rocpd_kernel_dispatch{tail}" {numbers}
SELECT i + 1, '{guid}', 7, 4242, 4242, 1 + i % 4, 1 + (i * {stride}) % {kernels}, i + 1, 1 + i % 2, i % 3,
{begin} + i * {step}, {begin} + i * {step} + {shortest} + (i * {stride}) % {spread}, 0, 512 * (i % 8), 256, 1, 1,
256 * (1 + i % 1000), 1 + i % 4, 1, 1, i + 1 + {first}, '{{}}' FROM n"""
REGION = """INSERT INTO "rocpd_region{tail}" {numbers}
SELECT i + 1, '{guid}', 7, 4242, 4242, {begin} + i * {step} - 30000, {begin} + i * {step} - 20000, {name},
i + 1 + {first}, '{{}}' FROM n"""
ARGUMENT = """INSERT INTO "rocpd_arg{tail}" {numbers}
SELECT i + 1, '{guid}', 1 + i / {arguments} + {first}, i % {arguments}, 'void*', 'argument_' || i % {arguments},
'0x7f' || (i * {stride}) % 1000003, '{{}}' FROM n"""


def write_rocpd(path: Path, kernels: int, calls: bool = False) -> dict[str, Any]:
    """Writes the database and its truth; returns the truth. `calls`: also the calls that launched, with arguments."""
    process, tail = _process(), "_" + GUID.replace("-", "_")
    path.unlink(missing_ok=True)
    write(path, process, indexed=False)
    rule = {"tail": tail, "guid": GUID, "stride": STRIDE, "kernels": len(KERNELS), "begin": BEGIN_NS, "step": STEP_NS,
            "shortest": SHORTEST_NS, "spread": SPREAD, "arguments": ARGUMENTS,
            "name": process.string("hipLaunchKernel")}
    connection = sqlite3.connect(path)
    connection.executescript("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")
    for sql, count, first, category in (
            (EVENT, kernels, 0, "KERNEL_DISPATCH"), (DISPATCH, kernels, 0, ""),
            *([(EVENT, kernels, kernels, "HIP_RUNTIME_API_EXT"), (REGION, kernels, kernels, ""),
               (ARGUMENT, ARGUMENTS * kernels, kernels, "")] if calls else [])):
        connection.execute(sql.format(numbers=NUMBERS.format(count=count), first=first,
                                      category=process.string(category), **rule))
    for table in ("arg", "pmc_event"):
        connection.execute(f'CREATE INDEX "{table}{tail}_i" ON "rocpd_{table}{tail}" (event_id)')
    connection.commit()
    connection.close()
    truth = _truth(kernels, calls)
    path.with_suffix(".truth.json").write_text(json.dumps(truth, indent=1))
    return truth


def _process() -> Process:
    process = Process()
    process.agent(0, gpu=False)
    for number in range(4):
        process.agent(1 + number, index=number)
    for number, name in enumerate(KERNELS):
        process.symbol(1 + number, name)
    for text in ("hipLaunchKernel", "KERNEL_DISPATCH", "HIP_RUNTIME_API_EXT", ""):
        process.string(text)
    return process


def _truth(kernels: int, calls: bool) -> dict[str, Any]:
    rows = np.arange(kernels, dtype=np.int64) * STRIDE
    sums = np.bincount(rows % len(KERNELS), SHORTEST_NS + rows % SPREAD, len(KERNELS)).astype(np.int64)
    by_kernel = {name.removesuffix(" [clone .kd]"): int(ns) for name, ns in zip(KERNELS, sums, strict=True) if ns}
    return {"kernels": kernels, "kernel_ns": sum(by_kernel.values()), "ns_by_kernel": by_kernel,
            "calls": kernels if calls else 0}


def main() -> None:
    """Writes one database."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("out", type=Path)
    options.add_argument("--kernels", type=int, default=1_000_000)
    options.add_argument("--calls", action="store_true")
    given = options.parse_args()
    truth = write_rocpd(given.out, given.kernels, given.calls)
    print(json.dumps({key: value for key, value in truth.items() if key != "ns_by_kernel"}))


if __name__ == "__main__":
    main()
