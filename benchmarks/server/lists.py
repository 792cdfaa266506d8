"""How long it takes to list 10,000 sessions: by a process that has never seen them, and by one that has."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from aaco.tracelake.index import Choice, Index
from benchmarks.claims import Claim
from benchmarks.server import _sessions

TIMES = 9


def claims(captures: Path) -> list[Claim]:
    """Medians of wall time, with the extremes."""
    with tempfile.TemporaryDirectory() as folder:
        ids = _sessions.many(Path(folder))
        root = Path(folder) / "sessions"
        colds, warms, changes = [], [], []
        for _ in range(TIMES):
            index = Index(root)
            colds.append(_seconds(lambda index=index: index.entries()))
            warms.append(_seconds(lambda index=index: Choice(tag="nightly").of(index.entries())))
            record = next(root.glob(f"*/{ids[0]}/session.json"))
            record.write_text(record.read_text())
            changes.append(_seconds(lambda index=index: index.entries()))
        ls = [_seconds(lambda: _ls(root)) for _ in range(3)]
    return [
        Claim(f"{len(ids):,} sessions listed by a process new to them", "<= 1 s", _told(colds), median(colds) <= 1),
        Claim("the same again, filtered and sorted", "<= 0.25 s", _told(warms), median(warms) <= 0.25),
        Claim("the same after one changed", "<= 0.25 s", _told(changes), median(changes) <= 0.25),
        Claim("aaco ls --tag TAG --limit 20, the whole command", "<= 2 s", _told(ls), median(ls) <= 2)]


def _ls(root: Path) -> None:
    subprocess.run([sys.executable, "-m", "aaco", "ls", "--sessions-dir", str(root), "--tag", "nightly"], check=True,
                   stdout=subprocess.DEVNULL)


def _seconds(work: object) -> float:
    begun = time.perf_counter()
    work()  # type: ignore[operator]
    return time.perf_counter() - begun


def _told(found: list[float]) -> str:
    return f"{median(found):.3f} s ({min(found):.3f} to {max(found):.3f})"
