"""What reading traces costs, in CPU seconds (user and system, all threads) and peak resident memory; and it is exact.

    python -m benchmarks.traces [--only WORD] [--runs 3] [--folder DIR] [--ten-million]

The inputs are made by trace_generators.py, rocpd_generator.py and csv_generator.py, with the truth about them;
--folder keeps them for the next time.
Every figure is of a whole process, Python's start and imports included. A table and JSON are printed; the exit code is
1 where a bar is missed or a number differs from the truth. CPU seconds of a shared machine vary by 10 % and more with
what else runs: the smallest of the runs is the cost of the work, and that is what is held against the bar.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from aaco.core.tables import API_CALLS, CALL_ARGUMENTS, COPIES, KERNEL_GROUPS, KERNELS
from aaco.tracelake import layout
from benchmarks import csv_generator, rocpd_generator, trace_generators

TO_TABLES = """
import sys
from pathlib import Path
from aaco.steps import find_captures, import_captures
chosen = find_captures.discover([Path(sys.argv[1])])
reading = import_captures.CaptureReading(chosen)
reading.begin()
import_captures.fill(import_captures.begin(chosen, Path(sys.argv[2]), None, ""), reading)
"""
BREAKDOWN = """
import json, sys
from pathlib import Path
import numpy as np
from aaco.profiler.formats import registry
path, total = Path(sys.argv[1]), {}
for piece in registry.read(path).parse(path):
    if getattr(piece, "schema", None) is not None and piece.schema.metadata[b"aaco.table"] == b"kernels":
        names = piece["kernel_name"].combine_chunks()
        spent = np.bincount(names.indices.to_numpy(), piece["dur_ns"].to_numpy(), len(names.dictionary))
        for name, ns in zip(names.dictionary.to_pylist(), spent.tolist(), strict=True):
            total[name] = total.get(name, 0) + int(ns)
out = Path(sys.argv[2])
out.mkdir(parents=True)
(out / "breakdown.json").write_text(json.dumps({name: ns for name, ns in total.items() if ns}))
"""
# A process starts with the peak of the one it was forked from, so a small one does the forking.
LAUNCHER = """
import json, os, sys, time
start = time.perf_counter()
quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
child = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=quiet)
_, status, used = os.wait4(child, 0)
print(json.dumps([used.ru_utime + used.ru_stime, time.perf_counter() - start, used.ru_maxrss / 1024]))
sys.exit(os.waitstatus_to_exitcode(status))
"""


class Cost(Struct, frozen=True):
    """Of one process."""

    cpu_s: float
    wall_s: float
    peak_mb: float


class Work(Struct, frozen=True):
    """Something to be done with a trace, and what it may cost. `check` says what differs from the truth."""

    name: str
    input: str
    command: Callable[[Path, Path], list[str]]
    cpu_s: float | None = None
    wall_s: float | None = None
    peak_mb: float | None = None
    check: Callable[[Path, dict[str, Any]], list[str]] = lambda folder, truth: []
    needs: str | None = None  # the work whose session it reads
    once: bool = False


def main() -> None:
    """Prints the table and the JSON."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--only", default="", help="only work whose name holds this")
    options.add_argument("--runs", type=int, default=3, help="of each work on small inputs")
    options.add_argument("--folder", type=Path, help="where inputs are kept; by default a temporary folder")
    options.add_argument("--ten-million", action="store_true", help="also 10 M kernels: 9 GB of disk, some minutes")
    given = options.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="aaco-traces-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        rows = [measure(work, folder, given.runs) for work in chosen(given.only, given.ten_million)]
    finally:
        if given.folder is None:
            shutil.rmtree(folder)
    print(json.dumps(rows, indent=1))
    sys.exit(any(row["missed"] or row["differs"] for row in rows))


def chosen(only: str, ten_million: bool) -> list[Work]:
    """The work to do; what other work needs comes with it."""
    every = [work for work in WORKS if ten_million or work.input != "ten_million"]
    found = [work for work in every if only in work.name]
    needed = {work.needs for work in found}
    return [work for work in every if work in found or work.name in needed]


