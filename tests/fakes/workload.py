"""Workload folders of rocprof-compute, of any size, in the shapes its versions write."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

NAME = "vecCopy(double*, int) [clone .kd]"
SYSINFO = {"workload_name": "w", "command": "./prog --token=hunter2", "version": "2", "hostname": "node7",
           "rocm_version": "6.2.0", "gpu_model": "MI300X_A1", "gpu_arch": "gfx942", "gpu_l1": "32", "gpu_l2": "4096",
           "cu_per_gpu": "304", "simd_per_cu": "4", "max_sclk": "2100", "max_mclk": "", "compute_partition": "SPX"}
COMMON = ("Dispatch_ID", "GPU_ID", "Grid_Size", "Workgroup_Size", "LDS_Per_Workgroup", "Scratch_Per_Workitem",
          "Arch_VGPR", "Accum_VGPR", "SGPR", "Wave_Size", "Kernel_Name")
TIMES = ("Start_Timestamp", "End_Timestamp")


def table(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> Path:
    """One CSV file."""
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def dispatch(number: int, kernel: str = NAME, grid: int = 1024) -> tuple[Any, ...]:
    """The columns that every file of a workload has."""
    return (number, 2, grid, 256, 0, 0, 4, 4, 16, 64, kernel)


def write(folder: Path, counts: Sequence[Sequence[Sequence[Any]]], names: Sequence[Sequence[str]],
          times: Sequence[tuple[Any, Any]], sysinfo: dict[str, str] | None = None) -> Path:
    """A folder with a joined file: counts[dispatch][pass][counter] of names[pass][counter]; its path."""
    folder.mkdir(parents=True, exist_ok=True)
    said = SYSINFO if sysinfo is None else sysinfo
    table(folder / "sysinfo.csv", list(said), [list(said.values())])
    header = [*COMMON, *names[0]]
    for number, columns in enumerate(names[1:], start=1):
        header += [f"Wave_Size_{number}", *columns]
    rows = []
    for number, passes in enumerate(counts):
        row = [*dispatch(number), *passes[0]]
        for values in passes[1:]:
            row += [64, *values]
        rows.append([*row, *times[number]])
    return table(folder / "pmc_perf.csv", [*header, *TIMES], rows)


def timestamps(folder: Path, times: Sequence[tuple[Any, Any]], name: str = "timestamps.csv", first: int = 0,
               counters: Sequence[str] = (), counts: Sequence[Sequence[Any]] = ()) -> Path:
    """A file of one run: times of each dispatch, and counters where it had some."""
    rows = [[*dispatch(first + number), 77, 78, *(counts[number] if counts else ()), *when]
            for number, when in enumerate(times)]
    return table(folder / name, [*COMMON, "PID", "TID", *counters, *TIMES], rows)


LONG = ("GPU_ID", "Dispatch_ID", "Grid_Size", "Workgroup_Size", "LDS_Per_Workgroup", "Scratch_Per_Workitem",
        "Arch_VGPR", "Accum_VGPR", "SGPR", "Kernel_Name", *TIMES, "Kernel_ID", "Counter_Name", "Counter_Value")


def write_long(folder: Path, executions: Iterable[tuple[int, int, int, dict[str, Any]]]) -> Path:
    """A folder with a joined file of a row per counter: (dispatch, start, end, counters) of each execution in turn."""
    folder.mkdir(parents=True, exist_ok=True)
    table(folder / "sysinfo.csv", list(SYSINFO), [list(SYSINFO.values())])
    rows = [(2, number, 1024, 256, 0, 0, 4, 4, 16, NAME, start, end, 12, name, value)
            for number, start, end, counted in executions for name, value in counted.items()]
    return table(folder / "pmc_perf.csv", LONG, rows)
