"""Our own tracer of NVIDIA's CUPTI, inside Python programs: kernels, copies, and the calls that put them on the device.

The program runs unchanged, with a folder on PYTHONPATH whose sitecustomize begins the trace and then runs the user's
own; the same holds for the Python programs that it starts. A Python that ignores PYTHONPATH (-I, -E) is not traced.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from aaco.core.errors import Missing
from aaco.profiler import cupti
from aaco.profiler.launchers import Kind, ProfilerPass, Takes, Tool, Wanted

NAME, VENDOR = "cupti", "NVIDIA"
DOES: frozenset[Kind] = frozenset({"trace"})
TAKES: Takes = "python"
INSTALL = "pip install nvidia-cuda-cupti, or the CUDA toolkit; aaco doctor"
FOLDER = Path(cupti.__file__).parent
REFUSALS: Mapping[str, tuple[str, str]] = {}
QUESTIONS: Mapping[str, tuple[str, ...]] = {"cupti": (str(FOLDER / "inside"),)}


def tool(path: str, answers: Mapping[str, str]) -> Tool:
    """Return libcupti as the program's own Python (`path`) finds it. Raise Missing if that Python reports that it
    cannot trace.
    """
    try:
        report = json.loads(answers["cupti"].splitlines()[-1])  # warnings of its Python may precede it
    except (KeyError, IndexError, ValueError):
        report = {}
    if "error" in report:
        raise Missing(f"CUPTI does not trace here: {report['error']}", report["fix"])
    return Tool(report.get("library", path), report.get("version"), frozenset())


def passes(tool: Tool, request: Wanted, command: Sequence[str], raw: Path) -> list[ProfilerPass]:
    """Return one trace of the unchanged program."""
    return [ProfilerPass("trace", "trace", tuple(command), environment(raw / "trace"))]


def environment(folder: Path, mode: str = "all", pythonpath: str | None = None) -> dict[str, str]:
    """Return the variables that make a Python program trace itself into the folder, with every call or only kernels and
    copies.

    pythonpath: the program's own, if it is not ours.
    """
    return {"PYTHONPATH": _startup(pythonpath), "AACO_CUPTI_TRACE": str(folder), "AACO_CUPTI_MODE": mode}


def launch_environment(folder: Path, pattern: str, number: int, most_bytes: int) -> dict[str, str]:
    """Return the variables that make a Python program keep one launch of a kernel in the folder (aaco/replay)."""
    return {"PYTHONPATH": _startup(None), "AACO_CUPTI_LAUNCH": str(folder), "AACO_CAPTURE_KERNEL": pattern,
            "AACO_CAPTURE_LAUNCH": str(number), "AACO_CAPTURE_BYTES": str(most_bytes)}


def _startup(pythonpath: str | None) -> str:
    before = os.environ.get("PYTHONPATH") if pythonpath is None else pythonpath
    return os.pathsep.join([str(FOLDER / "startup"), *([before] if before else [])])
