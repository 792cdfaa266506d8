"""A kernel trace in CSV as rocprofv3 writes it, made by rule, with the truth about it: for benchmarks/traces.py.

    python -m benchmarks.csv_generator OUT_kernel_trace.csv [--kernels 1000000]

Kernels, times and durations follow from the number of a row as in rocpd_generator.py, so both hold the same work. The
truth lies beside it (OUT_kernel_trace.truth.json).
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

from aaco.profiler.io.columns import bare
from benchmarks.rocpd_generator import BEGIN_NS, KERNELS, SHORTEST_NS, SPREAD, STEP_NS, STRIDE

HEADER = ("Kind", "Agent_Id", "Queue_Id", "Stream_Id", "Thread_Id", "Dispatch_Id", "Kernel_Id", "Kernel_Name",
          "Correlation_Id", "Start_Timestamp", "End_Timestamp", "LDS_Block_Size", "Scratch_Size", "VGPR_Count",
          "Accum_VGPR_Count", "SGPR_Count", "Workgroup_Size_X", "Workgroup_Size_Y", "Workgroup_Size_Z", "Grid_Size_X",
          "Grid_Size_Y", "Grid_Size_Z")


def write_csv(path: Path, kernels: int) -> dict[str, Any]:
    """Writes the trace and its truth; returns the truth."""
    spent: Counter[str] = Counter()
    names = [bare(name) for name in KERNELS]
    with path.open("w") as file:
        file.write(",".join(f'"{name}"' for name in HEADER) + "\n")
        for row in range(kernels):
            which = (row * STRIDE) % len(names)
            start, took = BEGIN_NS + row * STEP_NS, SHORTEST_NS + (row * STRIDE) % SPREAD
            spent[names[which]] += took
            file.write(f'"KERNEL_DISPATCH","Agent {1 + row % 4}",{1 + row % 2},{row % 3},4242,{row + 1},{which},'
                       f'"{names[which]}",{row + 1},{start},{start + took},{512 * (row % 8)},0,{8 + row % 64},4,96,'
                       f"256,1,1,{256 * (1 + row % 1000)},{1 + row % 4},1\n")
    truth = {"kernels": kernels, "kernel_ns": sum(spent.values()), "ns_by_kernel": dict(spent)}
    path.with_suffix(".truth.json").write_text(json.dumps(truth, indent=1))
    return truth


def main() -> None:
    """Writes one trace."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("out", type=Path)
    options.add_argument("--kernels", type=int, default=1_000_000)
    given = options.parse_args()
    truth = write_csv(given.out, given.kernels)
    print(f"{truth['kernels']} kernels, {truth['kernel_ns']} ns")


if __name__ == "__main__":
    main()