def measure(work: Work, folder: Path, runs: int) -> dict[str, Any]:
    """Does the work some times, prints its line, and returns it as a row."""
    path = INPUTS[work.input](folder)
    truth = json.loads(path.with_suffix(".truth.json").read_text())
    out = folder / "sessions" / (work.needs or work.name).replace(" ", "-")
    costs = []
    for _ in range(1 if work.once else runs):
        if work.needs is None:
            shutil.rmtree(out, ignore_errors=True)
        costs.append(cost(work.command(path, out)))
    best = Cost(*(min(getattr(one, name) for one in costs) for name in ("cpu_s", "wall_s", "peak_mb")))
    row = {"work": work.name, "input_mb": round(path.stat().st_size / 1e6), "kernels": truth["kernels"],
           **{name: round(getattr(best, name), 2) for name in ("cpu_s", "wall_s", "peak_mb")},
           "cpu_s_of_runs": [round(one.cpu_s, 2) for one in costs],
           "missed": [name for name in ("cpu_s", "wall_s", "peak_mb")
                      if (bar := getattr(work, name)) is not None and getattr(best, name) > bar],
           "differs": work.check(out, truth)}
    print(line(work, row), flush=True)
    return row


def line(work: Work, row: dict[str, Any]) -> str:
    """One row of the table."""
    cells = [f"{row['work']:<34}", f"{row['input_mb']:>5} MB"]
    for name, unit in (("cpu_s", "CPU s"), ("wall_s", "s wall"), ("peak_mb", "MB peak")):
        bar = getattr(work, name)
        cells.append(f"{row[name]:>8.2f} {unit}" + (f" (<= {bar:g})" if bar is not None else ""))
    verdict = "MISSED " + ", ".join(row["missed"]) if row["missed"] else "ok"
    return "  ".join([*cells, verdict, *row["differs"]])


def cost(command: list[str]) -> Cost:
    """What one process costs. Raises CalledProcessError."""
    found = subprocess.run([sys.executable, "-S", "-c", LAUNCHER, sys.executable, *command], capture_output=True,
                           text=True, check=False)
    if found.returncode:
        raise subprocess.CalledProcessError(found.returncode, command, stderr=found.stderr)
    return Cost(*json.loads(found.stdout))


def session(out: Path) -> Path:
    """The only session below a folder."""
    (found,) = out.glob("*/*/profiler")
    return found.parent


def exact(out: Path, truth: dict[str, Any]) -> list[str]:
    """What of the tables differs from the truth."""
    folder = session(out)
    kernels, copies = (pq.read_table(folder / spec.file) for spec in (KERNELS, COPIES))
    by_name = kernels.select(["kernel_name", "dur_ns"]).group_by("kernel_name").aggregate([("dur_ns", "sum")])
    calls = pq.ParquetFile(folder / API_CALLS.file).metadata.num_rows
    records = truth["records"]
    shapes = pq.ParquetFile(folder / CALL_ARGUMENTS.file).metadata.num_rows if truth["shapes"] else 0
    found = {"kernels": kernels.num_rows, "kernel_ns": pc.sum(kernels["dur_ns"]).as_py(),
             "copies": copies.num_rows, "copies_ns": pc.sum(copies["dur_ns"]).as_py(),
             "copied_bytes": pc.sum(copies["bytes"]).as_py(), "shapes": shapes,
             "streams": sorted(kernels["stream_id"].unique().to_pylist()),
             "correlations": pc.count_distinct(kernels["correlation_id"]).as_py(), "calls": calls,
             "ns_by_kernel": dict(zip(*(by_name[name].to_pylist() for name in ("kernel_name", "dur_ns_sum")),
                                      strict=True))}
    wanted = {**{key: truth[key] for key in found if key in truth}, "correlations": truth["kernels"],
              "calls": sum(records.get(kind, 0) for kind in trace_generators.CALLS)}
    return [f"{key}: {found[key]} instead of {wanted[key]}" for key in found if found[key] != wanted[key]]


def analysed(out: Path, truth: dict[str, Any]) -> list[str]:
    """The same, and what of the breakdown, the timeline and the idle time differs."""
    folder = session(out)
    groups = pq.read_table(folder / KERNEL_GROUPS.file)
    (device,) = json.loads((folder / layout.TRACE["timeline"]).read_text())["devices"]
    (idle,) = json.loads((folder / layout.TRACE["idle"]).read_text())["devices"]
    busy = sum(device[f"{part}_ns"] for part in ("compute", "exposed_communication", "exposed_copy", "exposed_fill"))
    said = {"ns_by_kernel": dict(zip(*(groups[name].to_pylist() for name in ("kernel_name", "total_ns")), strict=True)),
            "span_ns": device["t_end_ns"] - device["t_start_ns"], "busy_ns": busy, "kernel_ns": device["kernel_ns"],
            "copies_ns": device["copy_ns"]}
    idle_ns = {device["idle_ns"], idle["idle_ns"], sum(cause["ns"] for cause in idle["causes"].values())}
    return [*exact(out, truth),
            *(f"{key}: {said[key]} instead of {truth[key]}" for key in said if said[key] != truth[key]),
            *(f"idle: {one} ns" for one in idle_ns - {truth["span_ns"] - truth["busy_ns"]})]


