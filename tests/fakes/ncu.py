"""Writes raw pages as Nsight Compute does, for tests: preamble, header, units, a row per kernel. Values are made up."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path

FIXED = ("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size",
         "Device", "CC")
BEFORE = ('==PROF== Connected to process 7 (/bin/prog)\n{"kernel":"matmul","ms":[0.4]}\n'
          "==PROF== Disconnected from process 7\n")
DEVICE = {"device__attribute_display_name": ("", "NVIDIA H200"),
          "device__attribute_multiprocessor_count": ("", "132"),
          "device__attribute_max_gpu_frequency_khz": ("", "1,980,000"),
          "device__attribute_total_memory": ("", "150,109,880,320")}
Metrics = Mapping[str, tuple[str, str]]


def page(kernels: Sequence[tuple[str, Metrics]], block: str = "(256, 1, 1)", grid: str = "(8, 2, 1)") -> str:
    """The table of (kernel name, metric -> (unit, value))."""
    names = list(kernels[0][1])
    lines = [[*FIXED, *names], [""] * len(FIXED) + [kernels[0][1][name][0] for name in names]]
    lines += [[str(number), "7", "prog", "127.0.0.1", kernel, "1", "7", block, grid, "0", "9.0",
               *(metrics[name][1] for name in names)] for number, (kernel, metrics) in enumerate(kernels)]
    out = StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n").writerows(lines)
    return out.getvalue()


def example(path: Path) -> Path:
    """A page of three kernels, with text around it."""
    metrics = {"gpu__time_duration.sum": ("ns", "12,345"), "dram__bytes_read.sum": ("byte", "1,048,576"),
               "launch__registers_per_thread": ("register/thread", "32"),
               "launch__cluster_scheduling_policy": ("", "PolicySpread"),
               "sm__throughput.avg.pct_of_peak_sustained_elapsed": ("%", "12.50"), **DEVICE}
    kernels = [("void add<float, 4>(int, T1)", metrics), ('odd "name", with commas', metrics), ("gemm", metrics)]
    path.write_text(BEFORE + page(kernels))
    return path
