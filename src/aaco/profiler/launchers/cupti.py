"""Our own tracer of NVIDIA's CUPTI, inside Python programs: kernels, copies, and the calls that put them on the device.

The program runs as it is, with a folder on PYTHONPATH whose sitecustomize begins the trace and then makes way for the
user's own; so do the Python programs that it starts. A Python that ignores PYTHONPATH (-I, -E) is not traced.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from aaco.core.errors import Missing
from aaco.profiler import cupti
from aaco.profiler.launchers import Kind, Pass, Takes, Tool, Wanted

NAME, VENDOR = "cupti", "NVIDIA"
DOES: frozenset[Kind] = frozenset({"trace"})
TAKES: Takes = "python"
INSTALL = "pip install nvidia-cuda-cupti, or the CUDA toolkit; aaco doctor"
FOLDER = Path(cupti.__file__).parent
REFUSALS: Mapping[str, tuple[str, str]] = {}
QUESTIONS: Mapping[str, tuple[str, ...]] = {"cupti": (str(FOLDER / "inside"),)}


def tool(path: str, answers: Mapping[str, str]) -> Tool:
    """libcupti as the program's own Python (`path`) finds it. Raises Missing where it says that it cannot trace."""
    try:
        said = json.loads(answers["cupti"].splitlines()[-1])  # before it may stand what its Python warns of
    except (KeyError, IndexError, ValueError):
        said = {}
    if "error" in said:
        raise Missing(f"CUPTI does not trace here: {said['error']}", said["fix"])
    return Tool(said.get("library", path), said.get("version"), frozenset())


def passes(tool: Tool, wanted: Wanted, command: Sequence[str], raw: Path) -> list[Pass]:
    """One trace of the program as it is."""
    return [Pass("trace", "trace", tuple(command), environment(raw / "trace"))]


def environment(folder: Path, mode: str = "all", pythonpath: str | None = None) -> dict[str, str]:
    """What makes a Python program trace itself into the folder, with every call or with kernels and copies alone.

    pythonpath: the program's own, where it is not ours.
    """
    before = os.environ.get("PYTHONPATH") if pythonpath is None else pythonpath
    path = os.pathsep.join([str(FOLDER / "startup"), *([before] if before else [])])
    return {"PYTHONPATH": path, "AACO_CUPTI_TRACE": str(folder), "AACO_CUPTI_MODE": mode}
