"""A search that is killed with SIGKILL again and again: what the ledger then holds, and what it comes to.

The search runs in a process of its own, which is killed at random moments and started anew; each time every line that
was written is still there, and it goes on with the same candidates and the same seed. What is the user's, the model and
the file of backends, stays as it is, byte by byte.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from aaco.core import files
from aaco.core.session import Session
from aaco.optimize import ledger
from aaco.tracelake import layout, manifest
from aaco.tracelake.document_schemas.ledger import SearchBegun, SearchDecided
from benchmarks.claims import Claim
from benchmarks.try_advice import _models, _searches, live

KILLS, LONGEST_S = 30, 9.0
SEED, BUDGET_S = 7, 900.0
BESIDE = 1  # changes of nothing beside the gain
PATIENCE_S = 1800.0
ENDING_CPU_S, MOST_ENDING_S = 1.0, 60.0  # of a process whose search was killed
QUICK = {"KILLS": 2}


class Found(Struct):
    """What the kills left."""

    kills: int = 0
    lost: int = 0
    torn: int = 0
    others: int = 0  # searches that were begun anew in the place of one that was cut
    damaged: int = 0
    left_over: int = 0
    decided: int = 0
    kept: int = 0
    sessions: int = 0
    changed_files: int = 0


def claims(captures: Path) -> Iterator[Claim]:
    """Yield what the bars say of a kill."""
    found, rng = Found(), random.Random(SEED)
    with tempfile.TemporaryDirectory(prefix="aaco-killed-") as folder:
        while found.kills < KILLS:
            killed(Path(folder) / str(found.sessions), rng, found, KILLS - found.kills)
    yield Claim(f"lines lost by {found.kills} kills", "0", f"{found.lost}; {found.torn} torn", not found.lost)
    yield Claim("begins anew in the place of going on", "0", str(found.others), not found.others)
    yield Claim("sessions that a kill leaves damaged", "0", str(found.damaged), not found.damaged)
    yield Claim("processes that a kill leaves behind", "0", str(found.left_over), not found.left_over)
    yield Claim("searches that come to their decision", f"{found.sessions} of {found.sessions}", str(found.decided),
                found.decided == found.sessions)
    yield Claim("the gain that was planted is kept", f"{found.sessions} of {found.sessions}", str(found.kept),
                found.kept == found.sessions)
    yield Claim("files of the user that changed", "0", str(found.changed_files), not found.changed_files)


def killed(folder: Path, rng: random.Random, found: Found, most: int) -> None:
    """Kill one search up to so many times until it has decided, then let it come to its end."""
    subject, _ = live.gain(folder, "conv", _models.LAYERS, _models.LAYERS)
    backends = folder / "backends.yaml"
    backends.write_text("backends:\n  mine: {provider: CPUExecutionProvider}\n")
    users = [Path(subject.session.record.planned.model), backends]
    before = [files.sha256(path) for path in users]
    path, lines = subject.session.folder / layout.LEDGER, tuple[Any, ...]()
    for _ in range(most):
        process = _begin(folder)
        time.sleep(rng.uniform(0.5, LONGEST_S))
        process.kill()
        process.wait()
        found.kills += 1
        read = ledger.read(path)
        found.lost += sum(old not in read.lines for old in lines)
        found.torn = max(found.torn, read.unreadable)
        lines = read.lines
        found.left_over += _left_over(subject.session.folder)
        found.damaged += any(not name.startswith(manifest.REWRITTEN)
                             for name in manifest.check(Session.open(subject.session.folder)))
        if lines and isinstance(lines[-1], SearchDecided):
            break
    if _begin(folder).wait(PATIENCE_S):
        raise AssertionError("a search that was cut off does not go on")
    ended = ledger.read(path).lines
    found.lost += sum(old not in ended for old in lines)
    found.sessions += 1
    found.others += sum(isinstance(line, SearchBegun) for line in ended) - 1
    found.decided += isinstance(ended[-1], SearchDecided)
    found.kept += live.GAIN in (getattr(ended[-1], "kept", None) or "").split(" + ")
    found.changed_files += sum(files.sha256(path) != old for path, old in zip(users, before, strict=True))


def main() -> None:
    """Search in the folder that the argument names, or go on with the search there: what is killed."""
    folder = Path(sys.argv[1])
    settings = _searches.settings_in(folder, folder / "backends.yaml")
    (session,) = settings.config.storage.sessions_dir.glob("2*/2*")
    subject = _searches.Subject(Session.open(session), settings, _models.slowed("conv", 0), {}, {})
    light = _searches.rewritten("gain", live.GAIN, _models.slowed("conv", 0))
    planted = [light, *_searches.no_changes(int(sys.argv[2]))]
    lines = ledger.read(session / layout.LEDGER).lines
    if not (lines and isinstance(lines[-1], SearchDecided)):
        _searches.search(subject, planted, SEED, BUDGET_S)


def _begin(folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "benchmarks.try_advice.killed", str(folder), str(BESIDE)],
                            stdout=subprocess.DEVNULL)


def _left_over(folder: Path) -> int:
    """Return how many processes that measure for the session go on after the kill.

    To end, each may take a second of a CPU: how long that is by the clock is also what others' load makes of it.
    """
    before, until = _measuring(folder), time.monotonic() + MOST_ENDING_S
    while now := _measuring(folder):
        left = [pid for pid, cpu_s in now.items() if cpu_s - before.get(pid, 0.0) > ENDING_CPU_S]
        if left or time.monotonic() > until:
            return len(left or now)
        time.sleep(0.05)
    return 0


def _measuring(folder: Path) -> dict[str, float]:
    """Return the processes that measure for the session, with the CPU time that each took, s."""
    processes = {}
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().split(b"\0")
            opened = [link.readlink() for link in (path.parent / "fd").iterdir()]
            user, system = path.with_name("stat").read_text().rpartition(")")[2].split()[11:13]
        except OSError:
            continue
        if any(word.startswith(b"aaco.runner") for word in words) and any(
                file.is_relative_to(folder) for file in opened):
            processes[path.parent.name] = (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
    return processes


if __name__ == "__main__":
    main()
