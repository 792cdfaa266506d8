"""A trial that is checked beside others and timed alone: `python -m benchmarks.gpu._turns REQUEST`.

Processes of several searches start, load and check at once; the one that times has the device to itself. They lock the
file that AACO_TURNS names: shared, from before the device is opened until the checks are done, and alone to time.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any

from aaco.calibration.child import answer
from aaco.optimize.kernels import trial
from aaco.optimize.kernels.bench import Bench
from aaco.optimize.kernels.equivalence import run_process
from aaco.optimize.kernels.trial import TrialRequest

LOCK = "AACO_TURNS"
run_in_turn = partial(run_process, module="benchmarks.gpu._turns")


def main(request: dict[str, Any], path: Path, tell: trial.Tell) -> None:
    """Answer a request as a trial does, and take turns with the others that lock this file."""
    shared = locked(path, fcntl.LOCK_SH)
    timed = trial.RUNS["timed"]

    def alone(bench: Bench, how: TrialRequest) -> Iterator[dict[str, Any]]:
        shared.close()
        with locked(path, fcntl.LOCK_EX):
            yield from timed(bench, how)

    trial.RUNS["timed"] = alone
    trial.main(request, tell)


def locked(path: Path, how: int) -> IO[str]:
    """Return the file, locked until it is closed or the process ends. Waits for others."""
    file = path.open("a")
    fcntl.flock(file, how)
    return file


if __name__ == "__main__":
    with answer() as tell:
        main(json.loads(Path(sys.argv[1]).read_text()), Path(os.environ[LOCK]), tell)