def broken_down(out: Path, truth: dict[str, Any]) -> list[str]:
    """What of the time by kernel differs."""
    found = json.loads((out / "breakdown.json").read_text())
    return ["time by kernel differs"] if found != truth["ns_by_kernel"] else []


def counted(out: Path, truth: dict[str, Any]) -> list[str]:
    """What of the tables differs from the truth about a database."""
    folder = session(out)
    kernels, groups = (pq.read_table(folder / spec.file) for spec in (KERNELS, KERNEL_GROUPS))
    calls = pq.ParquetFile(folder / API_CALLS.file).metadata.num_rows if (folder / API_CALLS.file).is_file() else 0
    found = {"kernels": kernels.num_rows, "kernel_ns": pc.sum(kernels["dur_ns"]).as_py(), "calls": calls,
             "ns_by_kernel": dict(zip(groups["kernel_name"].to_pylist(), groups["total_ns"].to_pylist(), strict=True))}
    return [f"{key}: {value} instead of {truth[key]}" for key, value in found.items() if value != truth[key]]


def _rocpd(name: str, kernels: int, calls: bool = False) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / f"{name}.db"
        if not path.with_suffix(".truth.json").is_file():
            rocpd_generator.write_rocpd(path, kernels, calls)
        return path
    return make


def _csv(folder: Path) -> Path:
    path = folder / "rocprofv3_1m_kernel_trace.csv"
    if not path.with_suffix(".truth.json").is_file():
        csv_generator.write_csv(path, 1_000_000)
    return path


def _kineto(name: str, **how: Any) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        path = folder / f"{name}.json"
        if not path.with_suffix(".truth.json").is_file():
            trace_generators.write_kineto(path, **how)
        return path
    return make


INPUTS: dict[str, Callable[[Path], Path]] = {
    "small": _kineto("kineto_19k", kernels=19_370, layout="torch"),
    "million": _kineto("kineto_1m", kernels=1_000_000, lean=True, layout="compact"),
    "rocpd_million": _rocpd("rocpd_1m", 1_000_000),
    "rocpd_five_million": _rocpd("rocpd_5m", 5_000_000),
    "rocpd_calls": _rocpd("rocpd_1m_calls", 1_000_000, calls=True),
    "csv_million": _csv,
    "ten_million": _kineto("kineto_10m", kernels=10_000_000, lean=True, layout="compact"),
}


def _import(path: Path, out: Path) -> list[str]:
    return ["-m", "aaco", "import", str(path), "--sessions-dir", str(out), "--quiet"]


def _tables(path: Path, out: Path) -> list[str]:
    return ["-c", TO_TABLES, str(path), str(out)]


def _breakdown(path: Path, out: Path) -> list[str]:
    return ["-c", BREAKDOWN, str(path), str(out)]


def _kernels(path: Path, out: Path) -> list[str]:
    return ["-m", "aaco", "kernels", "--sessions-dir", str(out)]


WORKS = (
    Work("kineto 19 k to tables", "small", _tables, cpu_s=1.2, check=exact),
    Work("kineto 19 k aaco import", "small", _import, check=analysed),
    Work("kineto 1 M aaco import", "million", _import, cpu_s=15, peak_mb=400, check=analysed, once=True),
    Work("kineto 1 M aaco kernels", "million", _kernels, wall_s=0.5, needs="kineto 1 M aaco import"),
    Work("rocpd 1 M to breakdown", "rocpd_million", _breakdown, cpu_s=1.5, peak_mb=600, check=broken_down),
    Work("rocpd 5 M to breakdown", "rocpd_five_million", _breakdown, cpu_s=8, peak_mb=600, check=broken_down),
    Work("rocprofv3 CSV 1 M to breakdown", "csv_million", _breakdown, cpu_s=2, peak_mb=200, check=broken_down),
    Work("rocpd 1 M aaco import", "rocpd_million", _import, peak_mb=600, check=counted),
    Work("rocpd 5 M aaco import", "rocpd_five_million", _import, peak_mb=600, check=counted, once=True),
    Work("rocpd 1 M with calls aaco import", "rocpd_calls", _import, peak_mb=600, check=counted, once=True),
    Work("kineto 10 M aaco import", "ten_million", _import, peak_mb=400, check=analysed, once=True),
)

if __name__ == "__main__":
    main()
