"""Nsight Systems: kernels, copies, calls of CUDA and of the operating system's runtime, NVTX ranges.

Options: docs.nvidia.com/nsight-systems, User Guide, CLI Profile and Export Command Switch Options. Sampling of the CPU
and its context switches are left out: they need rights that a trace does not need. Its own report is closed: the
tool exports it to SQLite, which is read. Graphs are traced node by node if the tool can, because their kernels are not
in the file otherwise.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from aaco.profiler.launchers import (
    Kind,
    ProfilerPass,
    Takes,
    Tool,
    Wanted,
    options,
    require_literal_path,
    require_option,
)

NAME, VENDOR = "nsys", "NVIDIA"
DOES: frozenset[Kind] = frozenset({"trace"})
TAKES: Takes = "command"
INSTALL = ("install NVIDIA Nsight Systems, which comes with the CUDA toolkit, or add its folder: "
           "PATH=/usr/local/cuda/bin:$PATH")
QUESTIONS: Mapping[str, tuple[str, ...]] = {"version": ("--version",), "help": ("profile", "--help")}
ASKED = {"--trace": "cuda,nvtx,osrt", "--sample": "none", "--cpuctxsw": "none"}
WHERE_KNOWN = {"--cuda-graph-trace": "node"}
REFUSALS: Mapping[str, tuple[str, str]] = {}
REPORT, MACROS = "trace", "%"  # %h, %p, %q{X}
_VERSION = re.compile(r"version\s+(\d+\.\d+[.\d]*)")


def tool(path: str, answers: Mapping[str, str]) -> Tool:
    """Return nsys by its version and the help of `profile`."""
    version = _VERSION.search(answers.get("version", ""))
    return Tool(path, version[1].rstrip(".") if version else None, options(answers.get("help", "")))


def passes(tool: Tool, request: Wanted, command: Sequence[str], raw: Path) -> list[ProfilerPass]:
    """Return one trace, and its export. Options of nsys take their value after an equal sign."""
    report = require_literal_path(raw, NAME, MACROS) / "trace" / REPORT
    arguments = [f"{require_option(tool, NAME, option)}={value}" for option, value in ASKED.items()]
    arguments += [f"{option}={value}" for option, value in WHERE_KNOWN.items() if option in tool.options]
    argv = (tool.path, "profile", *arguments, f"{require_option(tool, NAME, '--output')}={report}", *command)
    export = (tool.path, "export", "--type=sqlite", f"--output={report}.sqlite", f"{report}.nsys-rep")
    return [ProfilerPass("trace", "trace", argv, reads=(f"{REPORT}.sqlite",), closed=(f"{REPORT}.nsys-rep",),
                         after=(export,))]
