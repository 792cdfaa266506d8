"""Do the time budget and the critical path of a trace agree? Over every trace with a critical path.

The path calls a ns compute only while a kernel runs, so its compute is at most the time in which the devices are busy.
While every device is idle no work is on the path, so the idle time is at most what the path gives to other things.
Both hold for one device; of several, one may idle while another works on the path.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from aaco import pipeline
from aaco.analytics.critical_path.summary import CriticalPaths
from aaco.analytics.explanation import Explanation
from aaco.analytics.timeline.trace import DeviceTrace
from aaco.core.config import resolve
from aaco.core.documents import decode
from aaco.core.errors import AacoError
from benchmarks.claims import Claim

OWN = Path(__file__).parents[2] / "tests" / "captures"
OWN_FILES = ("torch_*/*.trace.json.gz", "torch_h200/*.json.gz", "whole_programs/*.trace.json.gz")
FILES = ("kineto/*.json.gz", "serving/*.json.gz", "pairs/*/*.trace.json.gz")
WORK = ("compute", "communication", "copy")


def claims(captures: Path) -> Iterator[Claim]:
    """Yield what contradicts in each trace that has a path, and how many agree."""
    agreeing = compared = 0
    with tempfile.TemporaryDirectory(prefix="aaco-agreement-") as folder:
        for path in traces(captures):
            told = compare(path, Path(folder))
            if told is None:
                continue
            compared, agreeing = compared + 1, agreeing + (not told)
            for sentence in told:
                yield Claim(f"{path.parent.name}/{path.name}", "budget and path agree", sentence, False)
    yield Claim("traces whose time budget and critical path agree", "all", f"{agreeing} of {compared}",
                agreeing == compared > 0)


def traces(captures: Path) -> Iterator[Path]:
    """Yield every trace of PyTorch, our own and others'."""
    for folder, patterns in ((OWN, OWN_FILES), (captures, FILES)):
        for pattern in patterns:
            yield from sorted(folder.glob(pattern))


def compare(path: Path, folder: Path) -> list[str] | None:
    """Return what contradicts in a trace; None for one that is no trace, or has no path to compare."""
    settings = resolve(overrides={"storage": {"sessions_dir": str(folder)}}, environment={})
    try:
        explanation = pipeline.explain(pipeline.import_captures([path], settings).session, settings)
    except AacoError:
        return None
    paths = paths_of(explanation)
    if explanation.trace is None or paths is None or len(paths.paths) != len(explanation.trace.devices):
        return None
    return list(disagreements(explanation.trace, paths))


def paths_of(explanation: Explanation) -> CriticalPaths | None:
    """Return a session's critical paths; None where there are none."""
    document = explanation.examined.get("critical_path")
    paths = decode(document, CriticalPaths) if document else None
    return paths if paths and not paths.why_absent else None


def disagreements(trace: DeviceTrace, paths: CriticalPaths) -> Iterator[str]:
    """Yield what contradicts, one sentence each, in ns. Each path must be of one device."""
    on_path = {kind: sum(path.bound_by_ns[kind] for path in paths.paths) for kind in paths.paths[0].bound_by_ns}
    busy, idle = trace.sum("busy_ns"), trace.sum("idle_ns")
    if on_path["compute"] > busy:
        yield f"compute on the critical path is {on_path['compute']:,} ns, more than the {busy:,} ns of busy devices"
    rest = sum(ns for kind, ns in on_path.items() if kind not in WORK)
    if idle > rest:
        yield (f"the devices are idle for {idle:,} ns, more than the {rest:,} ns that the critical path gives to host, "
               "launches, waits and what is not known")
