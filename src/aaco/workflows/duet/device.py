"""What an NVIDIA device does in the turns of a comparison: our CUPTI tracer in each process, read when it has ended.

Device time is that in which a kernel, a fill or a copy within the device runs. Copies to and from the host are left
out: those of pageable memory, which ONNX Runtime makes, go at the pace of the host (on an H200 their rate spread by
22 %, that of page-locked ones by 0.05 %). Of the tracer's captures, some MB a process, only these times are kept.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from aaco.analytics.attribution import turns
from aaco.analytics.streaming.stream_ids import integers
from aaco.core import clocks, files
from aaco.core.arrays import Ints
from aaco.core.errors import AacoError, BadCapture
from aaco.core.plan import HOST
from aaco.core.providers import ON_CUDA
from aaco.core.readings import Absent
from aaco.core.tables import COPIES, KERNELS
from aaco.profiler.formats.nvidia import cupti
from aaco.profiler.launchers.cupti import environment
from aaco.runner import pairs
from aaco.runner.duet import ModelSide
from aaco.runner.pairs import DuetPlan
from aaco.workflows.duet.sides import PreparedSide

Sides = tuple[ModelSide, ModelSide]
STALLED_S = 600.0
STALLED_FIX = "aaco trace -- PROGRAM  # shows what the tracer says"
OF_THE_DEVICE = pa.array(["d2d", "memset"])


def why_not(both: Sequence[PreparedSide]) -> str:
    """Why there is no device time of these sides; empty where a tracer can try."""
    providers = dict.fromkeys(str(side.facts["provider"]) for side in both)
    if HOST in providers:
        return "what a command does on a device is not recorded in turns: aaco trace -- COMMAND"
    if all(side.on_host for side in both):
        return "the processor does the work"
    if any(side.on_host for side in both):
        return "the processor does the work of one side"
    others = [name for name in providers if name not in ON_CUDA]
    return f"AACO has no tracer for what {others[0]} does on a device" if others else ""


def patient(progress: Callable[[int], None]) -> Callable[[int], None]:
    """Return a callback that passes the count of pairs to `progress`; raise AacoError if none came for long: a tracer
    that hangs must not hold up the comparison."""
    most, since = -1, time.monotonic()

    def look(count: int) -> None:
        nonlocal most, since
        if count > most:
            most, since = count, time.monotonic()
        if time.monotonic() - since > STALLED_S:
            raise AacoError(f"no pair of turns came for {STALLED_S:g} s under the tracer", STALLED_FIX)
        progress(count)

    return look


def timed(folder: Path, sides: Sides, planned: DuetPlan, run: Callable[[Sides], dict[str, Any]]) -> tuple[
        dict[str, Any], str]:
    """Run a process of the plan under the tracer and keep the device's time in each of its turns in the session folder.

    Returns what `run` does, and why the time is not known; empty where it is. Raises AacoError as `run`, StorageError.
    """
    with tempfile.TemporaryDirectory(prefix="aaco-") as name, files.storage(Path(name)):
        outcome = run((_traced(sides[0], Path(name)), _traced(sides[1], Path(name))))
        try:
            starts, ends = _work(Path(name))
            rows = pairs.turns_of(pairs.path_of(folder, planned.process))
            busy = turns.busy_ns(starts, ends, rows[:, 2], rows[:, 3])
        except (Absent, BadCapture) as reason:
            return outcome, f"in process {planned.process + 1}: {reason}"
    pairs.keep_device(folder, planned.process, busy)
    return outcome, ""


def _traced(side: ModelSide, captures: Path) -> ModelSide:
    variables: Mapping[str, str] = side.environment
    return replace(side,
                   environment={**variables, **environment(captures.resolve(), "kernels", variables.get("PYTHONPATH"))})


def _work(captures: Path) -> tuple[Ints, Ints]:
    """Starts and ends of the device's own work in every capture of the folder, on CLOCK_MONOTONIC.

    Raise Absent if there is no capture or one is incomplete: what is missing could be of one side only.
    """
    tables, problems = cupti.read(*sorted(captures.glob("*.cupti")))
    pieces = [*tables.get(KERNELS.name, ()), *(copies.filter(pc.is_in(copies["kind"].cast(pa.string()), OF_THE_DEVICE))
                                               for copies in tables.get(COPIES.name, ()))]
    if problems or not pieces:
        raise Absent("; ".join(dict.fromkeys(problems)) or "the tracer recorded no work of a device")
    offset = clocks.snapshot()
    starts, ends = (np.concatenate([integers(table[name]) for table in pieces]) - offset.realtime_ns
                    + offset.monotonic_ns for name in ("t_start_ns", "t_end_ns"))
    return starts, ends
