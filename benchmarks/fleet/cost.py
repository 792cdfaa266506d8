"""What a large fleet costs: ingest, ingest again, compaction, and every question, each in a process of its own."""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from aaco.fleet import answers
from aaco.fleet.catalog import Catalog
from aaco.fleet.compaction import compact, read_manifest
from aaco.fleet.ingest import bundles, ingest
from aaco.fleet.lakes import open_store
from benchmarks.claims import Claim
from benchmarks.dashboard import running
from benchmarks.fleet._bundles import FleetPlan, write

SESSIONS = 10_000
QUICK = {"SESSIONS": 300}
VERBS = ("status", "regressions", "top", "trend", "heatmap", "health", "sla", "report")
MOST_BUNDLE = 200_000  # bytes
TURNS = 3
LIBRARIES = ("numpy", "pyarrow", "duckdb")
# A child has at least the memory of the process that it is forked from: this one is small.
MEASURE = ("import os, subprocess, sys, time; begin = time.monotonic(); "
           "process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL); "
           "_, code, used = os.wait4(process.pid, 0); "
           "print(time.monotonic() - begin, used.ru_maxrss, os.waitstatus_to_exitcode(code))")


def claims(captures: Path) -> Iterator[Claim]:
    """Of a fleet of SESSIONS sessions with 2,000 iterations each, over a year."""
    with tempfile.TemporaryDirectory(prefix="aaco-fleet-") as folder:
        sources, lake = Path(folder) / "bundles", Path(folder) / "lake"
        largest = max(path.stat().st_size for path in write(sources, FleetPlan(SESSIONS, days=360)))
        yield Claim("largest generated bundle", f"<= {MOST_BUNDLE:,} bytes", f"{largest:,} bytes",
                    largest <= MOST_BUNDLE)
        paths = bundles([sources])
        for name, bar_s, added in ((f"ingest {SESSIONS:,} bundles", 60, SESSIONS), ("ingest them again", 5, 0)):
            begin = time.monotonic()
            done = ingest(lake, paths, os.cpu_count() or 1)
            seconds = time.monotonic() - begin
            yield Claim(name, f"<= {bar_s} s, no duplicate", f"{seconds:.1f} s, {len(done.added):,} added",
                        seconds <= bar_s and len(done.added) == added)
        begin = time.monotonic()
        done_compaction = compact(lake)
        yield Claim("compaction", "", f"{time.monotonic() - begin:.1f} s, {done_compaction.files} files", None)
        yield most_files(lake)
        yield imports_claim()
        for verb in VERBS:
            yield verb_claim(verb, lake, 2 if verb == "regressions" else 1)
        yield from page_claims(Path(folder), lake)


def listed(lake: Path) -> set[str]:
    """Return the sessions that `aaco fleet regressions` calls worse."""
    return {row["session_id"] for row in answers.regressions(lake)["worse"]}


def most_files(lake: Path) -> Claim:
    """Return how many compacted files of one month a question reads at most."""
    store = open_store(lake)
    with Catalog.open(store) as catalog:
        manifest = read_manifest(store, catalog.state().manifest)
    months = [file.month for file in manifest.files]
    most = max(map(months.count, months))
    return Claim("files that a question reads of a month", "<= 64", str(most), most <= 64)


def verb_claim(verb: str, lake: Path, bar_s: float) -> Claim:
    """Return how long a verb takes in a process of its own, and its memory: medians of TURNS."""
    seconds, megabytes, ended = measured("-m", "aaco", "fleet", verb, "--lake", str(lake), "--json")
    return Claim(f"aaco fleet {verb}", f"<= {bar_s:g} s, <= 600 MB", f"{seconds:.2f} s, {megabytes:.0f} MB",
                 seconds <= bar_s and megabytes <= 600 and ended <= {0, 3})


def page_claims(folder: Path, lake: Path) -> Iterator[Claim]:
    """Yield how long a server takes for the page of a lake that nothing has asked about, and for it again."""
    configuration = folder / "fleet.yaml"
    configuration.write_text(json.dumps({"storage": {"fleet_dir": str(lake)}}))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = int(taken.getsockname()[1])
    command = [sys.executable, "-m", "aaco", "dashboard", "--port", str(port), "--config", str(configuration),
               "--sessions-dir", str(folder / "sessions")]
    with running(command, port, folder):
        for name in ("page of a server, the first time", "page of a server, again"):
            begin = time.monotonic()
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/fleet") as answer:
                page = answer.read()
            seconds = time.monotonic() - begin
            yield Claim(name, "<= 1 s", f"{seconds:.2f} s, {len(page):,} bytes",
                        seconds <= 1 and f"{SESSIONS:,} sessions".encode() in page)


def imports_claim() -> Claim:
    """Return how long Python takes to import the libraries of a question, which is a part of every verb."""
    seconds, megabytes, _ = measured("-c", f"import {', '.join(LIBRARIES)}")
    return Claim(f"Python and {', '.join(LIBRARIES)} alone", "", f"{seconds:.2f} s, {megabytes:.0f} MB", None)


def measured(*arguments: str) -> tuple[float, float, set[float]]:
    """Run Python with these arguments TURNS times; return the medians of seconds and MB, and how the runs ended."""
    runs = [subprocess.run([sys.executable, "-c", MEASURE, sys.executable, *arguments], capture_output=True, text=True,
                           check=True).stdout.split() for _ in range(TURNS)]
    seconds, kilobytes, ended = zip(*(map(float, run) for run in runs), strict=True)
    return statistics.median(seconds), statistics.median(kilobytes) * 1024 / 1e6, set(ended)
