"""What a killed run or import leaves, and one whose disk is full: nothing half-written may look whole.

    python -m benchmarks.durability [--kills 50] [--sizes 10] [--json FILE]

`aaco import` and `aaco run` are killed with SIGKILL at moments spread from when they begin to write to their end, and
started on disks (a tmpfs, which needs root) of which the smallest holds nothing and the largest nearly everything.
After each, whatever lies in the sessions folder is looked at. A session may be called complete only if its command came
to its end, its manifest matches every file and it says what an undisturbed one says; any other must be told as
incomplete or failed, be readable, and not be listed as complete. Hidden folders may stay after a kill only. A table and
JSON are printed; the exit code is 1 where anything looked whole that is not. It wants the test environment.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from aaco.core import tables
from aaco.core.session import Session
from aaco.core.session import sessions as sessions_of
from aaco.tracelake import manifest, queries
from benchmarks import trace_generators
from tests import models
from tests.system.conftest import Aaco

KERNELS = 4000
ROOM_KIB = 32  # the smallest disk; it holds a few small files
COUNTED = ("kernels", "op_to_kernel_map", "inference_iters")


def commands(folder: Path) -> dict[str, tuple[object, ...]]:
    """Return the commands that are disturbed, by what they do."""
    trace = folder / "trace.json"
    trace_generators.write_kineto(trace, KERNELS, lean=True)
    return {"import": ("import", "--quiet", trace),
            "run": ("run", models.chain(folder / "chain.onnx"), "--iterations", 300, "--telemetry", "--quiet")}


def killed(aaco: Aaco, words: Sequence[object], moments: int) -> dict[str, Any]:
    """Kill the command at so many moments of its length; what the sessions then looked like."""
    lengths_s = []
    for _ in range(2):  # the first also reads what later ones find in memory
        shutil.rmtree(aaco.folder / "sessions", ignore_errors=True)
        process, begun = _begin(aaco, words), time.monotonic()
        if process.wait():
            raise AssertionError(f"undisturbed it ends with {process.returncode}: {words}")
        lengths_s.append(time.monotonic() - begun)
    expected = _said(Session.open(aaco.latest))
    shutil.rmtree(aaco.folder / "sessions")
    statuses, wrong = Counter[str](), list[str]()
    for number in range(moments):
        process = _begin(aaco, words)
        with suppress(subprocess.TimeoutExpired):
            process.wait(min(lengths_s) * number / moments)
        ended = process.poll() == 0
        process.kill()
        process.wait()
        statuses.update(_statuses(aaco.folder / "sessions") or ["nothing"])
        wrong += [f"kill {number + 1} of {moments}: {fault}" for fault in _faults(aaco, expected, ended)]
        shutil.rmtree(aaco.folder / "sessions", ignore_errors=True)
    return {"disturbed": moments, "left": dict(statuses), "wrong": wrong}


def filled(aaco: Aaco, words: Sequence[object], sizes: int) -> dict[str, Any]:
    """Start the command on so many disks, each larger than the one before; what the sessions then looked like."""
    aaco(*words)
    expected = _said(Session.open(aaco.latest))
    most_kib = sum(path.stat().st_size for path in (aaco.folder / "sessions").rglob("*") if path.is_file()) >> 10
    shutil.rmtree(aaco.folder / "sessions")
    statuses, wrong = Counter[str](), list[str]()
    for number in range(sizes):
        kib = ROOM_KIB + (most_kib - ROOM_KIB) * number // sizes
        with _disk(aaco.folder / "sessions", kib) as folder:
            process = subprocess.run(aaco.command(*words), cwd=aaco.folder, env=aaco.environment(), capture_output=True,
                                     text=True, check=False)
            statuses.update(_statuses(folder) or ["nothing"])
            faults = list(_faults(aaco, expected, process.returncode == 0))
            faults += [f"hidden: {path.name}" for path in folder.rglob(".*")]
            faults += ["traceback"] * ("Traceback" in process.stderr)
            faults += [f"exit {process.returncode}"] * (process.returncode not in (0, 1))
            wrong += [f"disk of {kib} KiB: {fault}" for fault in faults]
    return {"disturbed": sizes, "left": dict(statuses), "wrong": wrong}


def _begin(aaco: Aaco, words: Sequence[object]) -> subprocess.Popen[bytes]:
    """Start a command, and wait until it has begun its session."""
    process = subprocess.Popen(aaco.command(*words), cwd=aaco.folder, env=aaco.environment(),
                               start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and not list((aaco.folder / "sessions").glob("2*/*")):
        time.sleep(0.001)
    return process


@contextmanager
def _disk(folder: Path, kib: int) -> Iterator[Path]:
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kib}k", "none", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)
        folder.rmdir()


def _statuses(folder: Path) -> list[str]:
    return [session.status for session in sessions_of(folder)]


def _said(session: Session) -> dict[str, Any]:
    """What a whole session says: which files it has, and how many rows of its tables."""
    return {"files": sorted(manifest.read(session)["files"]),
            "rows": {name: queries.rows(session, tables.ALL[name]) for name in COUNTED}}


def _faults(aaco: Aaco, expected: dict[str, Any], ended: bool) -> Iterator[str]:
    """What of the sessions looks whole and is not, or cannot be read."""
    for session in sessions_of(aaco.folder / "sessions"):
        if session.status == "complete":
            if damaged := manifest.check(session):
                yield f"called complete, damaged: {sorted(damaged)}"
            elif _said(session) != expected:
                yield "called complete, says something else"
            continue
        if ended:
            yield f"the command ended well, the session is {session.status}"
        done = aaco.inside("report", session.folder, "--format", "json", expect=(0, 2))
        if not done.returncode and json.loads(done.stdout)["status"] != session.status:
            yield "its report calls it otherwise"
        listed = json.loads(aaco.inside("ls", "--json").stdout)["sessions"]
        if "complete" in {row["status"] for row in listed if row["session_id"] == session.id}:
            yield "listed as complete"
    if ended and not _statuses(aaco.folder / "sessions"):
        yield "the command ended well and left nothing"


def measure(folder: Path, kills: int, sizes: int, wanted: Sequence[str] = ("import", "run")
            ) -> Iterator[dict[str, Any]]:
    """Yield what was left by each command, killed and on a full disk."""
    for name, words in commands(folder).items():
        for how, disturb, count in (("kill -9", killed, kills), ("full disk", filled, sizes)):
            if name in wanted and count:
                place = folder / f"{name}-{how}"
                place.mkdir()
                yield {"command": name, "how": how, **disturb(Aaco(place, folder / "cache"), words, count)}


def main() -> int:
    """Print the table and the JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.durability", description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--sizes", type=int, default=10)
    parser.add_argument("--json", type=Path, help="write the figures here too")
    asked = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for row in measure(Path(folder), asked.kills, asked.sizes):
            left = ", ".join(f"{count} {status}" for status, count in row["left"].items())
            print(f"{row['command']:7} {row['how']:10} {row['disturbed']:3} times: left {left}; "
                  f"{len(row['wrong'])} looked whole and were not {row['wrong'] or ''}", flush=True)
            rows.append(row)
    record = json.dumps({"rows": rows, "met": not any(row["wrong"] for row in rows)}, indent=2)
    print(record)
    if asked.json:
        asked.json.write_text(record + "\n")
    return int(any(row["wrong"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
