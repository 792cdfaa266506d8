"""What the analysis of a session of a million kernels costs once its tables are in the lake, in CPU seconds.

The session is imported from the trace that benchmarks/trace_generators.py makes, which takes some minutes;
AACO_BENCHMARK_INPUTS names a folder that keeps it. Each cost is of a process of its own, Python's start and imports
included, the smallest of RUNS: CPU seconds of a shared machine only ever grow.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks import traces
from benchmarks.claims import Claim

RUNS = 3
BAR_S = 5.0
REPORT_BAR_S = 1.0
ANALYSIS = """
import json, sys, time
from pathlib import Path
from aaco.steps import explain, make_findings, session_tables
from aaco.core.config import resolve
from aaco.core.session import Session
from aaco.tracelake.memory import frugal

frugal()
spent = {"start and imports": time.process_time()}
session, settings = Session.open(Path(sys.argv[1])), resolve().config.analysis
for finding in make_findings.declared():
    before = time.process_time()
    make_findings.make_one(session, finding.name, settings)
    spent[finding.name] = time.process_time() - before
before = time.process_time()
explain.explain(session, settings, session_tables.of_import(session))
spent["readings and diagnosis"] = time.process_time() - before
print(json.dumps(spent))
"""


def claims(captures: Path) -> list[Claim]:
    """The claims about the cost of an analysis; `captures` are not needed."""
    with _inputs() as folder:
        trace = traces.INPUTS["million"](folder)
        with TemporaryDirectory(prefix="aaco-lake-", dir=folder) as sessions:
            traces.cost(["-m", "aaco", "import", str(trace), "--sessions-dir", sessions, "--quiet"])
            session = traces.session(Path(sessions))
            return list(_claims(session, Path(sessions)))


def _claims(session: Path, sessions: Path) -> Iterator[Claim]:
    spent = min((_analysis(session) for _ in range(RUNS)), key=lambda parts: sum(parts.values()))
    whole, (most, cost) = sum(spent.values()), max(spent.items(), key=lambda part: part[1])
    yield Claim("analysis of 1 M kernels from the lake", f"<= {BAR_S:g} CPU s",
                f"{whole:.2f} CPU s; most in {most}, {cost:.2f}", whole <= BAR_S)
    for name, seconds in sorted(spent.items(), key=lambda part: -part[1]):
        yield Claim(f"1 M kernels: {name}", "", f"{seconds:.2f} CPU s", None)
    report = min(traces.cost(["-m", "aaco", "report", "--sessions-dir", str(sessions)]).cpu_s for _ in range(RUNS))
    yield Claim("report of an analysed session of 1 M kernels", f"<= {REPORT_BAR_S:g} CPU s", f"{report:.2f} CPU s",
                report <= REPORT_BAR_S)


def _analysis(session: Path) -> dict[str, float]:
    done = subprocess.run([sys.executable, "-c", ANALYSIS, str(session)], capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


@contextmanager
def _inputs() -> Iterator[Path]:
    """Where generated traces are kept; gone afterwards unless AACO_BENCHMARK_INPUTS says where."""
    if kept := os.environ.get("AACO_BENCHMARK_INPUTS"):
        yield Path(kept)
        return
    with TemporaryDirectory(prefix="aaco-inputs-") as folder:
        yield Path(folder)
