"""An ingest and compaction that are killed at any moment end, when they are run again, with the same files."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from aaco.fleet.compaction import DATA, MONTHS, compact
from aaco.fleet.ingest import bundles, ingest
from benchmarks.claims import Claim
from benchmarks.fleet._bundles import FleetPlan, write

SESSIONS, KILLS = 200, 50
QUICK = {"SESSIONS": 40, "KILLS": 6}
# Small batches: there are more moments at which something is half done.
BOTH = ("import sys; from pathlib import Path; from aaco.fleet import ingest, compaction, store; "
        "store.FolderStore.batch = 7; "
        "print('ready', flush=True); ingest.ingest(Path(sys.argv[1]), ingest.bundles([Path(sys.argv[2])])); "
        "compaction.compact(Path(sys.argv[1]))")


def claims(captures: Path) -> Iterator[Claim]:
    """SIGKILL at KILLS moments, spread over the time that an undisturbed run takes."""
    with tempfile.TemporaryDirectory(prefix="aaco-fleet-") as name:
        folder = Path(name)
        list(write(folder / "bundles", FleetPlan(SESSIONS, iterations=20)))
        length_s = _started(folder / "whole", folder / "bundles", None)
        expected, same, killed = data(folder / "whole"), 0, 0
        for number in range(KILLS):
            lake = folder / f"lake-{number}"
            killed += _started(lake, folder / "bundles", length_s * number / KILLS) < 0
            ingest(lake, bundles([folder / "bundles"]))
            compact(lake)
            same += data(lake) == expected
        yield Claim(f"the same files after kill -9 at {KILLS} moments", "all", f"{same} of {KILLS}; {killed} were cut",
                    same == KILLS and killed > 0)


def data(lake: Path) -> dict[str, bytes]:
    """Return the compacted files of a lake, and those of its months."""
    return {path.relative_to(lake).as_posix(): path.read_bytes()
            for folder in (DATA, MONTHS) for path in (lake / folder).rglob("*.parquet")}


def _started(lake: Path, sources: Path, kill_after_s: float | None) -> float:
    """Ingest and compact in a process of its own; return how long it took, or -1 if it was killed before its end."""
    process = subprocess.Popen([sys.executable, "-c", BOTH, lake, sources], stdout=subprocess.PIPE)
    assert process.stdout
    process.stdout.readline()  # what is imported takes most of the time, and changes nothing
    begin = time.monotonic()
    with process, suppress(subprocess.TimeoutExpired):
        try:
            process.wait(kill_after_s)
        finally:
            process.kill()
    return time.monotonic() - begin if process.returncode == 0 else -1.0
